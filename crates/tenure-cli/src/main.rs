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
mod joining;
mod labels;
mod launch;
mod leases;
mod listing;
mod lock;
mod logging;
mod man;
mod members;
mod nearest;
mod output;
mod process;
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
mod wrapped;

use std::process::ExitCode;

// A request allocates some buffers above 1 KiB, and its reply is often freed by another thread; mimalloc serves both faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tenure_supervise::signals::hold_for_process_1();
    // The allocator has switched huge pages off for this process, and a wrapped program would inherit that.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    let code = exit::report(cli::Cli::read().run());
    logging::finish();
    tenure_supervise::terminal::pass_interrupt_on(code);
    ExitCode::from(code)
}
