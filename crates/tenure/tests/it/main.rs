//! The library over real servers: memberships, fences, rosters.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fence;
mod heartbeat;
mod roster;
mod stores;
