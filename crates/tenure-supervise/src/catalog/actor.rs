//! The actor: it alone talks to the agent, one request at a time, and makes what is there what is wanted.
//!
//! A registration is sent only when it is missing or was changed: registering again makes a healthy service critical.
//! Beats are sent after what they confirm was read back, never queued, and tried again at once when they fail. What
//! is not wanted any more is not sent; what is under way then gets a moment to end, so that it does not end later, after
//! the removal. Where it may, the journal keeps the registration, and it is looked for again for a while.

mod absent;
mod present;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{Clock, Mono, jitter, within};
use tokio::sync::watch;

use super::agent::Agent;
use super::hold::Hold;
use super::journal::{Journal, Leftover};
use super::{Failure, Phase, Service, Status, Want};
use crate::survive::Task;

/// How long a call may go on that is not wanted any more. Part of the budget of a stop.
const IN_FLIGHT: Duration = Duration::from_secs(1);
/// A registration waits this long for its holding, and at most a beat.
const HOLDING: Duration = Duration::from_secs(5);
/// The first wait after a failure; it doubles up to a beat.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// While a registration may still arrive, it is looked for this often, this far apart.
const DOUBTS: (u32, Duration) = (12, Duration::from_secs(5));
/// The time between two searches for what others have left: one that was still ending at the first may be dead by now.
const SEARCH: Duration = Duration::from_secs(60);

/// What others have left has at most a quarter of the time between two beats, and at most this: it is never in the way.
const TIDYING: Duration = Duration::from_secs(1);

/// What an actor is made of.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    pub(super) agent: Arc<dyn Agent>,
    pub(super) service: Service,
    pub(super) life: String,
    pub(super) journal: Arc<Journal>,
    /// Where the registration is a holding, too.
    pub(super) hold: Option<Arc<Hold>>,
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
    /// The holding was waited for, since this was wanted.
    waited: bool,
    /// The agent has it otherwise than it was registered, also right after.
    altered: bool,
    /// What earlier lives have left at this agent, and when that was looked for.
    left: VecDeque<Leftover>,
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
            waited: false,
            altered: false,
            left: VecDeque::new(),
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
            let missing = self
                .parts
                .hold
                .clone()
                .filter(|hold| want.registered && !hold.is_there());
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
                // Held as soon as it can be, and not a beat later.
                () = joins(missing.as_deref()) => {}
                changed = self.parts.want.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// What is wanted comes first, and what others have left afterwards, so that no beat and no end waits for that. Only
    /// before anything of ours is there it is the other way round: nobody is to find both.
    async fn turn(&mut self, want: Want) -> Result<Option<Duration>, Failure> {
        let beat = self.parts.service.beat();
        let is_new = want.registered && self.presence == Presence::No;
        if is_new {
            self.tidy(want, beat.max(TIDYING)).await;
        }
        let turned = if want.registered {
            self.keep().await.map(Some)
        } else {
            self.keep_away(want).await
        };
        let begun = self.parts.clock.mono();
        if !is_new && turned.as_ref().map_or_else(Failure::is_definite, |_| true) {
            self.tidy(want, TIDYING.min(beat / 4)).await;
        }
        let spent = self.parts.clock.mono().since(begun);
        Ok(match turned? {
            None if !self.left.is_empty() => Some(DOUBTS.1),
            None if self.parts.journal.is_kept() => Some(SEARCH),
            wait => wait.map(|wait| wait.saturating_sub(spent)),
        })
    }

    /// Removes what was left, for as long as it may take and until the service is not wanted any more.
    async fn tidy(&mut self, want: Want, bound: Duration) {
        let (clock, mut wanted) = (Arc::clone(&self.parts.clock), self.parts.want.clone());
        tokio::select! {
            biased;
            _ = wanted.changed(), if want.registered => {}
            _ = within(&*clock, bound, self.remove_what_was_left(want)) => {}
        }
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
                listed: match phase {
                    Phase::Passing | Phase::Unconfirmed => true,
                    Phase::Absent => false,
                    Phase::Registering | Phase::Forbidden | Phase::Taken | Phase::Removing => status.listed,
                },
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
}

/// Waits until the membership is there that will hold the registration.
async fn joins(missing: Option<&Hold>) {
    match missing {
        None => std::future::pending().await,
        Some(hold) => hold.there().await,
    }
}

async fn rest(clock: &dyn Clock, wait: Option<Duration>) {
    match wait {
        None => std::future::pending().await,
        Some(Duration::ZERO) => {}
        Some(wait) => clock.sleep(wait).await,
    }
}
