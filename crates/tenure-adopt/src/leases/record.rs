//! The local state of one old key, from the request until its release.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::fleet::Condition;
use tenure_core::clock::{Clock, Mono};
use tenure_core::error::{Error, Outcome};
use tenure_core::id::LeaseName;
use tenure_core::timing::Timing;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::keys::TakeOutcome;

/// How often a release with unknown outcome is tried. After that the key is left to expire.
const RELEASES: u32 = 3;
/// The pause between two of these attempts.
const AGAIN: Duration = Duration::from_millis(100);
/// An expiring key is tried this long after its expiry.
const AFTER_EXPIRY: Duration = Duration::from_millis(5);

/// The next action for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAction {
    /// None: the key was lost, and the task may still be running.
    Idle,
    Take,
    Renew,
    Release,
    /// None: the record is finished.
    Finished,
}

/// One old key.
pub(super) struct KeyRecord {
    pub(super) target: LeaseName,
    /// Our value of the key.
    pub(super) value: String,
    /// Cancelled when Tenure's lease is lost: the key is then neither acquired nor renewed.
    lease_lost: CancellationToken,
    timing: Timing,
    state: Mutex<KeyState>,
    changed: watch::Sender<()>,
}

struct KeyState {
    action: KeyAction,
    /// When the last confirmed acquire or renewal was sent.
    confirmed: Option<Mono>,
    /// A sent acquire may have made the key ours.
    maybe_ours: bool,
    /// A step with this key is in flight.
    in_flight: bool,
    due: Mono,
    releases: u32,
    reported_waiting: bool,
}

impl KeyRecord {
    pub(super) fn new(
        target: LeaseName,
        value: String,
        lost: CancellationToken,
        timing: Timing,
        now: Mono,
    ) -> Arc<Self> {
        Arc::new(Self {
            target,
            value,
            lease_lost: lost,
            timing,
            state: Mutex::new(KeyState {
                action: KeyAction::Take,
                confirmed: None,
                maybe_ours: false,
                in_flight: false,
                due: now,
                releases: 0,
                reported_waiting: false,
            }),
            changed: watch::Sender::new(()),
        })
    }

    fn state(&self) -> MutexGuard<'_, KeyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when the key is certainly ours without a further renewal; the clock's origin if it is not ours.
    pub(super) fn valid_until(&self) -> Mono {
        let confirmed = self.state().confirmed;
        confirmed.map_or(Mono::default(), |sent| {
            sent + self.timing.ttl.saturating_sub(self.timing.margin)
        })
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state().action == KeyAction::Take
    }

    /// Notified of every change.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Requests a lost key again. Returns whether it was lost.
    pub(super) fn request(&self, now: Mono) -> bool {
        let mut state = self.state();
        let was_lost = state.action == KeyAction::Idle;
        if was_lost {
            (state.action, state.due) = (KeyAction::Take, now);
        }
        was_lost
    }

    /// Releases the key as soon as no step is in flight.
    pub(super) fn start_release(&self, now: Mono) {
        let mut state = self.state();
        (state.action, state.due, state.confirmed) = (KeyAction::Release, now, None);
        if !state.in_flight && !state.maybe_ours {
            state.action = KeyAction::Finished;
        }
    }

    /// Waits until the key is released or left to expire.
    pub(super) async fn finished(&self) {
        let mut changes = self.watch();
        while self.state().action != KeyAction::Finished {
            // Cannot fail: the sender is in `self`.
            let _ = changes.changed().await;
        }
    }

    /// The action that is due at `now`, and the time of the next one.
    pub(super) fn due(&self, now: Mono, soon: Duration) -> (Option<KeyAction>, Option<Mono>) {
        let state = self.state();
        let idle = matches!(state.action, KeyAction::Idle | KeyAction::Finished)
            || state.action != KeyAction::Release && self.lease_lost.is_cancelled();
        if idle || state.in_flight {
            return (None, None);
        }
        // Keys with close renewal times are renewed together.
        let early = if state.action == KeyAction::Renew {
            soon
        } else {
            Duration::ZERO
        };
        if state.due <= now + early {
            (Some(state.action), Some(state.due))
        } else {
            (None, Some(state.due))
        }
    }

    /// A step with this key is sent.
    pub(super) fn send(&self, action: KeyAction) {
        let mut state = self.state();
        state.in_flight = true;
        state.maybe_ours |= action == KeyAction::Take;
    }

    /// The step has ended, with any result.
    pub(super) fn clear_in_flight(&self) {
        self.state().in_flight = false;
    }

    /// Records the result of an acquire that was sent at `sent`.
    pub(super) fn taken(&self, taken: TakeOutcome, sent: Mono, next_look: Mono, now: Mono) {
        let mut state = self.state();
        state.in_flight = false;
        match taken {
            TakeOutcome::Ours if state.action == KeyAction::Take => {
                (state.action, state.due) = (KeyAction::Renew, sent + self.timing.interval);
                state.confirmed = Some(sent);
                state.reported_waiting = false;
                tracing::info!(target = %self.target, value = self.value, "took the old lease");
            }
            // The key is to be released by now.
            TakeOutcome::Ours => {}
            TakeOutcome::Held { by, free_in } => {
                state.maybe_ours = false;
                let expiry = free_in.map(|left| now + left + AFTER_EXPIRY);
                state.due = expiry.map_or(next_look, |at| at.min(next_look));
                if state.action == KeyAction::Release {
                    state.action = KeyAction::Finished;
                } else if !state.reported_waiting {
                    state.reported_waiting = true;
                    tracing::info!(target = %self.target, by, "waiting: another holds the old lease");
                }
            }
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Records the result of a renewal that was sent at `sent`.
    pub(super) fn renewed(&self, ours: bool, sent: Mono) {
        let mut state = self.state();
        state.in_flight = false;
        if ours {
            // A key that is to be released stays due immediately.
            if state.action == KeyAction::Renew {
                state.due = sent + self.timing.interval;
                state.confirmed = state.confirmed.max(Some(sent));
            }
        } else {
            (state.maybe_ours, state.confirmed) = (false, None);
            state.action = match state.action {
                KeyAction::Release | KeyAction::Finished => KeyAction::Finished,
                _ => KeyAction::Idle,
            };
            tracing::warn!(target = %self.target, "the old lease is not ours any more");
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// The key is released, or was not ours any more.
    pub(super) fn released(&self) {
        let mut state = self.state();
        (state.in_flight, state.maybe_ours, state.action) = (false, false, KeyAction::Finished);
        drop(state);
        self.changed.send_replace(());
    }

    /// Records a failed step.
    pub(super) fn failed(&self, action: KeyAction, error: &Error, was_maybe_ours: bool, again: Mono, now: Mono) {
        let mut state = self.state();
        state.in_flight = false;
        if action == KeyAction::Take && error.outcome() == Outcome::Unchanged {
            state.maybe_ours = was_maybe_ours;
        }
        state.due = again;
        if state.action == KeyAction::Release {
            let released = action == KeyAction::Release;
            state.due = if released { now + AGAIN } else { now };
            state.releases += u32::from(released);
            if state.releases >= RELEASES || !state.maybe_ours {
                if state.maybe_ours {
                    let error = error.chain();
                    tracing::warn!(target = %self.target, error, "cannot release the old lease; it will expire");
                }
                state.action = KeyAction::Finished;
            }
        }
        drop(state);
        self.changed.send_replace(());
    }

    pub(super) fn may_be_ours(&self) -> bool {
        self.state().maybe_ours
    }
}

/// Whether an old key was certainly ours without interruption since the task was started.
pub(super) struct KeyGuard {
    record: Arc<KeyRecord>,
    clock: Arc<dyn Clock>,
    broken: AtomicBool,
}

impl KeyGuard {
    pub(super) fn new(record: &Arc<KeyRecord>, clock: &Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            record: Arc::clone(record),
            clock: Arc::clone(clock),
            broken: AtomicBool::new(false),
        })
    }

    pub(super) fn holds(&self) -> bool {
        if self.broken.load(Ordering::Acquire) {
            return false;
        }
        let holds = self.clock.mono() < self.record.valid_until();
        if !holds {
            // Once observed as broken, the guard stays broken.
            self.broken.store(true, Ordering::Release);
        }
        holds
    }

    pub(super) fn valid_until(&self) -> Mono {
        if self.broken.load(Ordering::Acquire) {
            return Mono::default();
        }
        self.record.valid_until()
    }
}

/// The guard inside the user's assignment. It signals when the last clone of the assignment is dropped.
pub(super) struct AssignmentGuard {
    pub(super) guard: Arc<KeyGuard>,
    pub(super) _gone: DropGuard,
}

impl Condition for AssignmentGuard {
    fn holds(&self) -> bool {
        self.guard.holds()
    }

    fn valid_until(&self) -> Mono {
        self.guard.valid_until()
    }
}
