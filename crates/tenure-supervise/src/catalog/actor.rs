//! The actor. It alone talks to the agent, one request at a time, and makes the registration match the desired state.
//!
//! A registration is sent only when it is missing or was changed, because registering again makes a healthy service
//! critical. Each beat is followed by a read-back of the registration; beats are never queued, and a failed one is
//! retried immediately. A request that is no longer wanted gets a short time to finish, so that it does not complete
//! after the removal. If it may have succeeded anyway, the journal keeps the registration, and the actor checks for it
//! again for a while.

mod absent;
mod present;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{Clock, Mono, jitter, within};
use tokio::sync::watch;

use super::agent::Agent;
use super::journal::{Journal, Leftover};
use super::registration_session::RegistrationSession;
use super::{DesiredState, Failure, Phase, Service, Status};
use crate::restart::Task;

/// How long a call may continue that is no longer wanted. Part of the stop budget.
const IN_FLIGHT: Duration = Duration::from_secs(1);
/// How long a registration waits for its session; at most one beat.
const HOLDING: Duration = Duration::from_secs(5);
/// The first retry delay; it doubles up to a beat.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// The number and the interval of the checks for a registration that may still arrive.
const RECHECKS: (u32, Duration) = (12, Duration::from_secs(5));
/// The interval between two searches for leftovers: a process that was still ending at the first search may be dead at
/// the second.
const SEARCH: Duration = Duration::from_secs(60);

/// The time limit for removing leftovers, also at most a quarter of the beat interval. It keeps beats on time.
const CLEANUP_LIMIT: Duration = Duration::from_secs(1);

/// The parts of an actor.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    pub(super) agent: Arc<dyn Agent>,
    pub(super) service: Service,
    pub(super) life: String,
    pub(super) journal: Arc<Journal>,
    /// The session in the store, if there is a store.
    pub(super) hold: Option<Arc<RegistrationSession>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) want: watch::Receiver<DesiredState>,
    pub(super) tell: watch::Sender<Status>,
    /// No registration of this process can be in the catalog yet.
    pub(super) fresh: bool,
}

/// Whether the registration of this process is in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    No,
    Maybe,
    Yes,
    /// Another life of the service is registered.
    Taken,
}

/// The actor's state.
pub(super) struct Actor {
    parts: Parts,
    presence: Presence,
    /// A registration request is in flight with unknown outcome.
    in_flight: bool,
    /// How many more checks for a registration that may still arrive.
    rechecks: u32,
    /// The registration is in the journal.
    written: bool,
    /// Registering already waited for the session, since the service is wanted.
    waited: bool,
    /// The agent changes the registration, even right after it was made.
    altered: bool,
    /// The leftovers of earlier lives at this agent, and the time of the last search.
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
            in_flight: false,
            rechecks: 0,
            written: false,
            waited: false,
            altered: false,
            left: VecDeque::new(),
            searched: None,
            elsewhere: Vec::new(),
            failed: 0,
        }
    }

    /// Pursues the desired state until the handle is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let want = *self.parts.want.borrow_and_update();
            let (mut wanted, clock) = (self.parts.want.clone(), Arc::clone(&self.parts.clock));
            let missing = self
                .parts
                .hold
                .clone()
                .filter(|hold| want.registered && !hold.is_joined());
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
                // Attach the session as soon as the membership is joined, not at the next beat.
                () = joins(missing.as_deref()) => {}
                changed = self.parts.want.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// One turn. The desired state comes first and leftovers second, so that no beat and no removal waits. The
    /// exception is a first registration: the leftovers are removed before it, so that clients never find both.
    async fn turn(&mut self, want: DesiredState) -> Result<Option<Duration>, Failure> {
        let beat = self.parts.service.beat();
        let is_new = want.registered && self.presence == Presence::No;
        if is_new {
            self.clean_up(want, beat.max(CLEANUP_LIMIT)).await;
        }
        let turned = if want.registered {
            self.keep().await.map(Some)
        } else {
            self.keep_away(want).await
        };
        let begun = self.parts.clock.mono();
        if !is_new && turned.as_ref().map_or_else(Failure::is_definite, |_| true) {
            self.clean_up(want, CLEANUP_LIMIT.min(beat / 4)).await;
        }
        let spent = self.parts.clock.mono().since(begun);
        Ok(match turned? {
            None if !self.left.is_empty() => Some(RECHECKS.1),
            None if self.parts.journal.is_kept() => Some(SEARCH),
            wait => wait.map(|wait| wait.saturating_sub(spent)),
        })
    }

    /// Removes leftovers, within the bound and until the service is no longer wanted.
    async fn clean_up(&mut self, want: DesiredState, bound: Duration) {
        let (clock, mut wanted) = (Arc::clone(&self.parts.clock), self.parts.want.clone());
        tokio::select! {
            biased;
            _ = wanted.changed(), if want.registered => {}
            _ = within(&*clock, bound, self.remove_leftovers(want)) => {}
        }
    }

    /// Handles the result of a turn. Returns how long to rest; `None`: until the desired state changes.
    fn ended(&mut self, want: DesiredState, turned: Option<Result<Option<Duration>, Failure>>) -> Option<Duration> {
        let definite = matches!(&turned, Some(Ok(_)));
        let refused = matches!(&turned, Some(Err(failure)) if failure.has_no_effect());
        if self.in_flight && !definite && !refused {
            self.rechecks = RECHECKS.0;
        }
        self.in_flight = false;
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
                // One log line per start or change of a failure; repetitions are only counted.
                if self.failed == 1 || self.parts.tell.borrow().phase != phase {
                    tracing::warn!(agent, id, phase = phase.as_str(), error = %failure, "the catalog request failed; retrying");
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

    /// The desired state has changed.
    fn is_overtaken(&self) -> bool {
        self.parts.want.has_changed().unwrap_or(true)
    }
}

/// Waits until the membership for the session is joined.
async fn joins(missing: Option<&RegistrationSession>) {
    match missing {
        None => std::future::pending().await,
        Some(hold) => hold.joined().await,
    }
}

async fn rest(clock: &dyn Clock, wait: Option<Duration>) {
    match wait {
        None => std::future::pending().await,
        Some(Duration::ZERO) => {}
        Some(wait) => clock.sleep(wait).await,
    }
}
