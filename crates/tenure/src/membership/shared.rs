//! State shared by a membership's handle, beats, registries, leases and sessions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, MemberId, RegistryName, TenureId};
use tenure_core::membership::{EndBy, EndReason, Join, Joined, Labels};
use tenure_core::remote_clock::RemoteClock;
use tenure_core::store::Call;
use tenure_core::time::StoreTime;
use tenure_core::timing::Timing;
use tenure_core::verdict::{Trust, Verdict};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::wrapper::Wrapper;
use super::{MembershipStatus, Phase};
use crate::client::Context;
use crate::lease::{Act, LeaseTable};
use crate::loops::Owner;
use crate::registry::Remembered;
use crate::session;

/// The shared state; see the module.
pub(crate) struct Shared {
    pub(crate) context: Context,
    pub(crate) group: Group,
    pub(super) join: Join,
    /// The labels of the next join.
    labels: Mutex<Labels>,
    pub(super) timing: Timing,
    pub(super) progress_within: Option<Duration>,
    /// Whether to join again after an end that allows it.
    pub(super) rejoin: bool,
    /// The process that began the tenure, if it is another one.
    pub(super) wrapper: Option<Wrapper>,
    /// Time of the last reported progress, in nanoseconds of the trust clock.
    progress_at: AtomicU64,
    state: Mutex<TenureState>,
    pub(super) status: watch::Sender<MembershipStatus>,
    /// Wakes the beat loop: a failed act indicated the end of the tenure, or progress was made while paused.
    pub(crate) poke: Notify,
    /// How often claims were found to be possibly missing under the current tenure.
    pub(crate) behind: AtomicU64,
    pub(crate) reassert: Notify,
    /// Cancelled to leave.
    pub(super) stop: CancellationToken,
    /// How to leave.
    leave_by: Mutex<EndBy>,
    /// Estimate of the store's clock for the not-after of our calls; a store in this process does not add one.
    pub(super) store_clock: RemoteClock,
    pub(crate) registries: Mutex<BTreeMap<RegistryName, Arc<Remembered>>>,
    /// The leases held locally. Its lock is only taken after that of `state`.
    pub(crate) leases: LeaseTable,
    /// The attached connections. Its lock is never held together with another.
    pub(crate) connections: session::LiveHandles,
}

struct TenureState {
    tenure: TenureId,
    trust: Trust,
    /// Why the store ended this tenure, if it did.
    ended: Option<EndReason>,
    lost: CancellationToken,
}

impl Shared {
    pub(super) fn new(
        context: Context,
        group: Group,
        join: Join,
        timing: Timing,
        progress_within: Option<Duration>,
        joined: &Joined,
        sent_at: Mono,
    ) -> Self {
        let status = MembershipStatus {
            tenure: joined.tenure.clone(),
            verdict: Verdict::Held,
            phase: Phase::Beating,
            failed_in_a_row: 0,
            last_end: None,
            rejoins: 0,
            pauses: 0,
            panics: 0,
            last_error: None,
        };
        let shared = Self {
            progress_at: AtomicU64::new(nanos(context.clock.mono())),
            leases: LeaseTable::new(group.clone()),
            connections: session::LiveHandles::default(),
            context,
            group,
            labels: Mutex::new(join.labels.clone()),
            join,
            timing,
            progress_within,
            rejoin: true,
            wrapper: None,
            state: Mutex::new(TenureState {
                tenure: joined.tenure.clone(),
                trust: Trust::begin(sent_at, timing),
                ended: None,
                lost: CancellationToken::new(),
            }),
            status: watch::Sender::new(status),
            poke: Notify::new(),
            behind: AtomicU64::new(0),
            reassert: Notify::new(),
            stop: CancellationToken::new(),
            leave_by: Mutex::new(EndBy::Leave),
            store_clock: RemoteClock::default(),
            registries: Mutex::default(),
        };
        shared.learn_store_time(joined.as_of, sent_at);
        shared
    }

    pub(crate) fn member(&self) -> &MemberId {
        &self.join.member
    }

    /// The join that would begin the next tenure.
    pub(super) fn next_join(&self) -> Join {
        let labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Join {
            labels,
            ..self.join.clone()
        }
    }

    /// Takes over the tenure that the wrapper began after ours had ended.
    pub(super) async fn inherit_again(&self) -> Result<Joined> {
        let wrapper = self
            .wrapper
            .as_ref()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "no wrapper"))?;
        let (joined, _) = wrapper.take_over(&self.context, Some(&self.tenure())).await?;
        Ok(joined)
    }

    pub(super) fn keep_labels(&self, labels: Labels) {
        *self.labels.lock().unwrap_or_else(PoisonError::into_inner) = labels;
    }

    pub(super) fn leave_by(&self) -> EndBy {
        *self.leave_by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves; the first call decides how.
    pub(super) fn leave(&self, by: EndBy) {
        let mut leave_by = self.leave_by.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.stop.is_cancelled() {
            *leave_by = by;
            self.stop.cancel();
        }
    }

    pub(crate) fn tenure(&self) -> TenureId {
        self.state().tenure.clone()
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.state().trust.verdict(self.now())
    }

    /// The verdict for one of our tenures; every tenure but the current one is lost.
    pub(crate) fn verdict_of(&self, tenure: &TenureId) -> Verdict {
        let state = self.state();
        if state.tenure == *tenure {
            state.trust.verdict(self.now())
        } else {
            Verdict::Lost
        }
    }

    pub(crate) fn valid_until(&self) -> Mono {
        self.state().trust.valid_until()
    }

    pub(super) fn changes_in(&self, now: Mono) -> Duration {
        self.state().trust.changes_in(now)
    }

    pub(crate) fn lost(&self) -> CancellationToken {
        self.state().lost.clone()
    }

    /// The tenure to act under.
    ///
    /// # Errors
    /// `Ended` when the store has ended it. An uncertain tenure may act: the store checks it in the same step.
    pub(crate) fn acting_tenure(&self) -> Result<TenureId> {
        let state = self.state();
        match state.ended {
            None => Ok(state.tenure.clone()),
            Some(reason) => Err(Error::ended(&state.tenure, reason)),
        }
    }

    /// Runs `entry` if `tenure` is still current. Returns whether it is.
    pub(crate) fn enter(&self, tenure: &TenureId, entry: impl FnOnce(&LeaseTable)) -> bool {
        let state = self.state();
        let present = state.tenure == *tenure && state.ended.is_none();
        if present {
            entry(&self.leases);
        }
        present
    }

    /// Starts an act on holdings under the current tenure, which times out after `patience`.
    pub(crate) fn act(&self, holdings: usize, patience: Duration) -> Act<'_> {
        self.leases.act(holdings, self.now() + patience)
    }

    /// Starts a wait for a lease under the current tenure.
    pub(crate) fn waiting_act(&self) -> Act<'_> {
        self.leases.waiting_act()
    }

    pub(crate) fn timing(&self) -> Timing {
        self.timing
    }

    pub(crate) fn watch(&self) -> watch::Receiver<MembershipStatus> {
        self.status.subscribe()
    }

    /// The limits of a call that times out after `patience`.
    pub(crate) fn call(&self, patience: Duration) -> Call {
        self.store_clock.not_after(self.now() + patience, Call::default())
    }

    /// Records the store's time from a reply to a request sent at `sent_at`.
    pub(super) fn learn_store_time(&self, as_of: StoreTime, sent_at: Mono) {
        self.store_clock.learn(as_of, sent_at, self.now());
    }

    /// Confirms the tenure by a beat or join sent at `sent_at`. Doubts that arose later remain.
    pub(super) fn confirm(&self, sent_at: Mono, doubted_at: Option<Mono>) {
        let mut state = self.state();
        state.trust.confirm(sent_at);
        if doubted_at.is_some_and(|at| sent_at < at) {
            state.trust.doubt();
        }
    }

    pub(super) fn doubt(&self) {
        self.state().trust.doubt();
    }

    /// Ends the tenure: the store has ended it, or we are about to.
    pub(super) fn end(&self, reason: EndReason) {
        let mut state = self.state();
        state.trust.end();
        state.ended.get_or_insert(reason);
        state.lost.cancel();
        let lost = self.leases.lose_all();
        drop(state);
        self.leases.log_lost(&lost, reason.as_str());
    }

    /// Starts a new tenure.
    pub(super) fn begin(&self, joined: &Joined, sent_at: Mono) {
        let mut state = self.state();
        state.lost.cancel();
        let lost = self.leases.begin();
        *state = TenureState {
            tenure: joined.tenure.clone(),
            trust: Trust::begin(sent_at, self.timing),
            ended: None,
            lost: CancellationToken::new(),
        };
        drop(state);
        self.leases.log_lost(&lost, "joined_again");
    }

    /// Publishes a changed status, logs transitions, and cancels the token of a lost tenure.
    pub(super) fn publish(&self, change: impl FnOnce(&mut MembershipStatus)) {
        let (tenure, verdict, ended, lost) = {
            let mut state = self.state();
            let verdict = state.trust.verdict(self.now());
            let mut lost = None;
            if verdict == Verdict::Lost {
                state.lost.cancel();
                lost = Some(self.leases.lose_all());
            } else if state.lost.is_cancelled() {
                // Confirmed before another member could take over: later callers get a new token.
                state.lost = CancellationToken::new();
            }
            (state.tenure.clone(), verdict, state.ended, lost)
        };
        if let Some(lost) = lost {
            self.leases.log_lost(&lost, "unconfirmed");
        }
        self.status.send_if_modified(|status| {
            let before = status.clone();
            status.tenure = tenure;
            status.verdict = verdict;
            status.last_end = ended.or(status.last_end);
            change(status);
            if before.verdict != verdict {
                self.log_verdict(&before, status);
            }
            before != *status
        });
    }

    fn log_verdict(&self, before: &MembershipStatus, after: &MembershipStatus) {
        let (group, tenure) = (&self.group, &after.tenure);
        let error = after.last_error.as_deref().unwrap_or("none");
        match after.verdict {
            Verdict::Held => tracing::info!(%group, %tenure, was = ?before.verdict, "held: confirmed again"),
            Verdict::Uncertain => tracing::warn!(%group, %tenure, error, "uncertain: not confirmed in time"),
            // Leaving on purpose is not a loss.
            Verdict::Lost if self.stop.is_cancelled() => {}
            Verdict::Lost => tracing::warn!(%group, %tenure, error, "lost"),
        }
    }

    pub(super) fn note_progress(&self) {
        self.progress_at.fetch_max(nanos(self.now()), Ordering::Relaxed);
        if self.status.borrow().phase == Phase::Paused {
            self.poke.notify_one();
        }
    }

    /// Whether the user's work has made no progress for too long to keep beating.
    pub(super) fn makes_no_progress(&self, now: Mono) -> bool {
        let at = Mono::from_origin(Duration::from_nanos(self.progress_at.load(Ordering::Relaxed)));
        self.progress_within.is_some_and(|within| now.since(at) > within)
    }

    /// Completes once the membership has ended.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// The owner of the loops that end with the membership.
    pub(crate) fn owner(&self) -> Owner<'_> {
        Owner {
            clock: &*self.context.clock,
            pace: self.pace(),
            over: &self.stop,
        }
    }

    pub(crate) fn forget_store_time(&self) {
        self.store_clock.forget();
    }

    /// The pause after a failure that is not urgent.
    pub(crate) fn pace(&self) -> Duration {
        self.timing.interval / 4
    }

    pub(crate) fn now(&self) -> Mono {
        self.context.clock.mono()
    }

    fn state(&self) -> MutexGuard<'_, TenureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanos(at: Mono) -> u64 {
    u64::try_from(at.since_origin().as_nanos()).unwrap_or(u64::MAX)
}
