//! A child, and how much of it the machine has been told.

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

use super::Supervision;
use crate::child::Child;

/// One run.
pub(super) struct Followed {
    run: Run,
    child: Child,
    /// Completes when it is ready. `None` when that was told, or does not matter any more.
    readiness: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    has_ended: bool,
    kept_until: Option<Mono>,
}

impl fmt::Debug for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} ({:?})", self.run, self.child)
    }
}

impl Followed {
    pub(super) async fn start<R>(
        run: Run,
        parts: &Supervision<R>,
        variables: Vec<(OsString, OsString)>,
    ) -> io::Result<Self> {
        let child = Child::start(&parts.processes, &parts.program, variables).await?;
        let (readiness, processes) = (parts.readiness.clone(), parts.processes.clone());
        let (helpers, clock) = (parts.program.helpers.clone(), Arc::clone(&parts.clock));
        let ready = async move { readiness.ready(&processes, &helpers, &*clock).await };
        Ok(Self {
            run,
            child,
            readiness: Some(Box::pin(ready)),
            has_ended: false,
            kept_until: None,
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.pid().as_raw_pid()
    }

    pub(super) fn pass(&self, signal: Signal) {
        self.child.pass(signal);
    }

    pub(super) fn term(&self) {
        self.child.term();
    }

    pub(super) fn kill(&mut self) {
        self.child.kill();
    }

    /// Waits until nothing of it is left.
    pub(super) async fn gone(&mut self, clock: &dyn Clock) {
        self.child.gone(clock).await;
    }

    /// Remembers what the machine is told.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Ready(run) if *run == self.run => self.readiness = None,
            Event::Ended(run, _) if *run == self.run => (self.has_ended, self.readiness) = (true, None),
            _ => {}
        }
    }

    /// The keeper strikes halfway between the machine's own last blow and the deadline.
    pub(super) fn keep_until(&mut self, deadline: Option<Mono>, reserve: Duration, clock: &dyn Clock) {
        let until = deadline.map(|at| Mono::from_origin(at.since_origin().saturating_sub(reserve / 2)));
        if until != self.kept_until {
            self.kept_until = until;
            self.child.keep_until(until, clock);
        }
    }
}

/// What happens to the child next.
pub(super) async fn next(followed: Option<&mut Followed>, clock: &dyn Clock) -> Event {
    let Some(followed) = followed else {
        return pending().await;
    };
    if followed.has_ended {
        followed.child.gone(clock).await;
        return Event::Gone(followed.run);
    }
    let readiness = async {
        match &mut followed.readiness {
            Some(readiness) => readiness.await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        code = followed.child.ended() => Event::Ended(followed.run, code),
        () = readiness => Event::Ready(followed.run),
    }
}
