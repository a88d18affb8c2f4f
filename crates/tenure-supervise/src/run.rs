//! The supervisor at work: one loop that feeds the machine with what happens, and does what it says.

mod followed;
mod registration;
mod seat;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::clock::{Clock, Mono, within};
use tenure_core::supervise::{Action, Event, Evidence, Run, Settings, Stage, Supervisor};
use tokio::sync::{mpsc, watch};

use self::followed::Followed;
use crate::child::Program;
use crate::probe::Readiness;
use crate::process::Processes;
use crate::process::launch::CANNOT_EXECUTE;
use crate::signals::Wish;
use crate::status::Status;

pub use registration::Registration;
pub use seat::Seat;

/// Everything that a supervisor needs.
#[derive(Debug)]
pub struct Supervision<R> {
    /// Local time.
    pub clock: Arc<dyn Clock>,
    /// Who starts and buries processes.
    pub processes: Processes,
    /// What to run.
    pub program: Program,
    /// Variables for it, besides the supervisor's own environment and what each run gets: `TENURE_ROLE` (`primary`), and
    /// `TENURE_TERM` and `TENURE_FENCING_TOKEN` where the leadership has them.
    pub variables: Vec<(OsString, OsString)>,
    /// How to tell that it is ready.
    pub readiness: Readiness,
    /// When it starts and stops.
    pub settings: Settings,
    /// Whether this node is the primary. A source that ends leaves the evidence uncertain.
    pub evidence: watch::Receiver<Evidence>,
    /// The service in the catalog.
    pub registration: R,
    /// What this node gives up when it has no child and is not to have one.
    pub seat: Option<Arc<dyn Seat>>,
    /// What signals want.
    pub wishes: mpsc::Receiver<Wish>,
}

/// The exit code of a supervisor that panicked.
const FAILED: u8 = 1;

/// The longest wait between two looks at the clock: a machine that was suspended has to notice that an instant has passed.
const LOOK: Duration = Duration::from_millis(250);

/// How a supervisor has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The exit code.
    pub code: u8,
    /// Whether nothing of the program is left. When not, leadership must not be given up: it has to run out.
    pub is_gone: bool,
}

impl<R: Registration> Supervision<R> {
    /// What a supervisor tells about itself before it has begun.
    #[must_use]
    pub fn status(&self) -> watch::Sender<Status> {
        let machine = Supervisor::new(self.settings, self.clock.mono());
        watch::Sender::new(Status::of(&machine, None, &self.registration, &*self.clock))
    }

    /// Runs the program wherever and whenever this node is the primary, until it is over.
    ///
    /// When it returns, nothing of the program is left (unless it hangs in the kernel, see [`Ended`]), and the service was
    /// taken out of the catalog or the stop budget was used up; also when the supervisor itself panics. It is not to be
    /// dropped before: what then remains of the program is killed by its keeper, and the catalog is not told.
    pub async fn run(self, status: &watch::Sender<Status>) -> Ended {
        let machine = Supervisor::new(self.settings, self.clock.mono());
        let mut work = Work {
            machine,
            child: None,
            news: VecDeque::new(),
            confirms: false,
            is_deaf: false,
            told: String::new(),
            parts: self,
        };
        // It is only borrowed by what may panic: the child and the registration are still there afterwards.
        match AssertUnwindSafe(work.supervise(status)).catch_unwind().await {
            Ok(code) => {
                let is_gone = work.child.is_none();
                Ended { code, is_gone }
            }
            Err(_) => {
                tracing::error!("the supervisor panicked; it stops the child and ends");
                let ended = work.abandon().await;
                status.send_modify(|last| last.broken(ended.is_gone));
                ended
            }
        }
    }
}

/// A supervisor at work.
struct Work<R> {
    machine: Supervisor,
    child: Option<Followed>,
    /// What has happened while something else was done.
    news: VecDeque<Event>,
    /// Whether the catalog has to confirm a deregistration.
    confirms: bool,
    /// The source of evidence has ended.
    is_deaf: bool,
    /// What the status says about the catalog.
    told: String,
    parts: Supervision<R>,
}

impl<R: Registration> Work<R> {
    /// Feeds the machine until it is over. The exit code.
    async fn supervise(&mut self, status: &watch::Sender<Status>) -> u8 {
        let first = self.parts.evidence.borrow_and_update().clone();
        self.news.push_back(Event::Evidence(first));
        loop {
            let event = match self.news.pop_front() {
                Some(event) => event,
                None => self.next().await,
            };
            let over = self.take(event).await;
            self.tell(status);
            if let Some(code) = over {
                return code;
            }
        }
    }

    /// After a panic the machine is not believed. What it would come to in the end is done without it, within the stop
    /// budget: the service leaves the catalog, and the child is stopped.
    async fn abandon(mut self) -> Ended {
        let (settings, clock) = (self.parts.settings, Arc::clone(&self.parts.clock));
        let by = clock.mono() + settings.stop_budget;
        let registration = &mut self.parts.registration;
        registration.want(false);
        let stopped = async {
            let Some(child) = &mut self.child else { return true };
            child.term();
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

    /// Waits for what happens next.
    async fn next(&mut self) -> Event {
        let wake = self.machine.wake();
        let is_empty = self.child.is_none() && self.machine.stage() == Stage::Waiting;
        let seat = self.parts.seat.clone().filter(|_| is_empty);
        let parts = &mut self.parts;
        let mut news = parts.registration.news(&self.told);
        loop {
            tokio::select! {
                biased;
                Some(wish) = parts.wishes.recv() => match wish {
                    Wish::End(code) => return Event::Stop(code),
                    Wish::Pass(signal) => {
                        if let Some(child) = &self.child {
                            child.pass(signal);
                        }
                    }
                },
                heard = parts.evidence.changed(), if !self.is_deaf => return Event::Evidence(match heard {
                    Ok(()) => parts.evidence.borrow_and_update().clone(),
                    Err(_) => {
                        // It would end again and again.
                        self.is_deaf = true;
                        Evidence::Uncertain("the source of leadership has ended".to_owned())
                    }
                }),
                event = followed::next(self.child.as_mut(), &*parts.clock) => return event,
                () = parts.registration.absent(), if self.confirms => return Event::Absent,
                () = until(&*parts.clock, wake) => return Event::Tick,
                // Here and nowhere else, so that it is never given up under a child: nothing starts meanwhile. What has
                // been heard for this node is heard first.
                seat = idle(seat.as_ref()) => seat.vacate().await,
                // The machine does not mind, and the status is told anew.
                () = &mut news => return Event::Tick,
            }
        }
    }

    /// Takes in what has happened, and does what comes of it. The exit code, when it is over.
    async fn take(&mut self, event: Event) -> Option<u8> {
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
        // What is to be done is done first: nobody knows how long a log takes.
        log(&happened);
        tracing::debug!(?actions, "supervisor");
        if over.is_some() {
            return over;
        }
        if let Some(child) = &mut self.child {
            child.keep_until(self.machine.deadline(), self.parts.settings.reserve, &*self.parts.clock);
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
                    self.news.push_back(Event::Unlisted);
                }
                self.parts.registration.want(false);
            }
            Action::Term(_) => self.child.iter().for_each(Followed::term),
            Action::Kill(_) => self.child.iter_mut().for_each(Followed::kill),
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
        match Followed::start(run, parts, variables).await {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                tracing::error!(%error, %run, "the program cannot be started");
                self.news.extend([Event::Ended(run, CANNOT_EXECUTE), Event::Gone(run)]);
            }
        }
    }

    fn tell(&mut self, status: &watch::Sender<Status>) {
        let pid = self.child.as_ref().map(Followed::pid);
        let now = Status::of(&self.machine, pid, &self.parts.registration, &*self.parts.clock);
        self.told.clone_from(&now.catalog);
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
        Event::Stop(code) => tracing::info!(signal = code.saturating_sub(128), "asked to end"),
        Event::Gone(_) | Event::Absent | Event::Unlisted | Event::Tick => {}
    }
}

/// Waits until there is a seat to be given up.
async fn idle(seat: Option<&Arc<dyn Seat>>) -> &Arc<dyn Seat> {
    let Some(seat) = seat else { return pending().await };
    seat.idle().await;
    seat
}

/// What sleeps counts no suspend, so it looks at the clock now and then.
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
