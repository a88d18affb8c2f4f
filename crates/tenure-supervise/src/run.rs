//! The supervisor's event loop: it feeds events to the state machine and carries out its actions.

mod leader_guard;
mod registration;
mod running_child;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use rustix::process::Signal;
use tenure_core::clock::{Clock, Mono, within};
use tenure_core::supervise::{Action, Event, Evidence, Run, Settings, Stage, Supervisor};
use tokio::sync::{mpsc, watch};

use self::running_child::RunningChild;
use crate::child::Program;
use crate::probe::Readiness;
use crate::process::Processes;
use crate::process::launch::CANNOT_EXECUTE;
use crate::signals::{self, SignalAction};
use crate::status::Status;

pub use leader_guard::LeaderGuard;
pub use registration::Registration;

/// Everything that a supervisor needs.
#[derive(Debug)]
pub struct Supervision<R> {
    /// The local clock.
    pub clock: Arc<dyn Clock>,
    /// Starts and reaps processes.
    pub processes: Processes,
    /// The program to run.
    pub program: Program,
    /// Environment variables, in addition to the supervisor's own environment and those of each run: `TENURE_ROLE`
    /// (`primary`), and `TENURE_TERM` and `TENURE_FENCING_TOKEN` if the leadership has them.
    pub variables: Vec<(OsString, OsString)>,
    /// The readiness probe.
    pub readiness: Readiness,
    /// When the program starts and stops.
    pub settings: Settings,
    /// The evidence of leadership. A source that ends makes it uncertain.
    pub evidence: watch::Receiver<Evidence>,
    /// The service in the catalog.
    pub registration: R,
    /// Released when this node has no child and must not start one.
    pub guard: Option<Arc<dyn LeaderGuard>>,
    /// Actions requested by signals.
    pub signals: mpsc::Receiver<SignalAction>,
}

/// The exit code of a supervisor that panicked, or cannot guard its child.
const FAILED: u8 = 1;

/// The longest sleep: after a suspend, a passed deadline is noticed within this time.
const LOOK: Duration = Duration::from_millis(250);

/// How a supervisor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The exit code.
    pub code: u8,
    /// Whether no process of the program is left. If one is, leadership must not be released: it must expire.
    pub is_gone: bool,
}

impl<R: Registration> Supervision<R> {
    /// The status before the start.
    #[must_use]
    pub fn status(&self) -> watch::Sender<Status> {
        let machine = Supervisor::new(self.settings, self.clock.mono());
        watch::Sender::new(Status::of(&machine, None, &self.registration, &*self.clock))
    }

    /// Runs the program whenever this node is the primary, until it is over.
    ///
    /// On return, no process of the program is left (unless one hangs in the kernel, see [`Ended`]), and the service is
    /// deregistered or the stop budget is used up. This also holds if the supervisor panics. Do not drop the future
    /// earlier: the watchdog then kills the program, and the service stays registered.
    pub async fn run(self, status: &watch::Sender<Status>) -> Ended {
        let machine = Supervisor::new(self.settings, self.clock.mono());
        let mut event_loop = EventLoop {
            machine,
            child: None,
            queued: VecDeque::new(),
            confirms: false,
            source_ended: false,
            reported: String::new(),
            parts: self,
        };
        // The code that may panic only borrows, so the child and the registration survive it.
        match AssertUnwindSafe(event_loop.supervise(status)).catch_unwind().await {
            Ok(code) => {
                let is_gone = event_loop.child.is_none();
                Ended { code, is_gone }
            }
            Err(_) => {
                tracing::error!("the supervisor panicked; it stops the child and ends");
                let ended = event_loop.abandon().await;
                status.send_modify(|last| last.broken(ended.is_gone));
                ended
            }
        }
    }
}

/// The state of the event loop.
struct EventLoop<R> {
    machine: Supervisor,
    child: Option<RunningChild>,
    /// Events that occurred while another one was handled.
    queued: VecDeque<Event>,
    /// Whether a deregistration awaits confirmation.
    confirms: bool,
    /// The source of evidence has ended.
    source_ended: bool,
    /// The catalog status that was last published.
    reported: String,
    parts: Supervision<R>,
}

impl<R: Registration> EventLoop<R> {
    /// Feeds the machine until it is over. Returns the exit code.
    async fn supervise(&mut self, status: &watch::Sender<Status>) -> u8 {
        let first = self.parts.evidence.borrow_and_update().clone();
        self.queued.push_back(Event::Evidence(first));
        loop {
            let event = match self.queued.pop_front() {
                Some(event) => event,
                None => self.next().await,
            };
            let over = self.handle(event).await;
            self.publish(status);
            if let Some(code) = over {
                return code;
            }
        }
    }

    /// After a panic the state machine is not trusted. Deregisters the service and stops the child without it, within
    /// the stop budget.
    async fn abandon(mut self) -> Ended {
        let (settings, clock) = (self.parts.settings, Arc::clone(&self.parts.clock));
        let by = clock.mono() + settings.stop_budget;
        let registration = &mut self.parts.registration;
        registration.want(false);
        let stopped = async {
            let Some(child) = &mut self.child else { return true };
            child.end();
            let grace = settings
                .grace
                .min(settings.stop_budget.saturating_sub(settings.reserve));
            if within(&*clock, grace, child.gone(&*clock)).await.is_some() {
                return true;
            }
            child.kill();
            let left = by.since(clock.mono());
            within(&*clock, left, child.gone(&*clock)).await.is_some()
        };
        let absent = within(&*clock, settings.stop_budget, registration.absent());
        let (is_gone, _) = tokio::join!(stopped, absent);
        Ended { code: FAILED, is_gone }
    }

    /// Waits for the next event.
    async fn next(&mut self) -> Event {
        let wake = self.machine.wake();
        let is_empty = self.child.is_none() && self.machine.stage() == Stage::Waiting;
        let is_stopping = matches!(self.machine.stage(), Stage::Draining | Stage::Stopping);
        let guard = self.parts.guard.clone().filter(|_| is_empty);
        let parts = &mut self.parts;
        let mut changed = parts.registration.changed(&self.reported);
        loop {
            tokio::select! {
                biased;
                Some(action) = parts.signals.recv() => match action {
                    SignalAction::Stop(code) => return Event::Stop(code),
                    // What is being stopped gets no other chance to obey.
                    SignalAction::Forward(signal @ (Signal::INT | Signal::QUIT)) if is_stopping => {
                        return Event::Stop(signals::code_of(signal));
                    }
                    SignalAction::Forward(signal) => {
                        if let Some(child) = &mut self.child {
                            child.pass(signal);
                        }
                    }
                },
                heard = parts.evidence.changed(), if !self.source_ended => return Event::Evidence(match heard {
                    Ok(()) => parts.evidence.borrow_and_update().clone(),
                    Err(_) => {
                        // The receiver would return an error forever.
                        self.source_ended = true;
                        Evidence::Uncertain("the source of leadership has ended".to_owned())
                    }
                }),
                event = running_child::next(self.child.as_mut(), &*parts.clock) => return event,
                () = parts.registration.absent(), if self.confirms => return Event::Absent,
                () = until(&*parts.clock, wake) => return Event::Tick,
                // Released only here, where nothing can start concurrently, so never while a child runs. The branches
                // above come first, so that pending evidence is handled first.
                guard = idle(guard.as_ref()) => guard.release().await,
                // The machine ignores it; it only refreshes the status.
                () = &mut changed => return Event::Tick,
            }
        }
    }

    /// Handles one event and carries out the resulting actions. Returns the exit code when the supervisor is done.
    async fn handle(&mut self, event: Event) -> Option<u8> {
        if let Some(child) = &mut self.child {
            child.note(&event);
        }
        let happened = event.clone();
        if matches!(event, Event::Gone(_)) {
            self.child = None;
        }
        if event == Event::Absent {
            self.confirms = false;
        }
        let before = self.machine.stage();
        let actions = self.machine.on(event, self.parts.clock.mono());
        let mut over = None;
        for action in &actions {
            match *action {
                Action::Exit(code) => over = Some(code),
                action => self.act(action).await,
            }
        }
        // Logging comes after the actions because it may block.
        log(&happened);
        tracing::debug!(?actions, "supervisor");
        if over.is_some() {
            return over;
        }
        if let Some(child) = &mut self.child {
            child.set_deadline(self.machine.deadline(), self.parts.settings.reserve, &*self.parts.clock);
        }
        let after = self.machine.stage();
        if before != after {
            tracing::info!(
                from = before.as_str(),
                to = after.as_str(),
                run = self.machine.run().0,
                "supervisor"
            );
        }
        None
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Start(run) => self.start(run).await,
            Action::Register => {
                self.confirms = false;
                self.parts.registration.want(true);
            }
            Action::Deregister => {
                self.confirms = true;
                if !self.parts.registration.is_listed() {
                    self.queued.push_back(Event::Unlisted);
                }
                self.parts.registration.want(false);
            }
            Action::Term(_) => self.child.iter().for_each(RunningChild::end),
            Action::Kill(_) => self.child.iter_mut().for_each(RunningChild::kill),
            Action::Exit(_) => {}
        }
    }

    async fn start(&mut self, run: Run) {
        let parts = &self.parts;
        let mut variables = parts.variables.clone();
        variables.push(("TENURE_ROLE".into(), "primary".into()));
        if let Evidence::Primary(primacy) = self.machine.evidence() {
            let term = primacy.term.map(|term| ("TENURE_TERM".into(), term.to_string().into()));
            let token = primacy
                .token
                .map(|token| ("TENURE_FENCING_TOKEN".into(), token.to_string().into()));
            variables.extend(term.into_iter().chain(token));
        }
        match RunningChild::start(run, parts, variables).await {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                tracing::error!(%error, %run, "the program cannot be started");
                self.queued
                    .extend([Event::Ended(run, CANNOT_EXECUTE), Event::Gone(run)]);
            }
        }
    }

    fn publish(&mut self, status: &watch::Sender<Status>) {
        let pid = self.child.as_ref().map(RunningChild::pid);
        let now = Status::of(&self.machine, pid, &self.parts.registration, &*self.parts.clock);
        self.reported.clone_from(&now.catalog);
        status.send_if_modified(|last| {
            let is_news = *last != now;
            *last = now;
            is_news
        });
    }
}

fn log(event: &Event) {
    match event {
        Event::Evidence(Evidence::Primary(primacy)) => tracing::debug!(?primacy, "leadership: primary"),
        Event::Evidence(Evidence::Replica) => tracing::info!("leadership: replica"),
        Event::Evidence(Evidence::Uncertain(why)) => tracing::warn!(why, "leadership: uncertain"),
        Event::Ended(run, code) => tracing::info!(%run, code, "the child has ended"),
        Event::Ready(run) => tracing::info!(%run, "the child is ready"),
        Event::Stop(code) => tracing::info!(signal = code.saturating_sub(128), "received a stop signal"),
        Event::Gone(_) | Event::Absent | Event::Unlisted | Event::Tick => {}
    }
}

/// Waits until the guard can be released.
async fn idle(guard: Option<&Arc<dyn LeaderGuard>>) -> &Arc<dyn LeaderGuard> {
    let Some(guard) = guard else { return pending().await };
    guard.idle().await;
    guard
}

/// Sleeps do not count suspend, so the clock is checked at least every `LOOK`.
async fn until(clock: &dyn Clock, at: Option<Mono>) {
    let Some(at) = at else { return pending().await };
    loop {
        let left = at.since(clock.mono());
        if left.is_zero() {
            return;
        }
        clock.sleep(left.min(LOOK)).await;
    }
}

#[cfg(test)]
mod tests;
