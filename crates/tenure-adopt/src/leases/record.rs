//! What this process knows of one old key, from the moment it wants it until it has given it back.

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

use super::keys::Taken;

/// How often a release whose outcome is unknown is tried. After that the key is left to expire.
const RELEASES: u32 = 3;
/// Between two of them.
const AGAIN: Duration = Duration::from_millis(100);
/// A key that expires is asked for this long after.
const AFTER_EXPIRY: Duration = Duration::from_millis(5);

/// What is wanted of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing: it was lost, and there may still be somebody who works.
    Nothing,
    Take,
    Keep,
    Release,
    /// Nothing any more.
    Over,
}

/// One old key.
pub(super) struct Record {
    pub(super) target: LeaseName,
    /// What we hold it by.
    pub(super) value: String,
    /// Tenure's lease is lost: the key is neither taken nor renewed any more.
    lease_lost: CancellationToken,
    timing: Timing,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

struct State {
    wish: Wish,
    /// When the last confirmed taking or renewal was sent.
    confirmed: Option<Mono>,
    /// Something was sent that may have made it ours.
    maybe_ours: bool,
    /// A step about it is under way.
    flying: bool,
    due: Mono,
    releases: u32,
    told_of_waiting: bool,
}

impl Record {
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
            state: Mutex::new(State {
                wish: Wish::Take,
                confirmed: None,
                maybe_ours: false,
                flying: false,
                due: now,
                releases: 0,
                told_of_waiting: false,
            }),
            changed: watch::Sender::new(()),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when it is certainly ours if nothing more is heard; the clock's origin when it is not.
    pub(super) fn valid_until(&self) -> Mono {
        let confirmed = self.state().confirmed;
        confirmed.map_or(Mono::default(), |sent| {
            sent + self.timing.ttl.saturating_sub(self.timing.margin)
        })
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state().wish == Wish::Take
    }

    /// Told of everything that happens to it.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Wants it again, when it was lost. Whether it was.
    pub(super) fn want(&self, now: Mono) -> bool {
        let mut state = self.state();
        let was_lost = state.wish == Wish::Nothing;
        if was_lost {
            (state.wish, state.due) = (Wish::Take, now);
        }
        was_lost
    }

    /// Gives it back as soon as what is under way has come back.
    pub(super) fn give_back(&self, now: Mono) {
        let mut state = self.state();
        (state.wish, state.due, state.confirmed) = (Wish::Release, now, None);
        if !state.flying && !state.maybe_ours {
            state.wish = Wish::Over;
        }
    }

    /// Waits until it is given back, or left to expire.
    pub(super) async fn is_over(&self) {
        let mut changes = self.watch();
        while self.state().wish != Wish::Over {
            // It cannot fail: the sender is in `self`.
            let _ = changes.changed().await;
        }
    }

    /// What to do about it at `now`, and by when something is to be done if not now.
    pub(super) fn due(&self, now: Mono, soon: Duration) -> (Option<Wish>, Option<Mono>) {
        let state = self.state();
        let idle = matches!(state.wish, Wish::Nothing | Wish::Over)
            || state.wish != Wish::Release && self.lease_lost.is_cancelled();
        if idle || state.flying {
            return (None, None);
        }
        // What is renewed soon is renewed together.
        let early = if state.wish == Wish::Keep { soon } else { Duration::ZERO };
        if state.due <= now + early {
            (Some(state.wish), Some(state.due))
        } else {
            (None, Some(state.due))
        }
    }

    /// A step about it is sent.
    pub(super) fn send(&self, wish: Wish) {
        let mut state = self.state();
        state.flying = true;
        state.maybe_ours |= wish == Wish::Take;
    }

    /// No step is under way any more, whatever became of it.
    pub(super) fn land(&self) {
        self.state().flying = false;
    }

    /// The answer to a taking that was sent at `sent`.
    pub(super) fn taken(&self, taken: Taken, sent: Mono, next_look: Mono, now: Mono) {
        let mut state = self.state();
        state.flying = false;
        match taken {
            Taken::Ours if state.wish == Wish::Take => {
                (state.wish, state.due) = (Wish::Keep, sent + self.timing.interval);
                state.confirmed = Some(sent);
                state.told_of_waiting = false;
                tracing::info!(target = %self.target, value = self.value, "took the old lease");
            }
            // It is to be given back by now.
            Taken::Ours => {}
            Taken::Held { by, free_in } => {
                state.maybe_ours = false;
                let expiry = free_in.map(|left| now + left + AFTER_EXPIRY);
                state.due = expiry.map_or(next_look, |at| at.min(next_look));
                if state.wish == Wish::Release {
                    state.wish = Wish::Over;
                } else if !state.told_of_waiting {
                    state.told_of_waiting = true;
                    tracing::info!(target = %self.target, by, "waiting: another holds the old lease");
                }
            }
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// The answer to a renewal that was sent at `sent`.
    pub(super) fn renewed(&self, ours: bool, sent: Mono) {
        let mut state = self.state();
        state.flying = false;
        if ours {
            // What is to be given back by now stays due at once.
            if state.wish == Wish::Keep {
                state.due = sent + self.timing.interval;
                state.confirmed = state.confirmed.max(Some(sent));
            }
        } else {
            (state.maybe_ours, state.confirmed) = (false, None);
            state.wish = match state.wish {
                Wish::Release | Wish::Over => Wish::Over,
                _ => Wish::Nothing,
            };
            tracing::warn!(target = %self.target, "the old lease is not ours any more");
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// It is given back, or was not ours any more.
    pub(super) fn released(&self) {
        let mut state = self.state();
        (state.flying, state.maybe_ours, state.wish) = (false, false, Wish::Over);
        drop(state);
        self.changed.send_replace(());
    }

    /// A step failed.
    pub(super) fn failed(&self, wish: Wish, error: &Error, was_maybe_ours: bool, again: Mono, now: Mono) {
        let mut state = self.state();
        state.flying = false;
        if wish == Wish::Take && error.outcome() == Outcome::Unchanged {
            state.maybe_ours = was_maybe_ours;
        }
        state.due = again;
        if state.wish == Wish::Release {
            let released = wish == Wish::Release;
            state.due = if released { now + AGAIN } else { now };
            state.releases += u32::from(released);
            if state.releases >= RELEASES || !state.maybe_ours {
                if state.maybe_ours {
                    let error = error.chain();
                    tracing::warn!(target = %self.target, error, "cannot give the old lease back; it is left to expire");
                }
                state.wish = Wish::Over;
            }
        }
        drop(state);
        self.changed.send_replace(());
    }

    pub(super) fn may_be_ours(&self) -> bool {
        self.state().maybe_ours
    }
}

/// That an old key is certainly ours, without a break since the task was started.
pub(super) struct Hold {
    record: Arc<Record>,
    clock: Arc<dyn Clock>,
    broken: AtomicBool,
}

impl Hold {
    pub(super) fn new(record: &Arc<Record>, clock: &Arc<dyn Clock>) -> Arc<Self> {
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
            // Whoever has seen it broken must not see it whole again.
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

/// A hold as the user's task has it: tells when the last clone of its assignment is gone.
pub(super) struct LentHold {
    pub(super) hold: Arc<Hold>,
    pub(super) _gone: DropGuard,
}

impl Condition for LentHold {
    fn holds(&self) -> bool {
        self.hold.holds()
    }

    fn valid_until(&self) -> Mono {
        self.hold.valid_until()
    }
}
