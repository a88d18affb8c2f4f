//! The library over real servers: memberships, fences, rosters, and fleets that move from plain keys.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod adopt_leases;
mod fence;
mod heart;
mod roster;
mod stores;
