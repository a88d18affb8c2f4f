//! Asking for leases.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::call::Parts;
use tenure_core::clock::{Mono, jitter, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::{LeaseName, TenureId};
use tenure_core::lease::{AcquireOutcome, Acquired};
use tenure_core::membership::{EndReason, Revision};
use tenure_core::timeout::Timeout;
use tenure_core::verdict::Verdict;

use super::book::{Book, Entry, GivingUp, Grant};
use super::guard::LeaseGuard;
use super::{Acquire, PART, journal, short_answer};
use crate::loops::FLOOR;
use crate::membership::Shared;
use crate::registry::PATIENCE;

/// Asks for leases, each answered by itself.
pub(super) async fn acquire(shared: &Arc<Shared>, leases: &[LeaseName]) -> Result<Vec<Acquire>> {
    let (mut answers, mut done) = (Vec::with_capacity(leases.len()), Parts::default());
    for part in leases.chunks(PART) {
        answers.extend(done.take(acquire_part(shared, part).await)?);
    }
    Ok(answers)
}

async fn acquire_part(shared: &Arc<Shared>, leases: &[LeaseName]) -> Result<Vec<Acquire>> {
    let deadline = shared.now() + PATIENCE;
    let tenure = shared.acting_tenure()?;
    if shared.verdict_of(&tenure) == Verdict::Lost {
        return Err(Error::unavailable(
            "the tenure was not confirmed for a whole ttl; no lease is asked for before it is",
            Outcome::Unchanged,
        ));
    }
    let (mut answers, older) = attempt(shared, &tenure, leases, deadline).await?;
    if older.is_empty() {
        return Ok(answers);
    }
    // Whatever comes of this, the others are granted.
    let names: Vec<LeaseName> = older.iter().map(|place| leases[*place].clone()).collect();
    match attempt(shared, &tenure, &names, deadline).await {
        Ok((anew, _)) => older
            .into_iter()
            .zip(anew)
            .for_each(|(place, answer)| answers[place] = answer),
        Err(error) => {
            let (group, error) = (&shared.group, error.chain());
            tracing::warn!(%group, %tenure, error, "what was given back could not be asked for anew");
        }
    }
    Ok(answers)
}

/// Asks once for each that is to be had, and tells which of them are ours by an older grant. Those are being given back.
async fn attempt(
    shared: &Arc<Shared>,
    tenure: &TenureId,
    leases: &[LeaseName],
    deadline: Mono,
) -> Result<(Vec<Acquire>, Vec<usize>)> {
    let asking = Asking::begin(shared, leases, deadline).await;
    let mut granted = if asking.wanted.is_empty() {
        Vec::new()
    } else {
        let told = shared.leases.sent().told;
        let acquired = ask(shared, tenure, &asking.wanted, deadline).await?;
        take(shared, tenure, &asking, told, acquired)?
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
            Some(_) => granted.next().unwrap_or(Taken::Answer(busy())),
            None => Taken::Answer(busy()),
        };
        match answer {
            Taken::Answer(answer) => answer,
            Taken::Older => {
                older.push(place);
                busy()
            }
        }
    });
    let answers = answers.collect();
    Ok((answers, older))
}

/// The leases that are being asked for, so that nobody else here asks for them or takes them for forgotten.
struct Asking<'a> {
    book: &'a Book,
    /// In the order given, without those that this process has or is asking for already.
    wanted: Vec<LeaseName>,
}

impl<'a> Asking<'a> {
    /// Waits a while for those that are being given up just now.
    async fn begin(shared: &'a Shared, leases: &[LeaseName], deadline: Mono) -> Self {
        let (book, clock) = (&shared.leases, &*shared.context.clock);
        let mut changes = book.changes();
        let settled = async { while book.is_giving_up(leases) && changes.changed().await.is_ok() {} };
        let patience = deadline.since(shared.now()) / 2;
        if book.is_giving_up(leases) {
            within(clock, patience, settled).await;
        }
        let mut state = book.state();
        let wanted: Vec<LeaseName> = leases
            .iter()
            .filter(|lease| !state.entries.contains_key(*lease) && state.asking.insert((*lease).clone()))
            .cloned()
            .collect();
        state.asked = true;
        drop(state);
        Self { book, wanted }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.book.state();
        for lease in &self.wanted {
            state.asking.remove(lease);
        }
    }
}

/// Asks the store until it answers or the time is over: asking again for what was granted unheard tells its token.
async fn ask(shared: &Shared, tenure: &TenureId, wanted: &[LeaseName], deadline: Mono) -> Result<Acquired> {
    let clock = &*shared.context.clock;
    let attempt = (shared.timing().request_timeout * 2).min(PATIENCE);
    let mut act = shared.act(wanted.len(), attempt);
    let mut unheard = false;
    loop {
        let bound = attempt.min(deadline.since(shared.now()));
        act.again(shared.now() + bound);
        let call = shared.call(bound);
        let store = &shared.context.store;
        let asked = store.acquire(&shared.group, tenure, wanted, call);
        let error = match Timeout::change(bound).steps(clock, &**store, wanted.len(), asked).await {
            Ok(acquired) if acquired.outcomes.len() == wanted.len() => {
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

/// What became of the answer for one lease.
enum Taken {
    /// This is what it came to.
    Answer(Acquire),
    /// It is ours by a grant that is older than this call, of which nobody here knows.
    Older,
}

/// Enters what was granted into the book. `told` is the number that was known before it was asked for.
fn take(
    shared: &Arc<Shared>,
    tenure: &TenureId,
    asking: &Asking<'_>,
    told: Revision,
    acquired: Acquired,
) -> Result<Vec<Taken>> {
    let outcomes = asking.wanted.iter().zip(acquired.outcomes);
    outcomes
        .map(|(lease, outcome)| {
            Ok(Taken::Answer(match outcome {
                AcquireOutcome::Granted { token, from } => {
                    let grant = Grant::new(lease.clone(), token, tenure.clone());
                    Acquire::Granted(enter(shared, grant, from.as_ref())?)
                }
                AcquireOutcome::Kept { token } => {
                    let grant = Grant::new(lease.clone(), token, tenure.clone());
                    if token.get() <= told.0 && !shared.leases.others_act {
                        shared.leases.give_back_older(shared, grant);
                        return Ok(Taken::Older);
                    }
                    Acquire::Granted(enter(shared, grant, None)?)
                }
                AcquireOutcome::Held { by, free_in } => Acquire::Held { by, free_in },
                AcquireOutcome::Reserved { to, free_in } => Acquire::Reserved { to, free_in },
                AcquireOutcome::Unsettled { retry_in, cause } => Acquire::Unsettled { retry_in, cause },
            }))
        })
        .collect()
}

fn enter(shared: &Arc<Shared>, grant: Arc<Grant>, from: Option<&TenureId>) -> Result<LeaseGuard> {
    let entered = shared.enter(&grant.tenure, |book| {
        let entry = Entry {
            grant: Arc::clone(&grant),
            giving_up: None,
        };
        book.state().entries.insert(grant.lease.clone(), entry);
    });
    if !entered {
        // It goes to the janitor with everything else of that tenure.
        return Err(Error::ended(&grant.tenure, EndReason::Unknown));
    }
    journal::acquired(&shared.group, &grant, from, shared.timing().ttl);
    let guard = LeaseGuard::new(shared, grant);
    if guard.verdict() == Verdict::Lost {
        tracing::debug!(?guard, "granted too late to be held");
    }
    Ok(guard)
}

impl Book {
    /// The store says that a lease is ours, by a grant from before a number that it told us since, and nobody here has
    /// it: we gave it up, and the store lost the end of its data with that. Somebody else may have worked under a higher
    /// token meanwhile, so it goes back, to be granted under a new one.
    fn give_back_older(&self, shared: &Shared, grant: Arc<Grant>) {
        let (group, lease, token) = (self.group(), &grant.lease, grant.token.get());
        tracing::warn!(%group, tenure = %grant.tenure, %lease, token, "an older grant is alive again; giving it back");
        grant.lost.cancel();
        shared.enter(&grant.tenure, |book| {
            let entry = Entry {
                grant: Arc::clone(&grant),
                giving_up: Some(GivingUp::default()),
            };
            book.state().entries.insert(grant.lease.clone(), entry);
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
