//! Asking for connections.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::call::Parts;
use tenure_core::clock::{Mono, jitter, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::TenureId;
use tenure_core::session::{Attach as Wanted, AttachOutcome, Attached, check_attaches};
use tenure_core::timeout::Timeout;

use super::book::{Book, Place, Seat};
use super::connection::Connection;
use super::{Attach, PART, short_answer};
use crate::loops::FLOOR;
use crate::membership::Shared;
use crate::registry::PATIENCE;

/// Attaches connections, each answered by itself.
pub(super) async fn attach(shared: &Arc<Shared>, wanted: &[Wanted]) -> Result<Vec<Attach>> {
    check_attaches(wanted)?;
    let (mut answers, mut done) = (Vec::with_capacity(wanted.len()), Parts::default());
    for part in wanted.chunks(PART) {
        answers.extend(done.take(attach_part(shared, part).await)?);
    }
    Ok(answers)
}

async fn attach_part(shared: &Arc<Shared>, wanted: &[Wanted]) -> Result<Vec<Attach>> {
    let deadline = shared.now() + PATIENCE;
    // Before the tenure is looked at: a new one is a doubt about what was attached under the one before.
    let noted = shared.connections.note();
    let tenure = shared.acting_tenure()?;
    let mut asking = Asking::begin(shared, wanted, &tenure, deadline).await?;
    let heard = ask(shared, &tenure, wanted, &mut asking, deadline).await?;
    let noted = Some(noted).filter(|_| !heard.doubted);
    let late = heard.late.filter(|late| *late > shared.now());
    let outcomes = wanted.iter().zip(heard.attached.outcomes);
    let answers = outcomes.map(|(wanted, outcome)| match outcome {
        AttachOutcome::Attached { how, session } => {
            let seat = Seat::new(wanted, &session);
            shared.connections.enter(&seat, &tenure, session.epoch, late, noted);
            Attach::Attached(Connection::new(shared, seat, how, session))
        }
        AttachOutcome::AliasTaken { by } => Attach::AliasTaken { by },
        AttachOutcome::Gone => Attach::Gone,
        AttachOutcome::Full { of } => Attach::Full { of },
    });
    Ok(answers.collect())
}

/// The answer, and what is not certain about it.
struct Heard {
    attached: Attached,
    /// The store may have lost it since.
    doubted: bool,
    /// An attempt before it was not heard, and may take effect until then.
    late: Option<Mono>,
}

/// Asks the store until it answers or the time is over: asking again for what was attached unheard tells its epoch.
async fn ask(
    shared: &Shared,
    tenure: &TenureId,
    wanted: &[Wanted],
    asking: &mut Asking<'_>,
    deadline: Mono,
) -> Result<Heard> {
    let clock = &*shared.context.clock;
    let attempt = (shared.timing().request_timeout * 2).min(PATIENCE);
    let mut act = shared.act(wanted.len(), attempt);
    let mut late = None;
    loop {
        let bound = attempt.min(deadline.since(shared.now()));
        let given_up_at = shared.now() + bound;
        act.again(given_up_at);
        asking.unheard = asking.unheard.max(Some(given_up_at));
        let call = shared.call(bound);
        let asked = shared.context.store.attach(&shared.group, tenure, wanted, call);
        let error = match Timeout::change(bound).call(clock, "the store", asked).await {
            Ok(attached) if attached.outcomes.len() == wanted.len() => {
                let doubted = shared.heed_answer(act.answered(attached.before, attached.revision));
                asking.unheard = None;
                return Ok(Heard {
                    attached,
                    doubted,
                    late,
                });
            }
            Ok(_) => return Err(short_answer()),
            Err(error) => error,
        };
        shared.heed(&error);
        let may_have = error.outcome() == Outcome::Unknown || wanted.len() > tenure_core::sweep::BATCH as usize;
        if may_have {
            late = Some(given_up_at);
        }
        let pause = jitter(clock, attempt / 8, 50).max(FLOOR);
        let may_try = late.is_some() && error.is_unavailable() || error.kind() == ErrorKind::TooLate;
        if !may_try || deadline.since(shared.now()) < pause + Duration::from_millis(1) {
            act.failed(&error, late.is_some());
            asking.unheard = late;
            return Err(error);
        }
        clock.sleep(pause).await;
    }
}

/// The connections that are being asked for. Dropped without an answer, they are given back once the call can no longer
/// take effect.
struct Asking<'a> {
    book: &'a Book,
    places: Vec<Place>,
    tenure: &'a TenureId,
    /// Until when it may take effect unheard.
    unheard: Option<Mono>,
}

impl<'a> Asking<'a> {
    /// Waits a while for those that are just being detached without an epoch: that could hit the new attach.
    async fn begin(shared: &'a Shared, wanted: &[Wanted], tenure: &'a TenureId, deadline: Mono) -> Result<Self> {
        let (book, clock) = (&shared.connections, &*shared.context.clock);
        let places: Vec<Place> = wanted
            .iter()
            .map(|wanted| (wanted.session.clone(), wanted.connection.clone()))
            .collect();
        let patience = deadline.since(shared.now()) / 2;
        let asked = within(clock, patience, async {
            loop {
                let settled = book.settled.notified();
                let Some(blind) = book.start_asking(&places, shared.now()) else {
                    return;
                };
                tokio::select! { biased; () = settled => {}, () = clock.sleep(blind) => {} }
            }
        });
        if asked.await.is_none() {
            return Err(Error::unavailable(
                "the connection is being detached, and the store does not answer",
                Outcome::Unchanged,
            ));
        }
        Ok(Self {
            book,
            places,
            tenure,
            unheard: None,
        })
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        for place in &self.places {
            self.book.stop_asking(place);
            if let Some(until) = self.unheard {
                self.book.unheard(place, self.tenure, until);
            }
        }
        self.book.work.notify_one();
    }
}

impl Book {
    /// Notes what is being asked for; or answers how long a detach of it may still take effect that has no epoch.
    fn start_asking(&self, places: &[Place], now: Mono) -> Option<Duration> {
        let mut state = self.state();
        let blind_until = |place| state.entries.get(place)?.leaving.as_ref()?.blind_until;
        let blind = places.iter().filter_map(blind_until).max();
        if let Some(wait) = blind.map(|until| until.since(now)).filter(|wait| !wait.is_zero()) {
            return Some(wait);
        }
        for place in places {
            *state.asking.entry(place.clone()).or_default() += 1;
        }
        None
    }

    fn stop_asking(&self, place: &Place) {
        let mut state = self.state();
        if let Some(asking) = state.asking.get_mut(place) {
            *asking -= 1;
            if *asking == 0 {
                state.asking.remove(place);
            }
        }
    }
}
