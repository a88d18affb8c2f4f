//! `tenure roster`, and a daemon with rosters: the built binary over real processes and files.

mod daemon;
mod desk;
mod ledger_away;
mod pairing;
mod usage;
mod views;
