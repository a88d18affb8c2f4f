//! A membership: this process as a member of a group.
//!
//! Joining starts a loop that beats every third of the ttl. It continues after every error and rejoins when its tenure
//! `lapsed` or became `unknown` (the store lost its data). After `superseded` (a newer process with the same name) or
//! `expelled` (an operator) it stops and reports it, because a rejoin would compete with the new owner.
//!
//! Check [`Membership::verdict`] before acting as an owner. It needs no I/O and fails closed: the verdict is based on
//! when the last confirmed beat was *sent*, on a clock that includes suspend time.

mod beating;
mod shared;
mod wrapper;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::{Group, MemberId, RegistryName, TenureId};
use tenure_core::membership::{EndBy, EndReason, Join, Labels};
use tenure_core::timeout::Timeout;
use tenure_core::timing::{DEFAULT_TTL, Timing};
use tenure_core::verdict::Verdict;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::Context;
use crate::error_copy::copy_of;
use crate::heartbeat::HeartbeatRuntime;
use crate::lease::Leases;
use crate::member_id;
use crate::meters;
use crate::registry::{PATIENCE, Registry};
use crate::session::Sessions;
use beating::Beating;

pub(crate) use shared::Shared;
pub(crate) use wrapper::Wrapper;

/// The pause between two attempts to inherit a tenure.
const INHERIT_AGAIN: Duration = Duration::from_millis(200);
/// How often a call with an unknown outcome is attempted in total, where a retry is safe.
const TRIES: u32 = 3;

/// Options for joining a group.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// The name. A stable name (a pod, a host) supersedes its own previous tenure immediately. With `None`, a unique
    /// name is generated, which changes with each restart ([`crate::member_id`]).
    pub member: Option<MemberId>,
    /// How long the store waits for a beat: 1 s to the store's `max_ttl`. Shorter detects a death sooner, longer
    /// survives longer outages.
    pub ttl: Duration,
    /// Labels of the member.
    pub labels: Labels,
    /// The time between two beats; a third of the ttl when `None`. Two missed beats must fit into the ttl.
    pub interval: Option<Duration>,
    /// Request time-out, after which the outcome counts as unknown; min(500 ms, ttl/6) when `None`.
    pub request_timeout: Option<Duration>,
    /// If set, the tenure ends as `NoProgress` and beats stop when [`Membership::progress`] has not been called for this
    /// long, so that a process with hung work does not appear alive. Its leases are free after its last deadline. The
    /// next progress joins again. Off by default.
    pub progress_within: Option<Duration>,
    /// Whether to join again after the tenure `lapsed` or the store lost its data. When `false`, the membership ends with the
    /// first tenure, whatever ended it.
    pub rejoin: bool,
    /// Whether other processes act under this tenure, as a command wrapped by `tenure join` does. Holdings unknown to
    /// this process are then left alone. By default, a lease unknown to this process is released, because no one works
    /// under it (the reply to its grant was lost).
    pub others_act: bool,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self {
            member: None,
            ttl: DEFAULT_TTL,
            labels: Labels::default(),
            interval: None,
            request_timeout: None,
            progress_within: None,
            rejoin: true,
            others_act: false,
        }
    }
}

impl JoinOptions {
    /// Default options with a name.
    ///
    /// # Errors
    /// `Invalid`, naming the first character that is not allowed.
    pub fn named(member: &str) -> Result<Self> {
        Ok(Self {
            member: Some(MemberId::new(member)?),
            ..Self::default()
        })
    }

    fn timing(&self, max_ttl: Duration) -> Result<Timing> {
        let base = Timing::for_ttl(self.ttl);
        Timing {
            interval: self.interval.unwrap_or(base.interval),
            request_timeout: self.request_timeout.unwrap_or(base.request_timeout),
            ..base
        }
        .check(max_ttl)
    }
}

/// The phase of a membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Sending beats.
    Beating,
    /// Not sending beats, because the user's work makes no progress.
    Paused,
    /// The tenure ended; joining again.
    Rejoining {
        /// `Lapsed`, `NoProgress` or `Unknown`.
        after: EndReason,
    },
    /// Ended for good.
    Stopped {
        /// `Left`, `Superseded`, `Expelled` or `NoProgress`; without [`JoinOptions::rejoin`] any reason.
        reason: EndReason,
    },
}

/// A snapshot of a membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MembershipStatus {
    /// The current tenure, or the last one.
    pub tenure: TenureId,
    /// What it may assume about its tenure.
    pub verdict: Verdict,
    /// Its phase.
    pub phase: Phase,
    /// Failed calls since the last successful one.
    pub failed_in_a_row: u32,
    /// Why the last tenure that has ended did so.
    pub last_end: Option<EndReason>,
    /// How often it rejoined.
    pub rejoins: u64,
    /// Late wake-ups: the process or the machine was paused.
    pub pauses: u64,
    /// Panics of the beat loop. Each is a bug; the loop continued.
    pub panics: u64,
    /// The last error; `None` when healthy.
    pub last_error: Option<String>,
}

/// This process as a member of a group. End it with [`Membership::leave`]; dropping it leaves in the background.
pub struct Membership {
    shared: Arc<Shared>,
    left: watch::Receiver<Option<Result<EndReason>>>,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Membership")
            .field(&*self.shared.status.borrow())
            .finish()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl Membership {
    /// Joins and starts the beats on the runtime of the context.
    pub(crate) async fn join(context: Context, group: Group, options: JoinOptions, patience: Duration) -> Result<Self> {
        let timing = options.timing(context.max_ttl)?;
        if options.progress_within.is_some_and(|within| within.is_zero()) {
            return Err(Error::invalid("progress_within is zero; omit it to disable the check"));
        }
        let member = match options.member {
            Some(member) => member,
            None => member_id::generated(&*context.clock)?,
        };
        let join = Join {
            member,
            ttl: options.ttl,
            labels: options.labels,
        };
        let (mut tries, until) = (1, context.clock.mono() + patience);
        let store = &context.store;
        // Not shorter than the store's own time-out: its not-after depends on that, and a join that arrives after it was
        // given up would supersede its repetition.
        let bound = timing.request_timeout.max(store.answers_within().unwrap_or_default());
        let (joined, sent_at) = loop {
            let sent_at = context.clock.mono();
            let call = store.join(&group, &join, tenure_core::store::Call::default());
            match Timeout::change(bound).step(&*context.clock, &**store, call).await {
                Ok(joined) => break (joined, sent_at),
                // The join may have been applied. Another join supersedes it, so no ghost member remains.
                Err(error) if error.outcome() == Outcome::Unknown && tries < TRIES => tries += 1,
                Err(error) if error.kind() == ErrorKind::Unavailable && context.clock.mono() < until => {
                    tracing::debug!(%group, member = %join.member, error = error.chain(), "not joined yet; retrying");
                }
                Err(error) => return Err(error),
            }
            let pause = jitter(&*context.clock, timing.request_timeout / 2, 50);
            context.clock.sleep(pause).await;
        };
        context.touch(&group);
        let mut shared = Shared::new(context, group, join, timing, options.progress_within, &joined, sent_at);
        shared.rejoin = options.rejoin;
        shared.leases.share(options.others_act);
        Ok(Self::start(Arc::new(shared)))
    }

    /// Acts under the tenure of a wrapper, and follows it when it joins again.
    pub(crate) async fn inherit(context: Context, wrapper: Wrapper, patience: Duration) -> Result<Self> {
        let until = context.clock.mono() + patience;
        let (joined, sent_at) = loop {
            match wrapper.take_over(&context, None).await {
                Err(error) if error.kind() == ErrorKind::Unavailable && context.clock.mono() < until => {
                    tracing::debug!(error = error.chain(), "no tenure to inherit yet; retrying");
                }
                taken => break taken?,
            }
            context.clock.sleep(jitter(&*context.clock, INHERIT_AGAIN, 50)).await;
        };
        let join = Join {
            member: joined.tenure.member().clone(),
            ttl: joined.ttl,
            labels: Labels::default(),
        };
        let (group, timing) = (wrapper.group.clone(), Timing::for_ttl(joined.ttl));
        let mut shared = Shared::new(context, group, join, timing, None, &joined, sent_at);
        shared.leases.share(true);
        shared.wrapper = Some(wrapper);
        Ok(Self::start(Arc::new(shared)))
    }

    fn start(shared: Arc<Shared>) -> Self {
        let (tell, left) = watch::channel(None);
        let runtime = shared.context.runtime.clone();
        let beats = Arc::clone(&shared);
        runtime.spawn(async move {
            let end = run(&beats).await;
            let status = end.as_ref().copied().unwrap_or(EndReason::Left);
            beats.publish(|seen| seen.phase = Phase::Stopped { reason: status });
            tell.send_replace(Some(end));
        });
        runtime.spawn(crate::registry::reassert_claims(Arc::clone(&shared)));
        runtime.spawn(crate::lease::reconcile_leases(Arc::clone(&shared)));
        runtime.spawn(crate::session::reconcile_connections(Arc::clone(&shared)));
        Self { shared, left }
    }

    /// State shared by everything that acts under this membership.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The runtime that sends the beats, for other work that user code must not block.
    #[must_use]
    pub fn heartbeat_runtime(&self) -> HeartbeatRuntime {
        HeartbeatRuntime(self.shared.context.clone())
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// Its name.
    #[must_use]
    pub fn member(&self) -> &MemberId {
        self.shared.member()
    }

    /// The current tenure, or the last one after the end.
    #[must_use]
    pub fn tenure(&self) -> TenureId {
        self.shared.tenure()
    }

    /// Its timing.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.shared.timing
    }

    /// What this process may assume about its tenure now. No I/O. Act as an owner only while it is `Held`.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.shared.verdict()
    }

    /// Until when the verdict stays `Held` without a further confirmation, on the client's clock.
    #[must_use]
    pub fn valid_until(&self) -> Mono {
        self.shared.valid_until()
    }

    /// Cancelled once the tenure is lost: by an answer of the store, or after a whole ttl without a confirmation. A
    /// later tenure, or a late confirmation of this one, has a new token: call again after [`Membership::watch`] shows
    /// `Held`.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.shared.lost()
    }

    /// The current status. No I/O.
    #[must_use]
    pub fn status(&self) -> MembershipStatus {
        let status = self.shared.status.borrow().clone();
        MembershipStatus {
            verdict: self.verdict(),
            tenure: self.tenure(),
            ..status
        }
    }

    /// A watch on the status; a slow reader sees the newest.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<MembershipStatus> {
        self.shared.status.subscribe()
    }

    /// Reports progress of the work (see [`JoinOptions::progress_within`]). Cheap; call it once per round of work.
    pub fn progress(&self) {
        self.shared.note_progress();
    }

    /// Replaces all labels. The tenure and its holdings stay; a later automatic rejoin uses the new labels, also when
    /// this call fails. Call it again after an error: a rejoin that was on its way may have used the old labels.
    ///
    /// # Errors
    /// `Ended` when the tenure is over (the membership may be rejoining), `TooLate`, `Unavailable`.
    pub async fn set_labels(&self, labels: Labels) -> Result<()> {
        let shared = &self.shared;
        shared.keep_labels(labels.clone());
        let tenure = shared.acting_tenure()?;
        let store = &shared.context.store;
        let call = store.set_labels(&shared.group, &tenure, &labels, shared.call(PATIENCE));
        shared.context.act(call).await.inspect_err(|error| shared.heed(error))
    }

    /// A registry in which this membership claims keys. Handles of the same name share state.
    ///
    /// # Errors
    /// `Invalid`, naming the first character that is not allowed.
    pub fn registry(&self, name: &str) -> Result<Registry> {
        Ok(Registry::open(&self.shared, RegistryName::new(name)?))
    }

    /// The leases of this membership.
    #[must_use]
    pub fn leases(&self) -> Leases {
        Leases::open(&self.shared)
    }

    /// The sessions of the group, and the connections of this membership to them.
    #[must_use]
    pub fn sessions(&self) -> Sessions {
        Sessions::open(&self.shared)
    }

    /// Leaves the group: the verdict is `Lost` immediately, then the tenure is ended at the store. Returns the recorded
    /// reason (`Left`, or why it had ended before). Idempotent.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer: the tenure then lapses within its ttl.
    pub async fn leave(&self) -> Result<EndReason> {
        self.shared.leave(EndBy::Leave);
        self.ended().await
    }

    /// Leaves because the work makes no progress; the recorded reason is `NoProgress`. With `stopped`, no process of the
    /// work is left, and its leases are free immediately. Otherwise they are free only after the last deadline.
    ///
    /// # Errors
    /// As [`Membership::leave`].
    pub async fn leave_without_progress(&self, stopped: bool) -> Result<EndReason> {
        self.shared.leave(EndBy::NoProgress { stopped });
        self.ended().await
    }

    /// Waits until the membership has ended for good: left, superseded or expelled, or for any reason without
    /// [`JoinOptions::rejoin`].
    ///
    /// # Errors
    /// As [`Membership::leave`]; `Internal` when its runtime stopped first.
    pub async fn ended(&self) -> Result<EndReason> {
        let mut left = self.left.clone();
        match left.wait_for(Option::is_some).await {
            Ok(end) => match &*end {
                Some(Ok(reason)) => Ok(*reason),
                Some(Err(error)) => Err(copy_of(error)),
                None => Err(Error::new(
                    ErrorKind::Internal,
                    "the membership ended without an outcome",
                )),
            },
            Err(_) => Err(Error::new(
                ErrorKind::Internal,
                "the runtime of the membership has stopped",
            )),
        }
    }
}

/// Beats until the end, and then leaves if the tenure was not ended by the store.
async fn run(shared: &Arc<Shared>) -> Result<EndReason> {
    let mut beating = Beating::new(Arc::clone(shared));
    let stopped = loop {
        match AssertUnwindSafe(beating.run()).catch_unwind().await {
            Ok(stopped) => break stopped,
            Err(_) => {
                tracing::error!(group = %shared.group, tenure = %shared.tenure(), "the beat loop panicked; continuing");
                shared.publish(|status| status.panics += 1);
                beating.recover();
            }
        }
    };
    // Ends everything that acts under the tenure.
    shared.stop.cancel();
    match stopped {
        Some(reason) => Ok(reason),
        None => end_at_store(shared).await,
    }
}

/// Ends the tenure at the store. Local state ends first, so that no work runs under a tenure that others see as ended.
async fn end_at_store(shared: &Arc<Shared>) -> Result<EndReason> {
    let (tenure, by) = (shared.tenure(), shared.leave_by());
    shared.end(by.reason());
    shared.publish(|_| {});
    if shared.wrapper.is_some() {
        // The tenure is the wrapper's to end.
        return Ok(by.reason());
    }
    let bound = shared.timing.request_timeout;
    let (clock, store) = (&*shared.context.clock, &shared.context.store);
    let mut tries = 1;
    loop {
        let call = store.end(&shared.group, &tenure, by, shared.call(bound));
        match Timeout::change(bound).step(clock, &**store, call).await {
            Ok(reason) => {
                tracing::info!(group = %shared.group, %tenure, reason = reason.as_str(), "left");
                if reason == EndReason::NoProgress {
                    meters::ended(&shared.group, reason, 1);
                }
                return Ok(reason);
            }
            Err(error) if tries < TRIES => {
                if error.kind() == ErrorKind::TooLate {
                    shared.store_clock.forget();
                }
                tries += 1;
            }
            Err(error) => {
                tracing::warn!(group = %shared.group, %tenure, error = %error.chain(), "could not leave; the tenure will lapse");
                return Err(error);
            }
        }
        clock.sleep(jitter(clock, bound / 2, 50)).await;
    }
}

#[cfg(test)]
mod tests;
