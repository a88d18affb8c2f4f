//! The next holder: a process that waits for the lease of a cell, and looks who is alive when it has been granted.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::census::{Census, Proc};
use crate::daemon::Api;

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// The pause before the second look at the processes, which sees those that were just started at the first.
const AGAIN: Duration = Duration::from_millis(100);

/// The grant: when, and which processes of the command were alive after it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grant {
    pub(crate) at: Option<Instant>,
    pub(crate) alive: Vec<String>,
}

/// How the lease is waited for.
#[derive(Debug)]
pub(crate) enum Way {
    /// In the queue of a daemon, under a tenure.
    Daemon(Api, String),
    /// A program that ends when it was granted the lock.
    Program(Child),
}

/// The waiting process.
#[derive(Debug)]
pub(crate) struct Waiter {
    granted: Arc<Mutex<Grant>>,
    is_over: Arc<AtomicBool>,
    api: Option<(Api, String)>,
    thread: Option<JoinHandle<()>>,
}

impl Waiter {
    /// Waits in the queue of a daemon.
    pub(crate) fn at(api: &Api, cell: &str, census: &Census) -> Result<Self> {
        let tenure = api.join_waiter()?;
        let way = Way::Daemon(api.clone(), tenure.clone());
        Ok(Self::start(way, Some((api.clone(), tenure)), cell, census))
    }

    /// Waits by a program that succeeds as soon as it holds the lock.
    pub(crate) fn by(command: &mut Command, cell: &str, census: &Census) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let way = Way::Program(child.context("start the waiting program")?);
        Ok(Self::start(way, None, cell, census))
    }

    fn start(way: Way, api: Option<(Api, String)>, cell: &str, census: &Census) -> Self {
        let (granted, is_over): (Arc<Mutex<Grant>>, _) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let inner = (Arc::clone(&granted), Arc::clone(&is_over));
        let (cell, census) = (cell.to_owned(), census.clone());
        let thread = thread::spawn(move || {
            let Some(at) = wait(way, &inner.1) else { return };
            let mut alive = shown(&census.command(&cell));
            sleep(AGAIN);
            for process in shown(&census.command(&cell)) {
                if !alive.contains(&process) {
                    alive.push(process);
                }
            }
            *inner.0.lock().unwrap_or_else(PoisonError::into_inner) = Grant { at: Some(at), alive };
        });
        Self {
            granted,
            is_over,
            api,
            thread: Some(thread),
        }
    }

    /// The grant, if there was one.
    pub(crate) fn grant(&self) -> Grant {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some((api, tenure)) = &self.api {
            // It ends the wait.
            let _ = api.leave(tenure);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn shown(processes: &[Proc]) -> Vec<String> {
    processes.iter().map(Proc::shown).collect()
}

/// Returns when the lock was granted; nothing if the wait is over before.
fn wait(way: Way, is_over: &AtomicBool) -> Option<Instant> {
    let ends = || is_over.load(Ordering::Relaxed);
    match way {
        Way::Daemon(api, tenure) => {
            while !ends() {
                match api.wait(&tenure) {
                    Ok(true) => return Some(Instant::now()),
                    Ok(false) | Err(_) => sleep(LOOK),
                }
            }
            None
        }
        Way::Program(mut child) => loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success().then(Instant::now),
                _ if ends() => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return None;
                }
                _ => sleep(LOOK),
            }
        },
    }
}
