//! A lease of a Tenure store: who holds it is the primary.
//!
//! Everybody asks for it, one has it, and its beats keep it. The evidence carries the instant up to which nobody else can
//! have the lease if nothing more is heard, and the fencing token. The lease outlives bugs of the task that watches it: it
//! is given up only when [`Contender::give_up`] says so, which is after the child is gone, or when the last handle is
//! dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::{Acquire, LeaseGuard, LeaseName, Membership, Verdict};
use tenure_core::clock::{Clock, jitter, within};
use tenure_core::error::{ErrorKind, Result};
use tokio::sync::watch;

use super::{Evidence, Leadership, Primacy, combine, publish};
use crate::survive;

/// The longest wait between two tries to get the lease.
const RETRY: Duration = Duration::from_secs(1);
/// For how long nothing but a loss is said after it: a change that is overtaken by the next is skipped.
const HEARD: Duration = RETRY;
/// The least time between two looks at a lease that is held.
const LOOK: Duration = Duration::from_millis(100);

/// What the task and the handles share.
#[derive(Debug)]
struct Shared {
    membership: Arc<Membership>,
    lease: LeaseName,
    clock: Arc<dyn Clock>,
    /// Not with the task: a guard that is dropped is given up, and the child may still run when the task panics.
    guard: Mutex<Option<LeaseGuard>>,
    wanted: watch::Sender<bool>,
}

impl Shared {
    fn guard(&self) -> MutexGuard<'_, Option<LeaseGuard>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides whether this node asks for the lease. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Contender {
    shared: Arc<Shared>,
}

impl Contender {
    /// Asks for the lease from now on.
    pub fn contend(&self) {
        self.shared
            .wanted
            .send_if_modified(|wanted| !std::mem::replace(wanted, true));
    }

    /// Asks for the lease no more. One that is held stays held: the child may still run under it.
    pub fn stand_back(&self) {
        self.shared
            .wanted
            .send_if_modified(|wanted| std::mem::replace(wanted, false));
    }

    /// Whether the lease is held, as far as is known here.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.shared.guard().is_some()
    }

    /// Stops asking for the lease, and gives it up when it is held: only when nothing of the child is left. Answers
    /// whether the store has confirmed that within `bound`; when not, the lease becomes free at the end of the tenure.
    /// Under [`guarded`] it is asked for again while the first source says primary.
    pub async fn give_up(&self, bound: Duration) -> bool {
        self.shared.wanted.send_replace(false);
        let Some(guard) = self.shared.guard().take() else {
            return true;
        };
        match within(&*self.shared.clock, bound, guard.release()).await {
            Some(Ok(_)) => true,
            Some(Err(error)) => {
                tracing::warn!(lease = %self.shared.lease, error = %error.chain(), "the lease could not be given up");
                false
            }
            None => false,
        }
    }
}

/// Watches a lease under a membership, on the runtime of the caller. `contending`: ask for it from the start.
///
/// The membership has to beat more often than the child may overlap with its successor: its ttl is how long a successor
/// of a killed node waits.
///
/// # Errors
/// `Invalid` for what is no name of a lease.
///
/// # Panics
/// Outside of a runtime.
pub fn watch(
    membership: Arc<Membership>,
    lease: &str,
    contending: bool,
    clock: &Arc<dyn Clock>,
) -> Result<(Leadership, Contender)> {
    let shared = Arc::new(Shared {
        membership,
        lease: LeaseName::new(lease)?,
        clock: Arc::clone(clock),
        guard: Mutex::new(None),
        wanted: watch::Sender::new(contending),
    });
    let first = Evidence::Uncertain("the lease was not asked for yet".to_owned());
    let (tell, evidence) = watch::channel(first);
    let (broken, watched) = (tell.clone(), Arc::clone(&shared));
    let task = survive::spawn(
        "lease",
        Arc::clone(clock),
        move || keep(Arc::clone(&watched), tell.clone()),
        move |why| publish(&broken, Evidence::Uncertain(why)),
    );
    Ok((Leadership::new(evidence, vec![task]), Contender { shared }))
}

/// A lease as the second guard of another source (V5): it is asked for where and for as long as the other says primary,
/// so that a primary that has lost it gets it again, and a replica does not wait for it. Giving up one that is held stays
/// with whoever stops the child.
#[must_use]
pub fn guarded(clock: &Arc<dyn Clock>, first: Leadership, lease: Leadership, contender: Contender) -> Leadership {
    let said = first.evidence();
    let opener = survive::spawn(
        "lease-opener",
        Arc::clone(clock),
        move || {
            let (mut said, contender) = (said.clone(), contender.clone());
            let mut wanted = contender.shared.wanted.subscribe();
            async move {
                loop {
                    wanted.mark_unchanged();
                    let leads = matches!(*said.borrow_and_update(), Evidence::Primary(_));
                    if leads {
                        contender.contend();
                    } else {
                        contender.stand_back();
                    }
                    tokio::select! {
                        heard = said.changed() => if heard.is_err() {
                            return contender.stand_back();
                        },
                        // It was given up meanwhile. Its sender is in the contender.
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

async fn keep(shared: Arc<Shared>, tell: watch::Sender<Evidence>) {
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
            // Said before the next try: a replica must not be overtaken by a doubt.
            publish(&tell, Evidence::Replica);
        }
        if std::mem::take(&mut had_it) {
            lost_at = Some(shared.clock.mono());
        }
        let wait = if wants {
            let (evidence, wait) = ask(&shared).await;
            let is_heard = lost_at.is_none_or(|at| shared.clock.mono().since(at) >= HEARD);
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

/// What the lease says while it is held; `None` when it is not, or not any more.
fn held(shared: &Shared) -> Option<Evidence> {
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

/// Asks once; answers what that says when nothing better is known, and when to ask again.
async fn ask(shared: &Shared) -> (Option<Evidence>, Duration) {
    let again = |wait: Duration| jitter(&*shared.clock, wait.clamp(LOOK, RETRY), 20);
    match shared.membership.leases().acquire(shared.lease.as_str()).await {
        Ok(Acquire::Granted(guard)) => {
            tracing::info!(lease = %shared.lease, token = %guard.token(), "the lease is ours");
            let mut slot = shared.guard();
            // Under the lock: who gives up looks for it there. A guard that nobody wants any more is dropped, which
            // releases it.
            if *shared.wanted.borrow() {
                *slot = Some(guard);
            }
            (None, Duration::ZERO)
        }
        Ok(Acquire::Held { free_in, .. } | Acquire::Reserved { free_in, .. }) => {
            tracing::debug!(lease = %shared.lease, ?free_in, "the lease is another's");
            (Some(Evidence::Replica), again(free_in))
        }
        Ok(Acquire::Unsettled { retry_in, cause }) => {
            let why = cause.why_no_lease(retry_in);
            (Some(Evidence::Uncertain(why)), again(retry_in))
        }
        // Over for good: somebody else leads under this name, or nobody does.
        Err(error) if matches!(error.kind(), ErrorKind::Ended(reason) if !reason.may_rejoin()) => {
            (Some(Evidence::Replica), again(RETRY))
        }
        Err(error) => {
            let why = format!("the lease {} cannot be asked for: {}", shared.lease, error.chain());
            (Some(Evidence::Uncertain(why)), again(RETRY))
        }
    }
}

#[cfg(test)]
mod tests;
