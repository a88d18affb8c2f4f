//! The actor: it alone talks to the agent, one request at a time, and makes what is there what is wanted.
//!
//! A registration is sent only when it is missing or was changed: registering again makes a healthy service critical.
//! Beats are sent after what they confirm was read back, never queued, and tried again at once when they fail. What
//! is not wanted any more is not sent; what is under way then gets a moment to end, so that it does not end later, after
//! the removal. Where it may, the journal keeps the registration, and it is looked for again for a while.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{Clock, Mono, jitter};
use tokio::sync::watch;

use super::agent::Agent;
use super::journal::{Entry, Journal, Leftover};
use super::remove::{Found, look, remove};
use super::{Failure, Phase, Service, Status, Want};
use crate::catalog::leftovers;
use crate::survive::Task;

/// How long a call may go on that is not wanted any more. Part of the budget of a stop.
const IN_FLIGHT: Duration = Duration::from_secs(1);
/// The first wait after a failure; it doubles up to a beat.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// While a registration may still arrive, it is looked for this often, this far apart.
const DOUBTS: (u32, Duration) = (12, Duration::from_secs(5));
/// The time between two searches for what others have left: one that was still ending at the first may be dead by now.
const SEARCH: Duration = Duration::from_secs(60);

/// What an actor is made of.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    pub(super) agent: Arc<dyn Agent>,
    pub(super) service: Service,
    pub(super) life: String,
    pub(super) journal: Arc<Journal>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) want: watch::Receiver<Want>,
    pub(super) tell: watch::Sender<Status>,
    /// Nothing of ours can be in the catalog yet.
    pub(super) fresh: bool,
}

/// Whether the registration of this life is in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    No,
    Maybe,
    Yes,
    /// One of another life is.
    Taken,
}

/// What the actor knows.
pub(super) struct Actor {
    parts: Parts,
    presence: Presence,
    /// A registration is under way, and nobody knows whether it takes effect.
    flight: bool,
    /// How often a registration that may still arrive is looked for.
    doubts: u32,
    /// The registration is in the journal.
    written: bool,
    /// The agent has it otherwise than it was registered, also right after.
    altered: bool,
    /// What earlier lives have left at this agent, and when that was looked for.
    left: Vec<Leftover>,
    searched: Option<Mono>,
    elsewhere: Vec<Task>,
    failed: u32,
}

impl Actor {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            presence: if parts.fresh { Presence::No } else { Presence::Maybe },
            parts,
            flight: false,
            doubts: 0,
            written: false,
            altered: false,
            left: Vec::new(),
            searched: None,
            elsewhere: Vec::new(),
            failed: 0,
        }
    }

    /// Pursues what is wanted until the handle is gone.
    pub(super) async fn run(mut self) {
        loop {
            let want = *self.parts.want.borrow_and_update();
            let (mut wanted, clock) = (self.parts.want.clone(), Arc::clone(&self.parts.clock));
            let overtaken = async move {
                if wanted.changed().await.is_ok() {
                    clock.sleep(IN_FLIGHT).await;
                }
            };
            let turned = tokio::select! {
                biased;
                turned = self.turn(want) => Some(turned),
                () = overtaken => None,
            };
            let wait = self.ended(want, turned);
            tokio::select! {
                () = rest(&*self.parts.clock, wait) => {}
                changed = self.parts.want.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    async fn turn(&mut self, want: Want) -> Result<Option<Duration>, Failure> {
        self.remove_what_was_left().await?;
        let wait = if want.registered {
            self.keep().await.map(Some)?
        } else {
            self.keep_away(want).await?
        };
        Ok(match wait {
            None if !self.left.is_empty() => Some(DOUBTS.1),
            None if self.parts.journal.is_kept() => Some(SEARCH),
            wait => wait,
        })
    }

    /// Takes in how a turn has ended; answers how long to rest. `None`: until something else is wanted.
    fn ended(&mut self, want: Want, turned: Option<Result<Option<Duration>, Failure>>) -> Option<Duration> {
        let definite = matches!(&turned, Some(Ok(_)));
        let refused = matches!(&turned, Some(Err(failure)) if failure.is_definite());
        if self.flight && !definite && !refused {
            self.doubts = DOUBTS.0;
        }
        self.flight = false;
        match turned {
            Some(Ok(wait)) => wait,
            None => Some(Duration::ZERO),
            Some(Err(failure)) => {
                self.failed = self.failed.saturating_add(1);
                let phase = match (&failure, want.registered, self.presence) {
                    (Failure::Forbidden(_), ..) => Phase::Forbidden,
                    (_, true, Presence::Yes) => Phase::Unconfirmed,
                    (_, true, _) => Phase::Registering,
                    (_, false, _) => Phase::Removing,
                };
                let agent = self.parts.agent.place();
                let id = &self.parts.service.id;
                // One line when it starts or changes; the rest is counted.
                if self.failed == 1 || self.parts.tell.borrow().phase != phase {
                    tracing::warn!(agent, id, phase = phase.as_str(), error = %failure, "the catalog is tried again");
                }
                self.say(phase, Some(failure.to_string()), None);
                let doubled = FIRST_RETRY.saturating_mul(1 << (self.failed - 1).min(16));
                Some(jitter(&*self.parts.clock, doubled.min(self.parts.service.beat()), 25))
            }
        }
    }

    fn say(&self, phase: Phase, reason: Option<String>, confirmed: Option<u64>) {
        let failed_in_a_row = self.failed;
        self.parts.tell.send_if_modified(|status| {
            let now = Status {
                phase,
                reason,
                failed_in_a_row,
                confirmed: confirmed.unwrap_or(status.confirmed),
            };
            let news = *status != now;
            if status.phase != phase {
                let (id, agent) = (&self.parts.service.id, self.parts.agent.place());
                tracing::info!(agent, id, from = status.phase.as_str(), to = phase.as_str(), "catalog");
            }
            *status = now;
            news
        });
    }

    /// Something else is wanted by now.
    fn is_overtaken(&self) -> bool {
        self.parts.want.has_changed().unwrap_or(true)
    }

    /// The service is wanted: registers it where it is missing, and beats. Answers when the next beat is due.
    async fn keep(&mut self) -> Result<Duration, Failure> {
        let sent = self.parts.clock.mono();
        if self.presence == Presence::Taken {
            match self.found().await? {
                Found::Another => return Ok(self.until_beat(sent)),
                Found::Ours | Found::Differs | Found::Nothing => self.presence = Presence::Maybe,
            }
        }
        if self.presence == Presence::Yes {
            if self.parts.agent.pass(&self.parts.service).await? {
                self.compare().await?;
                return Ok(self.beaten(sent));
            }
            tracing::warn!(
                agent = self.parts.agent.place(),
                id = self.parts.service.id,
                "the agent knows nothing of the check; registering again"
            );
            self.presence = Presence::Maybe;
        }
        self.register(false).await?;
        if self.is_overtaken() {
            return Ok(Duration::ZERO);
        }
        let sent = self.parts.clock.mono();
        if !self.parts.agent.pass(&self.parts.service).await? {
            return Err(Failure::Odd(
                "the check is missing right after it was registered".to_owned(),
            ));
        }
        self.presence = Presence::Yes;
        self.altered = false;
        self.compare().await?;
        Ok(self.beaten(sent))
    }

    async fn register(&mut self, passing: bool) -> Result<(), Failure> {
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        if !self.written {
            let entry = Entry {
                agent: agent.place().to_owned(),
                id: service.id.clone(),
                life: life.clone(),
            };
            self.written = self.parts.journal.write(&entry).await;
        }
        if self.presence != Presence::Yes {
            self.presence = Presence::Maybe;
            if self.parts.tell.borrow().phase != Phase::Forbidden {
                self.say(Phase::Registering, None, None);
            }
        }
        // From here on it may be there, whatever becomes of the call.
        self.flight = true;
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        let done = agent.register(service, life, passing).await;
        if done.is_ok() {
            self.flight = false;
            // Whatever an earlier life has left under this id is replaced by it.
            self.replaced().await;
        }
        done
    }

    /// Reads back what is registered, and makes it right when somebody has changed it.
    async fn compare(&mut self) -> Result<(), Failure> {
        match self.found().await {
            Ok(Found::Ours) => {}
            Ok(Found::Another) => self.presence = Presence::Taken,
            Ok(Found::Nothing) => self.presence = Presence::Maybe,
            Ok(Found::Differs) if self.altered => {}
            Ok(Found::Differs) => {
                self.register(true).await?;
                self.altered = self.found().await? == Found::Differs;
                let (id, altered) = (&self.parts.service.id, self.altered);
                tracing::warn!(
                    id,
                    altered,
                    "the registration was not as it should be, and was made again"
                );
            }
            // The beat was taken, which is what counts.
            Err(failure) => tracing::debug!(error = %failure, "the registration cannot be read back"),
        }
        Ok(())
    }

    async fn found(&self) -> Result<Found, Failure> {
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        look(&**agent, &service.id, Some(life), Some(service)).await
    }

    /// A beat was taken. Answers how long until the next.
    fn beaten(&mut self, sent: Mono) -> Duration {
        self.failed = 0;
        match self.presence {
            Presence::Yes => self.say(Phase::Passing, None, None),
            Presence::Taken => {
                let why = "another life of this service has registered it since".to_owned();
                self.say(Phase::Taken, Some(why), None);
            }
            // It is missing after all: at once.
            Presence::Maybe | Presence::No => return FIRST_RETRY,
        }
        self.until_beat(sent)
    }

    /// Never later than a beat after the last was sent.
    fn until_beat(&self, sent: Mono) -> Duration {
        let beat = jitter(&*self.parts.clock, self.parts.service.beat().mul_f64(0.95), 5);
        beat.saturating_sub(self.parts.clock.mono().since(sent))
    }

    /// The service is not wanted: removes it where it may be.
    async fn keep_away(&mut self, want: Want) -> Result<Option<Duration>, Failure> {
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        if self.presence != Presence::No || self.doubts > 0 {
            if self.parts.tell.borrow().phase != Phase::Absent {
                self.say(Phase::Removing, None, None);
            }
            let removed = remove(&**agent, &service.id, Some(life)).await?;
            tracing::debug!(
                id = service.id,
                ?removed,
                doubts = self.doubts,
                "removed from the catalog"
            );
            self.presence = Presence::No;
            self.doubts = self.doubts.saturating_sub(1);
        }
        self.failed = 0;
        self.say(Phase::Absent, None, Some(want.turn));
        if self.doubts > 0 {
            return Ok(Some(DOUBTS.1));
        }
        if std::mem::take(&mut self.written) {
            self.parts.journal.strike(&self.parts.life).await;
        }
        Ok(None)
    }

    /// Removes what earlier lives have left at this agent, before anything new is registered. An agent that refuses that
    /// keeps nobody from going on; one that cannot be reached could not be asked anything else either.
    async fn remove_what_was_left(&mut self) -> Result<(), Failure> {
        let parts = &self.parts;
        let now = parts.clock.mono();
        if parts.journal.is_kept() && self.searched.is_none_or(|last| now.since(last) >= SEARCH) {
            let (here, away) = leftovers::of(&parts.journal, parts.agent.place()).await;
            self.elsewhere.extend(leftovers::remove_elsewhere(away, parts));
            self.left.extend(here);
            self.searched = Some(now);
        }
        let mut refused = Vec::new();
        // What is at hand is dropped with an overtaken turn, and found again by the next search.
        while let Some(leftover) = self.left.pop() {
            match leftovers::remove_one(&*parts.agent, &leftover.entry).await {
                Ok(()) => parts.journal.settle(leftover).await,
                Err(failure) if failure.is_definite() => refused.push(leftover),
                Err(failure) => {
                    self.left.push(leftover);
                    self.left.append(&mut refused);
                    return Err(failure);
                }
            }
        }
        self.left = refused;
        Ok(())
    }

    async fn replaced(&mut self) {
        let (replaced, others) = std::mem::take(&mut self.left)
            .into_iter()
            .partition::<Vec<_>, _>(|leftover| leftover.entry.id == self.parts.service.id);
        self.left = others;
        for leftover in replaced {
            self.parts.journal.settle(leftover).await;
        }
    }
}

async fn rest(clock: &dyn Clock, wait: Option<Duration>) {
    match wait {
        None => std::future::pending().await,
        Some(Duration::ZERO) => {}
        Some(wait) => clock.sleep(wait).await,
    }
}
