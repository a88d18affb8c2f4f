//! Acquiring a lease with a wait.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::LeaseName;
use tenure_core::lease::{self as core, Acquired};

use super::{PendingAcquire, Recorded, confirmed_tenure, take, unconfirmed};
use crate::heartbeat::run_on;
use crate::lease::{Acquire, AcquireOptions, Waited, short_answer};
use crate::loops::FLOOR;
use crate::membership::Shared;
use crate::registry::PATIENCE;

/// Waits for a lease. An unavailable store is asked again while the wait lasts: the place in the queue, if there is one, is
/// kept.
pub(in crate::lease) async fn acquire_waiting(
    shared: &Arc<Shared>,
    lease: &LeaseName,
    options: AcquireOptions,
) -> Result<Acquire> {
    let deadline = shared.now() + options.wait;
    loop {
        let error = match attempt(shared, lease, options, deadline).await {
            Ok(Some(answer)) => return Ok(answer),
            // We held it by an older grant, which is being released.
            Ok(None) => continue,
            Err(error) => error,
        };
        let pause = jitter(&*shared.context.clock, PATIENCE / 8, 50).max(FLOOR);
        if !error.is_unavailable() || deadline.since(shared.now()) <= pause {
            return Err(error);
        }
        shared.context.clock.sleep(pause).await;
    }
}

/// One request. `None` if we hold the lease by an older grant that has no guard here.
async fn attempt(
    shared: &Arc<Shared>,
    lease: &LeaseName,
    options: AcquireOptions,
    deadline: Mono,
) -> Result<Option<Acquire>> {
    let lost = shared.lost();
    let tenure = confirmed_tenure(shared)?;
    let wanted = std::slice::from_ref(lease);
    let asking = PendingAcquire::begin(shared, wanted, shared.now() + PATIENCE).await;
    if asking.wanted.is_empty() {
        return Ok(Some(Acquire::Held {
            by: tenure,
            free_in: shared.pace(),
        }));
    }
    let known = shared.leases.sent().known;
    let act = shared.waiting_act();
    let acquire = core::Acquire {
        holders: options.holders,
        seen: known,
        ..core::Acquire::new(tenure.clone(), wanted.to_vec())
    };
    let waited = tokio::select! {
        biased;
        waited = wait(shared, acquire, deadline.since(shared.now())) => waited?,
        // The place ends with the tenure.
        () = lost.cancelled() => return Err(confirmed_tenure(shared).err().unwrap_or_else(unconfirmed)),
    };
    let acquired: Acquired = match waited {
        Waited::Answered(acquired) if acquired.outcomes.iter().any(|outcome| outcome.token().is_some()) => {
            shared.heed_answer(act.answered(acquired.before, acquired.revision));
            acquired
        }
        Waited::Answered(acquired) | Waited::Over(acquired) => acquired,
        Waited::Replaced => {
            let message = format!("a later request of the tenure {tenure} waits for the lease {lease}");
            return Err(Error::new(ErrorKind::Held, message));
        }
    };
    let mut answers = take(shared, &tenure, &asking, known, acquired)?;
    match answers.pop().ok_or_else(short_answer)? {
        Recorded::Answer(answer) => Ok(Some(answer)),
        Recorded::Older => Ok(None),
    }
}

/// Waits on the heartbeat runtime: a blocked user runtime must not miss the turn.
async fn wait(shared: &Shared, acquire: core::Acquire, within: Duration) -> Result<Waited> {
    let (waits, group) = (shared.context.waits.clone(), shared.group.clone());
    let call = shared.call(PATIENCE);
    let waiting = async move { waits.acquire(&group, acquire, within, call).await };
    run_on(&shared.context.runtime, waiting).await?
}
