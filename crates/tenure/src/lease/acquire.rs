//! Acquiring leases.

mod wait;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::call::Parts;
use tenure_core::clock::{Mono, jitter, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::{LeaseName, TenureId};
use tenure_core::lease::{self as core, AcquireOutcome, Acquired, Holders};
use tenure_core::membership::{EndReason, Revision};
use tenure_core::timeout::Timeout;
use tenure_core::verdict::Verdict;

use super::guard::LeaseGuard;
use super::table::{Grant, LeaseEntry, LeaseTable, PendingRelease};
use super::{Acquire, PART, journal, short_answer};
use crate::loops::FLOOR;
use crate::membership::Shared;
use crate::registry::PATIENCE;

pub(super) use wait::acquire_waiting;

/// Tries to acquire leases, each independently.
pub(super) async fn acquire(shared: &Arc<Shared>, leases: &[LeaseName], holders: Holders) -> Result<Vec<Acquire>> {
    let (mut answers, mut done) = (Vec::with_capacity(leases.len()), Parts::default());
    for part in leases.chunks(PART) {
        answers.extend(done.take(acquire_part(shared, part, holders).await)?);
    }
    Ok(answers)
}

async fn acquire_part(shared: &Arc<Shared>, leases: &[LeaseName], holders: Holders) -> Result<Vec<Acquire>> {
    let deadline = shared.now() + PATIENCE;
    let tenure = confirmed_tenure(shared)?;
    let (mut answers, older) = attempt(shared, &tenure, leases, holders, deadline).await?;
    if older.is_empty() {
        return Ok(answers);
    }
    // An error here does not affect the other leases, which are granted.
    let names: Vec<LeaseName> = older.iter().map(|place| leases[*place].clone()).collect();
    match attempt(shared, &tenure, &names, holders, deadline).await {
        Ok((anew, _)) => older
            .into_iter()
            .zip(anew)
            .for_each(|(place, answer)| answers[place] = answer),
        Err(error) => {
            let (group, error) = (&shared.group, error.chain());
            tracing::warn!(%group, %tenure, error, "leases of an older grant were released but not acquired again");
        }
    }
    Ok(answers)
}

/// The tenure to acquire under.
fn confirmed_tenure(shared: &Shared) -> Result<TenureId> {
    let tenure = shared.acting_tenure()?;
    if shared.verdict_of(&tenure) == Verdict::Lost {
        return Err(unconfirmed());
    }
    Ok(tenure)
}

fn unconfirmed() -> Error {
    Error::unavailable(
        "the tenure was not confirmed for a whole ttl; acquire again after the next confirmed beat",
        Outcome::Unchanged,
    )
}

/// One acquire. Also returns the indices of leases that we hold by an older, unknown grant. Those are being released.
async fn attempt(
    shared: &Arc<Shared>,
    tenure: &TenureId,
    leases: &[LeaseName],
    holders: Holders,
    deadline: Mono,
) -> Result<(Vec<Acquire>, Vec<usize>)> {
    let asking = PendingAcquire::begin(shared, leases, deadline).await;
    let mut granted = if asking.wanted.is_empty() {
        Vec::new()
    } else {
        let known = shared.leases.sent().known;
        let acquire = core::Acquire {
            holders,
            seen: known,
            ..core::Acquire::new(tenure.clone(), asking.wanted.clone())
        };
        let waits = &shared.context.waits;
        let mut earlier = waits.take_over(&shared.group, tenure, &asking.wanted).await;
        let acquired = ask(shared, acquire, deadline).await?;
        let outcomes = asking.wanted.iter().zip(&acquired.outcomes);
        earlier.granted(
            outcomes
                .filter(|(_, outcome)| outcome.token().is_some())
                .map(|(lease, _)| lease),
        );
        take(shared, tenure, &asking, known, acquired)?
    }
    .into_iter();
    let busy = || Acquire::Held {
        by: tenure.clone(),
        free_in: shared.pace(),
    };
    let mut wanted = asking.wanted.iter().peekable();
    let mut older = Vec::new();
    let answers = leases.iter().enumerate().map(|(place, lease)| {
        let answer = match wanted.next_if(|next| *next == lease) {
            Some(_) => granted.next().unwrap_or(Recorded::Answer(busy())),
            None => Recorded::Answer(busy()),
        };
        match answer {
            Recorded::Answer(answer) => answer,
            Recorded::Older => {
                older.push(place);
                busy()
            }
        }
    });
    let answers = answers.collect();
    Ok((answers, older))
}

/// Marks leases as being acquired, so that no other task acquires them or treats their grants as unknown.
struct PendingAcquire<'a> {
    table: &'a LeaseTable,
    /// In the order given, without those that this process holds or is acquiring already.
    wanted: Vec<LeaseName>,
}

impl<'a> PendingAcquire<'a> {
    /// First waits a while for pending releases of these leases.
    async fn begin(shared: &'a Shared, leases: &[LeaseName], deadline: Mono) -> Self {
        let (table, clock) = (&shared.leases, &*shared.context.clock);
        let mut changes = table.changes();
        let settled = async { while table.is_giving_up(leases) && changes.changed().await.is_ok() {} };
        let patience = deadline.since(shared.now()) / 2;
        if table.is_giving_up(leases) {
            within(clock, patience, settled).await;
        }
        let mut state = table.state();
        let wanted: Vec<LeaseName> = leases
            .iter()
            .filter(|lease| !state.entries.contains_key(*lease) && state.asking.insert((*lease).clone()))
            .cloned()
            .collect();
        state.asked = true;
        drop(state);
        Self { table, wanted }
    }
}

impl Drop for PendingAcquire<'_> {
    fn drop(&mut self) {
        let mut state = self.table.state();
        for lease in &self.wanted {
            state.asking.remove(lease);
        }
    }
}

/// Calls the store until it answers or the time is over. A retry returns the token of a grant whose reply was lost.
async fn ask(shared: &Shared, acquire: core::Acquire, deadline: Mono) -> Result<Acquired> {
    let wanted = acquire.leases.len();
    let clock = &*shared.context.clock;
    let attempt = (shared.timing().request_timeout * 2).min(PATIENCE);
    let mut act = shared.act(wanted, attempt);
    let mut unheard = false;
    loop {
        let bound = attempt.min(deadline.since(shared.now()));
        act.again(shared.now() + bound);
        let call = shared.call(bound);
        let store = &shared.context.store;
        let asked = store.acquire_with(&shared.group, acquire.clone(), call);
        let error = match Timeout::change(bound).steps(clock, &**store, wanted, asked).await {
            Ok(acquired) if acquired.outcomes.len() == wanted => {
                shared.heed_answer(act.answered(acquired.before, acquired.revision));
                return Ok(acquired);
            }
            Ok(_) => return Err(short_answer()),
            Err(error) => error,
        };
        shared.heed(&error);
        unheard |= error.outcome() == Outcome::Unknown;
        let pause = jitter(clock, attempt / 8, 50).max(FLOOR);
        let may_try = unheard && error.is_unavailable() || error.kind() == ErrorKind::TooLate;
        if !may_try || deadline.since(shared.now()) < pause + Duration::from_millis(1) {
            act.failed(&error, unheard);
            return Err(error);
        }
        clock.sleep(pause).await;
    }
}

/// The processed result for one lease.
enum Recorded {
    /// Final.
    Answer(Acquire),
    /// We hold it by a grant older than this call that has no guard here.
    Older,
}

/// Records the grants in the table. `known` is the revision known before the call.
fn take(
    shared: &Arc<Shared>,
    tenure: &TenureId,
    asking: &PendingAcquire<'_>,
    known: Revision,
    acquired: Acquired,
) -> Result<Vec<Recorded>> {
    let outcomes = asking.wanted.iter().zip(acquired.outcomes);
    outcomes
        .map(|(lease, outcome)| {
            if let (Some(token), Some(place), Some(generation)) =
                (outcome.token(), outcome.place(), outcome.generation())
            {
                let grant = Grant::new(lease.clone(), token, (place, generation), tenure.clone());
                // The answer to a request that waited does not say whether the grant is new.
                if token.get() <= known.0 && !shared.leases.others_act {
                    shared.leases.release_older(shared, grant);
                    return Ok(Recorded::Older);
                }
                let from = match &outcome {
                    AcquireOutcome::Granted { from, .. } => from.as_ref(),
                    _ => None,
                };
                return Ok(Recorded::Answer(Acquire::Granted(enter(shared, grant, from)?)));
            }
            Ok(Recorded::Answer(match outcome {
                AcquireOutcome::Held { by, free_in } => Acquire::Held { by, free_in },
                AcquireOutcome::Reserved { to, free_in } => Acquire::Reserved { to, free_in },
                AcquireOutcome::Unsettled { retry_in, cause } => Acquire::Unsettled { retry_in, cause },
                AcquireOutcome::HoldersDiffer { holders } => Acquire::HoldersDiffer { holders },
                AcquireOutcome::QueueFull { waiting } => Acquire::QueueFull { waiting },
                other => {
                    let message = format!("the lease {lease} was answered {other:?}, which was not asked for");
                    return Err(Error::new(ErrorKind::Internal, message));
                }
            }))
        })
        .collect()
}

fn enter(shared: &Arc<Shared>, grant: Arc<Grant>, from: Option<&TenureId>) -> Result<LeaseGuard> {
    let entered = shared.enter(&grant.tenure, |table| {
        let entry = LeaseEntry {
            grant: Arc::clone(&grant),
            giving_up: None,
        };
        table.state().entries.insert(grant.lease.clone(), entry);
    });
    if !entered {
        // The janitor releases it with the rest of that tenure.
        return Err(Error::ended(&grant.tenure, EndReason::Unknown));
    }
    journal::acquired(&shared.group, &grant, from, shared.timing().ttl);
    let guard = LeaseGuard::new(shared, grant);
    if guard.verdict() == Verdict::Lost {
        tracing::debug!(?guard, "granted too late to be held");
    }
    Ok(guard)
}

impl LeaseTable {
    /// Releases a grant that the store has for us although it is older than a revision we have seen and has no guard
    /// here. We released it, and the store lost that write. Another member may have held a higher token since, so the
    /// lease must be granted again under a new token.
    fn release_older(&self, shared: &Shared, grant: Arc<Grant>) {
        let (group, lease, token) = (self.group(), &grant.lease, grant.token.get());
        tracing::warn!(%group, tenure = %grant.tenure, %lease, token, "the store restored an older grant; releasing it");
        grant.lost.cancel();
        shared.enter(&grant.tenure, |table| {
            let entry = LeaseEntry {
                grant: Arc::clone(&grant),
                giving_up: Some(PendingRelease::default()),
            };
            table.state().entries.insert(grant.lease.clone(), entry);
        });
        self.changed();
        self.work.notify_one();
    }

    fn is_giving_up(&self, leases: &[LeaseName]) -> bool {
        let state = self.state();
        leases
            .iter()
            .filter_map(|lease| state.entries.get(lease))
            .any(|entry| entry.giving_up.is_some())
    }
}
