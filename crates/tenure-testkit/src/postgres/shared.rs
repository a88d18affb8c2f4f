//! One server for all tests of a run that need only their own database.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use super::{Endpoint, Server};
use crate::program::have;
use crate::server::must;

/// Enough connections for concurrent tests; deadlocks are detected early.
const SETTINGS: &[&str] = &["max_connections=400", "deadlock_timeout=200ms"];

/// Returns the shared server; the first call starts it. Prints a message and returns `None` if Postgres is not
/// installed.
///
/// Under `cargo nextest`, where each test is a process, all processes of the run share it and it ends with the run;
/// otherwise the tests of this process share it. A test creates its own [`database`](Endpoint::database) and changes
/// nothing else.
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

/// Starts a server that its guard stops.
fn start(program: &Path, of_run: Option<&Path>) -> Result<u16> {
    let server = Server::launch(program.to_owned(), SETTINGS, of_run)?;
    let port = server.port();
    std::mem::forget(server);
    Ok(port)
}

/// The server of this run: the first process starts it and records its port, under a lock.
fn of_run(run: &str, program: &Path) -> Result<u16> {
    let dir = std::env::temp_dir().join(format!("tenure-testkit-{run}"));
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let lock = File::create(dir.join("postgres.lock"))?;
    lock.lock().context("lock the shared server")?;
    let note = dir.join("postgres.port");
    if let Ok(port) = fs::read_to_string(&note) {
        let port = port.parse().with_context(|| format!("read {}", note.display()))?;
        // It ended because its guard took another program for the test runner.
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
