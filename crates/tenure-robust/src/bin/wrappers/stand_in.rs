//! A wrong wrapper, to show that the matrix finds what is wrong: it holds a lease and waits for its command, as a simple
//! script would, and knows nothing of other processes, signals, terminals and process 1.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::daemon::Api;
use crate::script::MEMBER;

/// Runs the command of a wrapper's arguments. Returns its exit code.
pub(crate) fn run(args: &[String]) -> Result<i32> {
    let end = args.iter().position(|arg| arg == "--").context("no command")?;
    let (own, command) = (&args[..end], &args[end + 1..]);
    let value = |flag: &str| {
        let at = own.iter().position(|arg| arg == flag)?;
        own.get(at + 1).cloned()
    };
    let store = value("--store").context("no store")?;
    let addr: SocketAddr = store.trim_start_matches("http://").parse()?;
    let api = Api {
        addr,
        group: value("--group").context("no group")?,
    };
    let tenure = api.join(MEMBER, 3_000)?;
    if own.first().is_some_and(|name| name != "join") {
        api.acquire(&tenure, 0)?;
    }
    let (beats, beating) = (api.clone(), tenure.clone());
    thread::spawn(move || {
        while beats.beat(&beating).unwrap_or(true) {
            thread::sleep(Duration::from_secs(1));
        }
    });
    let status = Command::new(&command[0]).args(&command[1..]).status()?;
    api.leave(&tenure)?;
    Ok(status.code().unwrap_or(1))
}
