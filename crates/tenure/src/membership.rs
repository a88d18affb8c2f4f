//! A membership: this process, alive in a group, for as long as it can prove it.
//!
//! Joining starts a loop that beats every third of the ttl. It goes on through every error, and joins again by itself
//! after its tenure `lapsed` or became `unknown` (the store's data was lost). After `superseded` (a newer process of the
//! same name) or `expelled` (an operator) it stops and says so: going on would be a fight.
//!
//! Ask [`Membership::verdict`] before acting as an owner. It needs no I/O and fails closed: trust runs from when the last
//! confirmed beat was *sent*, on a clock that counts suspend.

mod beating;
mod shared;

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
use crate::heart::HeartbeatRuntime;
use crate::lease::Leases;
use crate::member_id;
use crate::registry::Registry;
use crate::session::Sessions;
use beating::Beating;

pub(crate) use shared::Shared;

/// How often a call whose outcome is unknown is tried in all, where trying again is safe.
const TRIES: u32 = 3;

/// How to join a group.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// Under which name. A stable name (a pod, a host) supersedes its own previous life at once; without one, a name is
    /// generated that no other process has, nor this one after a restart ([`crate::member_id`]).
    pub member: Option<MemberId>,
    /// How long the store waits for a beat: 1 s to the store's `max_ttl`. Shorter notices a death sooner, longer
    /// survives longer hiccups.
    pub ttl: Duration,
    /// About the member.
    pub labels: Labels,
    /// The time between two beats; a third of the ttl when `None`. Two missed beats must fit into the ttl.
    pub interval: Option<Duration>,
    /// How long one request may take before its outcome counts as unknown; min(500 ms, ttl/6) when `None`.
    pub request_timeout: Option<Duration>,
    /// When set, beats stop once [`Membership::progress`] has not been called for this long, so that a process whose
    /// work hangs does not look alive. Off by default.
    pub progress_within: Option<Duration>,
    /// Others act under this tenure, too, as a command does that is wrapped by `tenure join`: what the tenure holds that
    /// this process knows nothing of is theirs, and is left alone. Off by default: then a lease that nobody here knows of
    /// is given up, since nobody works under it (its grant was not heard).
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
            others_act: false,
        }
    }
}

impl JoinOptions {
    /// The defaults, under a name.
    ///
    /// # Errors
    /// `Invalid`, naming the first character that a name cannot have.
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

/// What a membership is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Beating.
    Beating,
    /// Not beating, because the user's work makes no progress.
    Paused,
    /// The tenure ended for this reason; beginning a new one.
    Rejoining {
        /// `Lapsed` or `Unknown`.
        after: EndReason,
    },
    /// Over for good, for this reason.
    Stopped {
        /// `Left`, `Superseded` or `Expelled`.
        reason: EndReason,
    },
}

/// A membership at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MembershipStatus {
    /// The current tenure, or the last one.
    pub tenure: TenureId,
    /// What it may believe of itself.
    pub verdict: Verdict,
    /// What it is doing.
    pub phase: Phase,
    /// Failed calls since the last answered one.
    pub failed_in_a_row: u32,
    /// How often it joined again.
    pub rejoins: u64,
    /// How often it woke much too late: the process or the machine was paused.
    pub pauses: u64,
    /// Panics of the beat loop; each is a bug, and survived.
    pub panics: u64,
    /// What went wrong last; `None` while all is well.
    pub last_error: Option<String>,
}

/// This process in a group. [`Membership::leave`] is how it ends well; dropping it tries the same without waiting.
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
    /// Joins, and starts to beat on the runtime of the context.
    pub(crate) async fn join(context: Context, group: Group, options: JoinOptions, patience: Duration) -> Result<Self> {
        let timing = options.timing(context.max_ttl)?;
        if options.progress_within.is_some_and(|within| within.is_zero()) {
            return Err(Error::invalid(
                "progress_within is zero; leave it out to switch the gate off",
            ));
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
        let (joined, sent_at) = loop {
            let sent_at = context.clock.mono();
            let bound = timing.request_timeout;
            let call = context.store.join(&group, &join, tenure_core::store::Call::default());
            match Timeout::change(bound).call(&*context.clock, "the store", call).await {
                Ok(joined) => break (joined, sent_at),
                // It may have been applied. Joining again supersedes that, so no ghost of it stays behind.
                Err(error) if error.outcome() == Outcome::Unknown && tries < TRIES => tries += 1,
                Err(error) if error.kind() == ErrorKind::Unavailable && context.clock.mono() < until => {
                    tracing::debug!(%group, member = %join.member, error = error.chain(), "not joined yet; trying again");
                }
                Err(error) => return Err(error),
            }
            context.clock.sleep(jitter(&*context.clock, bound / 2, 50)).await;
        };
        context.touch(&group);
        let mut shared = Shared::new(context, group, join, timing, options.progress_within, &joined, sent_at);
        shared.leases.share(options.others_act);
        Ok(Self::start(Arc::new(shared)))
    }

    fn start(shared: Arc<Shared>) -> Self {
        let (tell, left) = watch::channel(None);
        let runtime = shared.context.runtime.clone();
        let beats = Arc::clone(&shared);
        runtime.spawn(async move {
            let end = live(&beats).await;
            let status = end.as_ref().copied().unwrap_or(EndReason::Left);
            beats.publish(|seen| seen.phase = Phase::Stopped { reason: status });
            tell.send_replace(Some(end));
        });
        runtime.spawn(crate::registry::keep_asserted(Arc::clone(&shared)));
        runtime.spawn(crate::lease::keep_leases(Arc::clone(&shared)));
        runtime.spawn(crate::session::keep_connections(Arc::clone(&shared)));
        Self { shared, left }
    }

    /// What everything that acts under this membership needs.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The runtime that sends its beats, for other work that must not wait behind user code.
    #[must_use]
    pub fn heartbeat_runtime(&self) -> HeartbeatRuntime {
        HeartbeatRuntime(self.shared.context.clone())
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// The name it joined under.
    #[must_use]
    pub fn member(&self) -> &MemberId {
        self.shared.member()
    }

    /// The current tenure (the last one, after it ended).
    #[must_use]
    pub fn tenure(&self) -> TenureId {
        self.shared.tenure()
    }

    /// The timing it runs with.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.shared.timing
    }

    /// What this process may believe about its tenure now. No I/O. Work as an owner only while it is `Held`.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.shared.verdict()
    }

    /// Until when the verdict stays `Held` if nothing more is heard, on the clock of the client.
    #[must_use]
    pub fn valid_until(&self) -> Mono {
        self.shared.valid_until()
    }

    /// Cancelled once the tenure is lost: by an answer of the store, or by a whole ttl without a confirmation. A later
    /// tenure, or a late confirmation of this one, has a new token: ask again after [`Membership::watch`] shows `Held`.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.shared.lost()
    }

    /// The status now. No I/O.
    #[must_use]
    pub fn status(&self) -> MembershipStatus {
        let status = self.shared.status.borrow().clone();
        MembershipStatus {
            verdict: self.verdict(),
            tenure: self.tenure(),
            ..status
        }
    }

    /// Every change of the status; a slow reader sees the newest.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<MembershipStatus> {
        self.shared.status.subscribe()
    }

    /// Tells that the work goes on (see [`JoinOptions::progress_within`]). Cheap; call it once per round of work.
    pub fn progress(&self) {
        self.shared.note_progress();
    }

    /// A registry in which this membership owns keys. Handles of the same name share what they remember.
    ///
    /// # Errors
    /// `Invalid`, naming the first character that a name cannot have.
    pub fn registry(&self, name: &str) -> Result<Registry> {
        Ok(Registry::open(&self.shared, RegistryName::new(name)?))
    }

    /// The leases of this membership.
    #[must_use]
    pub fn leases(&self) -> Leases {
        Leases::open(&self.shared)
    }

    /// The sessions of the group, and the connections that this membership has to them.
    #[must_use]
    pub fn sessions(&self) -> Sessions {
        Sessions::open(&self.shared)
    }

    /// Leaves: from this call on the verdict is `Lost`, then the tenure is ended at the store. Answers the reason on
    /// record (`Left`, or why it had ended before). Idempotent.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer: the tenure then ends by itself within its ttl.
    pub async fn leave(&self) -> Result<EndReason> {
        self.shared.stop.cancel();
        self.ended().await
    }

    /// Waits until the membership is over for good: left, superseded or expelled.
    ///
    /// # Errors
    /// As [`Membership::leave`]; `Internal` when its runtime has ended before it.
    pub async fn ended(&self) -> Result<EndReason> {
        let mut left = self.left.clone();
        match left.wait_for(Option::is_some).await {
            Ok(end) => match &*end {
                Some(Ok(reason)) => Ok(*reason),
                Some(Err(error)) => Err(copy_of(error)),
                None => Err(Error::new(
                    ErrorKind::Internal,
                    "the end of the membership was not told",
                )),
            },
            Err(_) => Err(Error::new(
                ErrorKind::Internal,
                "the runtime of the membership has ended",
            )),
        }
    }
}

/// Beats until the end, whatever happens, and then leaves if it was not ended by others.
async fn live(shared: &Arc<Shared>) -> Result<EndReason> {
    let mut beating = Beating::new(Arc::clone(shared));
    let stopped = loop {
        match AssertUnwindSafe(beating.run()).catch_unwind().await {
            Ok(stopped) => break stopped,
            Err(_) => {
                tracing::error!(group = %shared.group, tenure = %shared.tenure(), "the beat loop panicked; it goes on");
                shared.publish(|status| status.panics += 1);
                beating.recover();
            }
        }
    };
    // Nothing of ours may run on under a tenure that is over, or is about to be.
    shared.stop.cancel();
    match stopped {
        Some(reason) => Ok(reason),
        None => depart(shared).await,
    }
}

/// Ends the tenure at the store: local state first, so that no work goes on under a tenure that others see ended.
async fn depart(shared: &Arc<Shared>) -> Result<EndReason> {
    let tenure = shared.tenure();
    shared.end(EndReason::Left);
    shared.publish(|_| {});
    let bound = shared.timing.request_timeout;
    let (clock, store) = (&*shared.context.clock, &shared.context.store);
    let mut tries = 1;
    loop {
        let call = store.end(&shared.group, &tenure, EndBy::Leave, shared.call(bound));
        match Timeout::change(bound).step(clock, &**store, call).await {
            Ok(reason) => {
                tracing::info!(group = %shared.group, %tenure, reason = reason.as_str(), "left");
                return Ok(reason);
            }
            Err(error) if tries < TRIES => {
                if error.kind() == ErrorKind::TooLate {
                    shared.store_clock.forget();
                }
                tries += 1;
            }
            Err(error) => {
                tracing::warn!(group = %shared.group, %tenure, error = %error.chain(), "could not leave; it will lapse");
                return Err(error);
            }
        }
        clock.sleep(jitter(clock, bound / 2, 50)).await;
    }
}

#[cfg(test)]
mod tests;
