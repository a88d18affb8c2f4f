//! The store under faults: servers that die, freeze, fill up, refuse or lie, and networks that swallow, hold and lose.

mod data;
mod event;
mod lease;
mod network;
mod parts;
mod permission;
mod refusal;
mod server;
