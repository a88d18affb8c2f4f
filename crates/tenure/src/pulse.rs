//! The pulse of the store, beaten by a process that takes beats.
//!
//! Only a process that takes beats may beat it: a daemon, while it listens, and a library, while beats of its own members
//! pass through it. A follower or a sweep without members proves no service, and must not. A library beats by a loop of
//! its own; a daemon after one call to itself took the path of a beat.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::{Op, Reply, StoreRequest};
use tenure_core::clock::{Clock, Mono};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::pulse::{BeatPulse, FAILED_GROUPS, Pulsed};
use tenure_core::settling::{LEVELS, PULSE_EVERY};
use tenure_core::store::Store;
use tenure_core::store::middleware::Middleware;
use tenure_core::timeout::Timeout;

use crate::loops::{LoopBody, LoopSettings, Loops, Turn};

/// The name of the loop that beats the pulse.
pub const PULSE: &str = "pulse";
/// How many beats of a group must fail without an answer in between, and for how long: a lost answer is no silence. The
/// third attempt of a member fails at 5/6 of its ttl, and the batches of one moment are one attempt.
const FAILS: u32 = 3;
const FAILS_FOR: Duration = Duration::from_millis(250);
/// How many groups with failed beats are kept; more than a pulse names.
const REMEMBERED: usize = 2 * FAILED_GROUPS;

/// Beats the pulse of one store for this process.
pub struct Pulser {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When a beat or a join last passed.
    took_at: Option<Mono>,
    /// Groups of which the last beat failed.
    failing: BTreeMap<Group, Failing>,
}

/// Beats that failed, with no answer in between.
#[derive(Debug, Clone, Copy)]
struct Failing {
    count: u32,
    first: Mono,
    last: Mono,
    /// Whether the pulse has named the last one.
    is_named: bool,
}

impl std::fmt::Debug for Pulser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pulser").finish_non_exhaustive()
    }
}

impl Pulser {
    /// Beats the pulse of `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            state: Mutex::default(),
        })
    }

    /// The store itself, for what takes no beats.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The store, with an account of the beats that pass.
    #[must_use]
    pub fn watched(self: &Arc<Self>) -> Arc<dyn Store> {
        Arc::new(Watched(Arc::clone(self)))
    }

    /// Starts the loop of a library.
    ///
    /// # Errors
    /// `Invalid` if `loops` already runs one.
    pub fn start(self: &Arc<Self>, loops: &Loops) -> Result<()> {
        let pulser = Arc::clone(self);
        loops.start(LoopSettings::new(PULSE, PULSE_EVERY), move || {
            PulseLoop(Arc::clone(&pulser))
        })?;
        Ok(())
    }

    /// Beats the pulse once.
    ///
    /// # Errors
    /// Those of a beat.
    pub async fn beat(&self) -> Result<Pulsed> {
        let beat = BeatPulse {
            failed: self.name_failed(),
        };
        // A later answer proves nothing.
        let bound = Timeout::change(LEVELS[0]);
        let named = beat.failed.clone();
        let beaten = bound.call(&*self.clock, "the store", self.store.beat_pulse(beat)).await;
        if beaten.is_err() {
            let mut state = self.state();
            for group in &named {
                if let Some(failing) = state.failing.get_mut(group) {
                    failing.is_named = false;
                }
            }
        }
        beaten
    }

    /// The groups that a beat of the pulse names.
    fn name_failed(&self) -> Vec<Group> {
        let (now, longest) = (self.clock.mono(), self.store.max_ttl());
        let mut state = self.state();
        state.failing.retain(|_, failing| now.since(failing.last) <= longest);
        let is_unnamed = |failing: &Failing| {
            !failing.is_named && failing.count >= FAILS && failing.last.since(failing.first) >= FAILS_FOR
        };
        let unnamed = state.failing.iter_mut().filter(|(_, failing)| is_unnamed(failing));
        let name = |(group, failing): (&Group, &mut Failing)| {
            failing.is_named = true;
            group.clone()
        };
        unnamed.map(name).collect()
    }

    /// Whether beats of members passed within one max ttl: the longest time between two beats.
    fn takes_beats(&self) -> bool {
        let longest: Duration = self.store.max_ttl();
        let took_at = self.state().took_at;
        took_at.is_some_and(|at| self.clock.mono().since(at) <= longest)
    }

    /// Notes how a call on a group went that only a process with members makes.
    fn note(&self, group: Option<&Group>, error: Option<&Error>) {
        let now = self.clock.mono();
        let mut state = self.state();
        match (error, group) {
            (None, group) => {
                state.took_at = Some(now);
                if let Some(group) = group {
                    state.failing.remove(group);
                }
            }
            // The members' own mistakes are no silence of the store.
            (Some(error), _) if !is_of_the_store(error.kind()) => {}
            (Some(_), Some(group)) if state.failing.contains_key(group) || state.failing.len() < REMEMBERED => {
                let first = Failing {
                    count: 0,
                    first: now,
                    last: now,
                    is_named: false,
                };
                let failing = state.failing.entry(group.clone()).or_insert(first);
                failing.count = failing.count.saturating_add(1);
                (failing.last, failing.is_named) = (now, false);
            }
            (Some(_), _) => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of_the_store(kind: ErrorKind) -> bool {
    use ErrorKind::{Denied, Internal, Misconfigured, Unavailable};
    matches!(kind, Denied | Internal | Misconfigured | Unavailable)
}

/// The store with an account of the beats that pass.
struct Watched(Arc<Pulser>);

impl Middleware for Watched {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0.store)
    }

    async fn handle(&self, request: StoreRequest) -> Result<Reply> {
        let is_beat = matches!(request.op, Op::Beat(_) | Op::Heartbeat(_));
        // Who reads the stamp of a mirror takes the heartbeats of its providers.
        let begins = matches!(request.op, Op::Join(_) | Op::EnsureTenures(_) | Op::MirrorStatus(_));
        if !is_beat && !begins {
            return self.0.store.call(request).await;
        }
        // The first after a time without members ends a hole, and before it, so that a new group has no gap.
        if begins && !self.0.takes_beats() && self.0.beat().await.is_err() {
            tracing::debug!("the pulse could not be beaten before the first join of a member");
        }
        let group = request.group.clone();
        let answer = self.0.store.call(request).await;
        let error = answer.as_ref().err().filter(|_| is_beat);
        if is_beat || answer.is_ok() {
            self.0.note(group.as_ref(), error);
        }
        answer
    }

    fn answers_within(&self) -> Option<Duration> {
        self.0.store.answers_within()
    }
}

/// The loop of a library.
struct PulseLoop(Arc<Pulser>);

#[async_trait]
impl LoopBody for PulseLoop {
    async fn turn(&mut self) -> Result<Turn> {
        if self.0.takes_beats() {
            self.0.beat().await?;
        }
        Ok(Turn::again_in(PULSE_EVERY))
    }
}
