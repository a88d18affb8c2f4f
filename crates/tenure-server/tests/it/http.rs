//! A real server on a free port, driven over HTTP.

mod audit;
mod bad_inputs;
mod browser;
mod client;
mod closing;
mod events;
mod generated_types;
mod golden;
mod golden_rosters;
mod health;
mod leases;
mod lifecycle;
mod limits;
mod narrow;
mod openapi;
mod sessions;
mod surface;
mod waits;
