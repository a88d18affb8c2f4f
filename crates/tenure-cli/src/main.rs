//! The `tenure` command.
//!
//! It parses, runs one command, prints what went wrong with all its causes, and exits with 0 (done), 1 (failed) or 2
//! (wrong usage). One file per command; what a library user would miss belongs into the library.

mod acquire;
mod acting;
mod adopt;
mod bench;
mod claim;
mod claims;
mod cli;
mod completions;
mod config;
mod confirm;
mod connect;
mod daemon;
mod demo;
mod doctor;
mod events;
mod exit;
mod expel;
mod groups;
mod join;
mod launch;
mod leases;
mod listing;
mod logging;
mod man;
mod members;
mod nearest;
mod output;
mod progress;
mod release;
mod restore;
mod roster;
mod run;
mod secrets;
mod serve;
mod sessions;
mod settings;
mod settle;
mod status;
mod style;
mod sweep;
mod targets;
mod token;
mod why;

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = exit::report(cli::Cli::read().run());
    logging::finish();
    code
}
