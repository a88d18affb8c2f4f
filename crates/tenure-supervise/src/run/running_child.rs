//! A running child and the events about it that the machine has handled.

use std::ffi::OsString;
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::clock::{Clock, Mono};
use tenure_core::supervise::{Event, Run};

use super::{FAILED, Supervision};
use crate::child::{Child, ChildEvent};

/// One run of the program.
pub(super) struct RunningChild {
    run: Run,
    child: Child,
    /// Completes when the child is ready. `None` once that was reported or no longer matters.
    readiness: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    has_ended: bool,
    deadline: Option<Mono>,
}

impl fmt::Debug for RunningChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} ({:?})", self.run, self.child)
    }
}

impl RunningChild {
    pub(super) async fn start<R>(
        run: Run,
        parts: &Supervision<R>,
        variables: Vec<(OsString, OsString)>,
    ) -> io::Result<Self> {
        let child = Child::start(&parts.processes, &parts.program, variables, &parts.clock).await?;
        let (readiness, processes) = (parts.readiness.clone(), parts.processes.clone());
        let (helpers, clock) = (parts.program.helpers.clone(), Arc::clone(&parts.clock));
        let ready = async move { readiness.ready(&processes, &helpers, &*clock).await };
        Ok(Self {
            run,
            child,
            readiness: Some(Box::pin(ready)),
            has_ended: false,
            deadline: None,
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.pid().as_raw_pid()
    }

    pub(super) fn pass(&mut self, signal: Signal) {
        self.child.pass(signal);
    }

    pub(super) fn end(&self) {
        self.child.end();
    }

    pub(super) fn kill(&mut self) {
        self.child.kill();
    }

    /// Waits until none of its processes is left.
    pub(super) async fn gone(&mut self, clock: &dyn Clock) {
        self.child.gone(clock).await;
    }

    /// Records that the machine has handled an event.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Ready(run) if *run == self.run => self.readiness = None,
            Event::Ended(run, _) if *run == self.run => (self.has_ended, self.readiness) = (true, None),
            _ => {}
        }
    }

    /// The watchdog kills halfway between the machine's own SIGKILL and the deadline.
    pub(super) fn set_deadline(&mut self, deadline: Option<Mono>, reserve: Duration, clock: &dyn Clock) {
        let until = deadline.map(|at| Mono::from_origin(at.since_origin().saturating_sub(reserve / 2)));
        if until != self.deadline {
            self.deadline = until;
            self.child.set_deadline(until, clock);
        }
    }
}

/// Waits for the next event of the child.
pub(super) async fn next(running: Option<&mut RunningChild>, clock: &dyn Clock) -> Event {
    let Some(running) = running else {
        return pending().await;
    };
    if running.has_ended {
        running.child.gone(clock).await;
        return Event::Gone(running.run);
    }
    let readiness = async {
        match &mut running.readiness {
            Some(readiness) => readiness.await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        event = running.child.next(clock) => match event {
            ChildEvent::Ended(code) => Event::Ended(running.run, code),
            ChildEvent::Unguarded => {
                tracing::error!("the child would survive this supervisor: stopping it");
                Event::Stop(FAILED)
            }
        },
        () = readiness => Event::Ready(running.run),
    }
}
