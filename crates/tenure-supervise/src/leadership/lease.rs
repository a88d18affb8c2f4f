//! Leader election by a lease of a Tenure store: the holder is the primary.
//!
//! All candidates acquire the same lease; one gets it, and its beats renew it. The evidence carries the fencing token
//! and the instant until which no other node can hold the lease if no beat succeeds. The lease survives a panic of the
//! task that watches it: it is released only by [`LeaseCandidate::release`], after the child is gone, or when the last
//! handle is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::{Acquire, LeaseGuard, LeaseName, Membership, Verdict};
use tenure_core::clock::{Clock, jitter, within};
use tenure_core::error::{ErrorKind, Result};
use tokio::sync::watch;

use super::{Evidence, Leadership, Primacy, combine, publish};
use crate::restart;

/// The longest wait between two attempts to acquire the lease.
const RETRY: Duration = Duration::from_secs(1);
/// After a loss, only the loss is published for this long, because receivers skip overwritten values.
const LOSS_HOLD: Duration = RETRY;
/// The shortest interval between two checks of a held lease.
const LOOK: Duration = Duration::from_millis(100);

/// The state shared by the task and the handles.
#[derive(Debug)]
struct CandidateLease {
    membership: Arc<Membership>,
    lease: LeaseName,
    clock: Arc<dyn Clock>,
    /// Not owned by the task: dropping a guard releases the lease, and the child may still run when the task panics.
    guard: Mutex<Option<LeaseGuard>>,
    wanted: watch::Sender<bool>,
}

impl CandidateLease {
    fn guard(&self) -> MutexGuard<'_, Option<LeaseGuard>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A candidate for the lease: controls whether this node tries to acquire it. Clones share state.
#[derive(Debug, Clone)]
pub struct LeaseCandidate {
    shared: Arc<CandidateLease>,
}

impl LeaseCandidate {
    /// Starts trying to acquire the lease.
    pub fn campaign(&self) {
        self.shared
            .wanted
            .send_if_modified(|wanted| !std::mem::replace(wanted, true));
    }

    /// Stops trying to acquire the lease. A held lease stays held: the child may still run under it.
    pub fn withdraw(&self) {
        self.shared
            .wanted
            .send_if_modified(|wanted| std::mem::replace(wanted, false));
    }

    /// Whether the lease is held, as far as is known here.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.shared.guard().is_some()
    }

    /// Stops the attempts and releases a held lease. Call it only when none of the child's processes is left. Returns
    /// whether the store confirmed within `bound`; otherwise the lease becomes free at the end of the tenure. Under
    /// [`guarded`] the attempts resume while the first source says primary.
    pub async fn release(&self, bound: Duration) -> bool {
        self.shared.wanted.send_replace(false);
        let Some(guard) = self.shared.guard().take() else {
            return true;
        };
        match within(&*self.shared.clock, bound, guard.release()).await {
            Some(Ok(_)) => true,
            Some(Err(error)) => {
                tracing::warn!(lease = %self.shared.lease, error = %error.chain(), "the lease could not be released");
                false
            }
            None => false,
        }
    }
}

/// Watches a lease under a membership, on the caller's runtime. `campaigning`: try to acquire it from the start.
///
/// The beat interval of the membership must be shorter than the overlap that the child tolerates. Its ttl is the wait
/// of a successor after this node is killed.
///
/// # Errors
/// `Invalid` for an invalid lease name.
///
/// # Panics
/// Outside of a runtime.
pub fn watch(
    membership: Arc<Membership>,
    lease: &str,
    campaigning: bool,
    clock: &Arc<dyn Clock>,
) -> Result<(Leadership, LeaseCandidate)> {
    let shared = Arc::new(CandidateLease {
        membership,
        lease: LeaseName::new(lease)?,
        clock: Arc::clone(clock),
        guard: Mutex::new(None),
        wanted: watch::Sender::new(campaigning),
    });
    let first = Evidence::Uncertain("no attempt to acquire the lease yet".to_owned());
    let (tell, evidence) = watch::channel(first);
    let (broken, watched) = (tell.clone(), Arc::clone(&shared));
    let task = restart::spawn(
        "lease",
        Arc::clone(clock),
        move || keep(Arc::clone(&watched), tell.clone()),
        move |why| publish(&broken, Evidence::Uncertain(why)),
    );
    Ok((Leadership::new(evidence, vec![task]), LeaseCandidate { shared }))
}

/// Makes a lease the second guard of another source (V5). The candidate tries to acquire it while the first source says
/// primary, so a primary that lost the lease gets it back, and a replica does not wait for it. Releasing a held lease
/// is left to the caller that stops the child.
#[must_use]
pub fn guarded(clock: &Arc<dyn Clock>, first: Leadership, lease: Leadership, candidate: LeaseCandidate) -> Leadership {
    let said = first.evidence();
    let opener = restart::spawn(
        "lease-opener",
        Arc::clone(clock),
        move || {
            let (mut said, candidate) = (said.clone(), candidate.clone());
            let mut wanted = candidate.shared.wanted.subscribe();
            async move {
                loop {
                    wanted.mark_unchanged();
                    let leads = matches!(*said.borrow_and_update(), Evidence::Primary(_));
                    if leads {
                        candidate.campaign();
                    } else {
                        candidate.withdraw();
                    }
                    tokio::select! {
                        heard = said.changed() => if heard.is_err() {
                            return candidate.withdraw();
                        },
                        // The lease was released in the meantime. The candidate keeps the sender alive.
                        _ = wanted.changed() => {}
                    }
                }
            }
        },
        |_| {},
    );
    let mut both = combine(clock, first, lease);
    both.tasks.push(opener);
    both
}

async fn keep(shared: Arc<CandidateLease>, tell: watch::Sender<Evidence>) {
    let mut wanted = shared.wanted.subscribe();
    let (mut had_it, mut lost_at) = (false, None);
    loop {
        let wants = *wanted.borrow_and_update();
        if let Some(evidence) = held(&shared) {
            (had_it, lost_at) = (true, None);
            publish(&tell, evidence);
            let lost = shared.guard().as_ref().map(LeaseGuard::lost);
            let look = (shared.membership.timing().interval / 4).max(LOOK);
            tokio::select! {
                () = async { if let Some(lost) = lost { lost.cancelled().await } } => {}
                () = shared.clock.sleep(look) => {}
                _ = wanted.changed() => {}
            }
            continue;
        }
        if !wants || had_it {
            // Published before the next attempt, so that a later *uncertain* cannot overwrite it unseen.
            publish(&tell, Evidence::Replica);
        }
        if std::mem::take(&mut had_it) {
            lost_at = Some(shared.clock.mono());
        }
        let wait = if wants {
            let (evidence, wait) = acquire(&shared).await;
            let is_heard = lost_at.is_none_or(|at| shared.clock.mono().since(at) >= LOSS_HOLD);
            if let Some(evidence) = evidence.filter(|evidence| is_heard || *evidence == Evidence::Replica) {
                publish(&tell, evidence);
            }
            wait
        } else {
            Duration::MAX
        };
        tokio::select! {
            () = sleep(&*shared.clock, wait) => {}
            _ = wanted.changed() => {}
        }
    }
}

async fn sleep(clock: &dyn Clock, wait: Duration) {
    if wait == Duration::MAX {
        std::future::pending::<()>().await;
    }
    if !wait.is_zero() {
        clock.sleep(wait).await;
    }
}

/// The evidence of a held lease. `None` when it is not held.
fn held(shared: &CandidateLease) -> Option<Evidence> {
    let mut slot = shared.guard();
    let guard = slot.as_ref()?;
    match guard.verdict() {
        Verdict::Held => Some(Evidence::Primary(Primacy {
            until: Some(guard.valid_until()),
            term: Some(guard.tenure().term()),
            token: Some(guard.token()),
        })),
        Verdict::Uncertain => Some(Evidence::Uncertain(format!(
            "the lease {} is not confirmed",
            shared.lease
        ))),
        Verdict::Lost => {
            tracing::warn!(lease = %shared.lease, token = %guard.token(), "the lease is lost");
            *slot = None;
            None
        }
    }
}

/// Makes one attempt. Returns the evidence, if any, and the wait before the next attempt.
async fn acquire(shared: &CandidateLease) -> (Option<Evidence>, Duration) {
    let again = |wait: Duration| jitter(&*shared.clock, wait.clamp(LOOK, RETRY), 20);
    match shared.membership.leases().acquire(shared.lease.as_str()).await {
        Ok(Acquire::Granted(guard)) => {
            tracing::info!(lease = %shared.lease, token = %guard.token(), "acquired the lease");
            let mut slot = shared.guard();
            // Under the lock, because `release` takes the guard from this slot. A guard that is no longer wanted is
            // dropped, which releases it.
            if *shared.wanted.borrow() {
                *slot = Some(guard);
            }
            (None, Duration::ZERO)
        }
        Ok(Acquire::Held { free_in, .. } | Acquire::Reserved { free_in, .. }) => {
            tracing::debug!(lease = %shared.lease, ?free_in, "another member holds the lease");
            (Some(Evidence::Replica), again(free_in))
        }
        Ok(Acquire::Unsettled { retry_in, cause }) => {
            let why = cause.why_no_lease(retry_in);
            (Some(Evidence::Uncertain(why)), again(retry_in))
        }
        Ok(refused @ (Acquire::HoldersDiffer { .. } | Acquire::QueueFull { .. })) => {
            let why = format!("the lease {} is not exclusive: {refused:?}", shared.lease);
            (Some(Evidence::Uncertain(why)), again(RETRY))
        }
        // Ended for good: a later tenure under this name may lead, or none.
        Err(error) if matches!(error.kind(), ErrorKind::Ended(reason) if !reason.may_rejoin()) => {
            (Some(Evidence::Replica), again(RETRY))
        }
        Err(error) => {
            let why = format!("the lease {} cannot be acquired: {}", shared.lease, error.chain());
            (Some(Evidence::Uncertain(why)), again(RETRY))
        }
    }
}

#[cfg(test)]
mod tests;
