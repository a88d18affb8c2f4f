//! The supervisor's side of the watchdog: it gives the orders, and replaces a watchdog that is killed or stopped.

use std::future::pending;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure_core::clock::{Clock, Mono};
use tokio::sync::watch;

use super::{MARK, Orders, WATCHDOG_MARK, boot_time};
use crate::child::Helpers;
use crate::process::{ProcessState, Processes, Started};
use crate::restart::Task;
use crate::terminal::Terminal;

/// The pause before another attempt to start a watchdog.
const AGAIN: Duration = Duration::from_secs(1);
/// So many watchdogs that live for less than [`AGAIN`] one after the other mean that none can be kept.
const SHORT_LIVES: u32 = 5;

/// Keeps a watchdog at work. When it is dropped, the broken pipe makes the watchdog kill the child.
#[derive(Debug)]
pub(in crate::child) struct Guard {
    present: Arc<Mutex<Present>>,
    failed: watch::Receiver<bool>,
    task: Option<Task>,
}

/// The watchdog at work, and its orders.
#[derive(Debug)]
struct Present {
    orders: Orders,
    pid: Pid,
    state: watch::Receiver<ProcessState>,
    /// `None` once the guard is dropped.
    pipe: Option<ChildStdin>,
}

/// How a watchdog is started.
#[derive(Debug)]
struct Watchdogs {
    processes: Processes,
    helpers: Helpers,
    mark: String,
}

impl Guard {
    /// Starts a watchdog for a child that does not run yet.
    pub(in crate::child) async fn start(
        processes: &Processes,
        helpers: &Helpers,
        mark: &str,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let watchdogs = Watchdogs {
            processes: processes.clone(),
            helpers: helpers.clone(),
            mark: mark.to_owned(),
        };
        let mut process = watchdogs.start().await?;
        let present = Arc::new(Mutex::new(Present {
            orders: Orders::default(),
            pid: process.pid,
            state: process.state.clone(),
            pipe: process.stdin.take(),
        }));
        let (tell, failed) = watch::channel(false);
        let (its, clock) = (Arc::clone(&present), Arc::clone(clock));
        let task = Task::of(async move { watchdogs.keep(process, &its, &tell, &*clock).await });
        Ok(Self {
            present,
            failed,
            task: Some(task),
        })
    }

    /// Names the child's group, and who had the terminal before it.
    pub(in crate::child) fn set_child(&self, group: Pid, terminal: Option<&Terminal>) {
        self.order(|orders| {
            orders.group = Some(group);
            orders.terminal = terminal.and_then(Terminal::before);
        });
    }

    /// Sets the deadline of the child. `None`: as long as the supervisor lives.
    pub(in crate::child) fn set_deadline(&self, until: Option<Mono>, clock: &dyn Clock) {
        // The boot clock is read first: a pause between the two reads can only make the deadline earlier.
        let boot = boot_time();
        let until = until.map(|until| boot.saturating_add(until.since(clock.mono())));
        self.order(|orders| orders.until = until);
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        let mut present = lock(&self.present);
        change(&mut present.orders);
        present.send();
    }

    /// Waits until there is no watchdog and none can be kept at work. Cancel-safe.
    pub(in crate::child) async fn failed(&mut self) {
        // An error: the task has panicked, so a watchdog that dies is not replaced.
        let _ = self.failed.wait_for(|failed| *failed).await;
    }

    /// Stops the watchdog: none of the child's processes is left.
    pub(in crate::child) async fn stop(mut self) {
        self.task = None;
        let (pid, mut state) = {
            let present = lock(&self.present);
            (present.pid, present.state.clone())
        };
        let has_ended = |state: &ProcessState| matches!(state, ProcessState::Ended(_));
        if !has_ended(&state.borrow()) {
            let _ = kill_process(pid, Signal::KILL);
            // An error: the reaper is gone.
            let _ = state.wait_for(has_ended).await;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.task = None;
        lock(&self.present).pipe = None;
    }
}

impl Present {
    /// Sends all orders again.
    fn send(&mut self) {
        if let Some(pipe) = &mut self.pipe
            && let Err(error) = pipe.write_all(self.orders.to_lines().as_bytes())
        {
            // It has ended, and is replaced.
            tracing::debug!(%error, "cannot send orders to the watchdog");
        }
    }
}

impl Watchdogs {
    async fn start(&self) -> io::Result<Started> {
        let mut command = Command::new(&self.helpers.program);
        command
            .args(&self.helpers.watchdog)
            .arg(std::process::id().to_string())
            // If a nested supervisor kept the mark, the outer watchdog would also kill the inner one, which must still
            // act.
            .env_remove(MARK)
            .env(WATCHDOG_MARK, &self.mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        let process = self.processes.spawn(command).await?;
        if let Some(pipe) = &process.stdin {
            // The write must not block when the watchdog does not read.
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(process)
    }

    /// Replaces each watchdog that ends or stops.
    async fn keep(
        &self,
        mut process: Started,
        present: &Mutex<Present>,
        failed: &watch::Sender<bool>,
        clock: &dyn Clock,
    ) {
        let mut short_lives = 0;
        loop {
            let began = clock.mono();
            loop {
                match process.stopped_or_ended().await {
                    // A stopped watchdog kills nothing.
                    ProcessState::Stopped(_) => _ = kill_process(process.pid, Signal::KILL),
                    // It has killed the child at its deadline, while this process was frozen.
                    ProcessState::Ended(0) => return pending().await,
                    ProcessState::Ended(_) | ProcessState::Running => break,
                }
            }
            let is_short = clock.mono().since(began) < AGAIN;
            short_lives = if is_short { short_lives + 1 } else { 0 };
            if short_lives >= SHORT_LIVES {
                tracing::error!("the watchdogs of the child are killed one after the other");
                failed.send_replace(true);
                clock.sleep(AGAIN).await;
            }
            tracing::warn!("the watchdog of the child was killed or stopped; starting another");
            process = self.start_again(present, failed, clock).await;
        }
    }

    async fn start_again(&self, present: &Mutex<Present>, failed: &watch::Sender<bool>, clock: &dyn Clock) -> Started {
        loop {
            match self.start().await {
                Ok(mut process) => {
                    let mut present = lock(present);
                    (present.pid, present.state) = (process.pid, process.state.clone());
                    present.pipe = process.stdin.take();
                    present.send();
                    return process;
                }
                Err(error) => tracing::error!(%error, "cannot start a watchdog"),
            }
            failed.send_replace(true);
            clock.sleep(AGAIN).await;
        }
    }
}

fn lock(present: &Mutex<Present>) -> MutexGuard<'_, Present> {
    present.lock().unwrap_or_else(PoisonError::into_inner)
}
