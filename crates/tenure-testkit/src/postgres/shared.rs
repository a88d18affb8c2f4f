//! One server for all tests of a run that need no more than a database of their own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use super::{Endpoint, Server};
use crate::program::have;
use crate::server::must;

/// Enough connections for the tests that run at a time; deadlocks are noticed soon.
const SETTINGS: &[&str] = &["max_connections=400", "deadlock_timeout=200ms"];

/// The shared server; the first call starts it. `None`, after a loud word, when it isn't installed.
///
/// Under `cargo nextest`, where each test is a process, it is shared by all processes of the run and ends with the run;
/// elsewhere by the tests of this process. A test takes a [`database`](Endpoint::database) of its own and changes nothing
/// beside it.
///
/// # Panics
/// As [`Server::start`].
#[track_caller]
pub fn shared() -> Option<&'static Endpoint> {
    static SHARED: OnceLock<Option<Endpoint>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            let program = have("postgres").or_skip()?;
            let port = match std::env::var("NEXTEST_RUN_ID") {
                Ok(run) => must(of_run(&run, &program)),
                Err(_) => must(start(&program, None)),
            };
            Some(Endpoint::at(port, program))
        })
        .as_ref()
}

/// Starts one that is left to its guard.
fn start(program: &Path, of_run: Option<&Path>) -> Result<u16> {
    let server = Server::launch(program.to_owned(), SETTINGS, of_run)?;
    let port = server.port();
    std::mem::forget(server);
    Ok(port)
}

/// The server of this run: the first of its processes starts it and writes its port down, under a lock.
fn of_run(run: &str, program: &Path) -> Result<u16> {
    let dir = std::env::temp_dir().join(format!("tenure-testkit-{run}"));
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let lock = File::create(dir.join("postgres.lock"))?;
    lock.lock().context("lock the shared server")?;
    let note = dir.join("postgres.port");
    if let Ok(port) = fs::read_to_string(&note) {
        let port = port.parse().with_context(|| format!("read {}", note.display()))?;
        // It ended if its guard took another program for the test runner.
        if TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok() {
            return Ok(port);
        }
    }
    let port = start(program, Some(&dir))?;
    let new = dir.join(format!("postgres.{}", process::id()));
    fs::write(&new, port.to_string())?;
    fs::rename(new, note)?;
    Ok(port)
}
