//! Races attach, detach, crash, resume and reap at the instant a session's grace ends.

use std::sync::Arc;
use std::time::Duration;

use super::cases::{Cases, Chance};
use super::session::{connection, plain, session};
use super::world::{Make, World, ms, s};
use crate::error::{ErrorKind, Result};
use crate::event::{Event, EventId, EventKind, EventQuery};
use crate::id::{Group, TenureId};
use crate::membership::EndBy;
use crate::session::{Attach, AttachOutcome, Detach, Epoch, How};
use crate::store::{Call, Store};
use crate::sweep::{BATCH, Reaped, ReleaseRequest, SweepReport, SweepRequest};
use crate::time::StoreTime;

const GRACE: Duration = s(1);
const FRONTS: [&str; 2] = ["front-a", "front-b"];
const CONNECTIONS: [&str; 2] = ["c1", "c2"];

/// One action of an interleaving.
#[derive(Debug, Clone)]
enum Act {
    Attach(TenureId, &'static str, bool),
    Detach(TenureId, &'static str),
    Crash(TenureId),
    Release(u64),
    Reap(u64),
    Delete,
}

/// The result of an action, as far as a client can rely on it.
#[derive(Debug)]
enum ActOutcome {
    Attached(How, Epoch),
    Reaped(Vec<Reaped>),
    Nothing,
}

impl Act {
    fn random(chance: &mut Chance, fronts: &[TenureId], round: u64) -> Self {
        let (front, name) = (fronts[chance.below(fronts.len())].clone(), CONNECTIONS[chance.below(2)]);
        match chance.below(13) {
            0..=4 => Self::Attach(front, name, chance.below(2) == 0),
            5..=6 => Self::Detach(front, name),
            7 => Self::Crash(front),
            8 => Self::Release(round),
            9 => Self::Delete,
            _ => Self::Reap(round),
        }
    }

    async fn run(self, nth: usize, store: Arc<dyn Store>, sweeper: Arc<dyn Store>, group: Group) -> Result<ActOutcome> {
        let call = Call::default();
        let request = |round: u64| ReleaseRequest {
            pass: format!("{round}.{nth}"),
            limit: BATCH,
            force: false,
        };
        let steps = sweeper.steps().expect("the sweeping store has steps");
        match self {
            Self::Attach(tenure, name, resume_only) => {
                let asked = [attach(name, resume_only)];
                let attached = store.attach(&group, &tenure, &asked, call).await?;
                return Ok(match attached.outcomes.first() {
                    Some(AttachOutcome::Attached { how, session }) => ActOutcome::Attached(*how, session.epoch),
                    _ => ActOutcome::Nothing,
                });
            }
            Self::Detach(tenure, name) => {
                let asked = [detach(name)];
                store.detach(&group, &tenure, &asked, call).await?;
            }
            Self::Crash(tenure) => drop(store.end(&group, &tenure, EndBy::Expel, call).await?),
            Self::Release(round) => drop(steps.release(&group, &request(round), call).await?),
            Self::Reap(round) => {
                let batch = steps.reap(&group, &request(round), call).await?;
                assert_eq!(batch.skipped, 0, "the index has a stale entry");
                return Ok(ActOutcome::Reaped(batch.reaped));
            }
            Self::Delete => drop(store.delete_session(&group, &session("chat"), call).await?),
        }
        Ok(ActOutcome::Nothing)
    }
}

fn attach(name: &str, resume_only: bool) -> Attach {
    Attach {
        grace: Some(GRACE),
        resume_only,
        ..plain("chat", name)
    }
}

fn detach(name: &str) -> Detach {
    Detach {
        session: session("chat"),
        connection: connection(name),
        epoch: None,
    }
}

/// The session's state as its events describe it. An event that is invalid in the current state is an error.
#[derive(Debug)]
enum SessionPhase {
    None,
    Active,
    /// Since this time, after the attach with this epoch.
    Away(StoreTime, Option<Epoch>),
}

impl SessionPhase {
    fn step(self, event: &Event) -> std::result::Result<Self, String> {
        let over = |since: StoreTime| event.at >= since + GRACE;
        match (self, event.kind) {
            (Self::None, EventKind::SessionCreated) => Ok(Self::Active),
            (Self::Active, EventKind::SessionDisconnected) => Ok(Self::Away(event.at, event.epoch)),
            (Self::Away(since, epoch), EventKind::SessionResumed) if !over(since) && event.epoch > epoch => {
                Ok(Self::Active)
            }
            (Self::Away(since, epoch), EventKind::SessionReaped) if over(since) && event.epoch == epoch => {
                Ok(Self::None)
            }
            (Self::Away(_, epoch), EventKind::SessionDeleted) if event.epoch == epoch => Ok(Self::None),
            (before, _) => Err(format!("after {before:?} came {event:?}")),
        }
    }
}

impl World {
    async fn events_after(&self, after: &mut Option<EventId>) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            let query = EventQuery {
                after: *after,
                limit: 1000,
                ..EventQuery::default()
            };
            let page = self.store.events(&self.group, &query).await.expect("events");
            *after = Some(page.last);
            if page.events.is_empty() {
                return all;
            }
            all.extend(page.events);
        }
    }

    /// Returns both front-ends, alive. A front-end that crashed joins again.
    async fn fronts(&self, fronts: &mut Vec<TenureId>) {
        for (n, name) in FRONTS.into_iter().enumerate() {
            let lives = match fronts.get(n) {
                Some(tenure) => matches!(self.beat(tenure).await, crate::membership::BeatReply::Renewed { .. }),
                None => false,
            };
            if !lives {
                let tenure = self.join(name, s(30)).await;
                fronts.truncate(n);
                fronts.insert(n, tenure);
            }
        }
    }

    /// Leaves the session and advances the clock to the end of its grace, or to 1 µs before it.
    async fn to_the_boundary(&self, fronts: &[TenureId], chance: &mut Chance) {
        let front = &fronts[chance.below(fronts.len())];
        let attached = self.attach(front, &attach(CONNECTIONS[chance.below(2)], false)).await;
        assert!(matches!(attached, AttachOutcome::Attached { .. }), "{attached:?}");
        if chance.below(4) == 0 {
            // The front-end crashes instead, and the janitor may release from now on.
            let end = self.store.end(&self.group, front, EndBy::Expel, Call::default());
            end.await.expect("ended");
            self.serve(ms(250)).await;
            return;
        }
        for tenure in fronts {
            let asked = CONNECTIONS.map(detach);
            let detached = self.store.detach(&self.group, tenure, &asked, Call::default()).await;
            detached.expect("an answer");
        }
        let early = Duration::from_micros(chance.below(2) as u64);
        self.serve(GRACE - early).await;
    }

    /// Runs all actions concurrently. The clock may advance by 1 µs between them.
    async fn burst(&self, acts: Vec<Act>, chance: &mut Chance) -> Vec<ActOutcome> {
        let run = |(nth, act): (usize, Act)| {
            tokio::spawn(act.run(nth, Arc::clone(&self.store), self.sweeper(), self.group.clone()))
        };
        let running: Vec<_> = acts.into_iter().enumerate().map(run).collect();
        if chance.below(2) == 0 {
            self.outage(Duration::from_micros(1)).await;
        }
        let mut outcomes = Vec::new();
        for act in running {
            match act.await.expect("no act panics") {
                Ok(answer) => outcomes.push(answer),
                // The front-end crashed in the same burst.
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Ended(_)), "{error:?}"),
            }
        }
        outcomes
    }

    /// The session's connections equal those held by living members.
    async fn nothing_leaked(&self) {
        let mut held = 0;
        for name in FRONTS {
            let member = self.store.member(&self.group, &super::world::member(name)).await;
            held += member
                .expect("a look-up")
                .map_or(0, |member| member.holdings.connections);
        }
        let seen = self.session("chat").await.map_or(0, |session| session.connections);
        assert_eq!(
            seen, held,
            "the session's connections differ from those held by living members"
        );
    }
}

/// Every reply that reports a transition has exactly one matching event.
fn agree(outcomes: &[ActOutcome], events: &[Event]) {
    let count = |kind: EventKind, epoch: Epoch| {
        let of = events
            .iter()
            .filter(|event| event.kind == kind && event.epoch == Some(epoch));
        of.count()
    };
    for answer in outcomes {
        match answer {
            ActOutcome::Attached(How::Created, epoch) => assert_eq!(count(EventKind::SessionCreated, *epoch), 1),
            ActOutcome::Attached(How::Resumed, epoch) => assert_eq!(count(EventKind::SessionResumed, *epoch), 1),
            ActOutcome::Reaped(reaped) => {
                for one in reaped {
                    assert_eq!(count(EventKind::SessionReaped, one.epoch), 1);
                }
            }
            ActOutcome::Attached(How::Attached, _) | ActOutcome::Nothing => {}
        }
    }
}

/// The session is never both resumed and reaped, no connection leaks, and index and data agree at the end. Runs 100
/// interleavings ([`Cases`]).
pub async fn no_session_is_both_resumed_and_reaped(make: Make<'_>) {
    let cases = Cases::times(100);
    let (world, mut chance) = (World::new(make).await, cases.chance());
    let (mut fronts, mut phase, mut after, mut history) = (Vec::new(), SessionPhase::None, None, Vec::new());
    for round in 0..cases.count {
        world.fronts(&mut fronts).await;
        world.to_the_boundary(&fronts, &mut chance).await;
        let acts: Vec<_> = (0..2 + chance.below(5))
            .map(|_| Act::random(&mut chance, &fronts, round))
            .collect();
        let shown = format!("interleaving {round} of {cases}: {acts:?}");
        let outcomes = world.burst(acts, &mut chance).await;
        let events = world.events_after(&mut after).await;
        let about: Vec<_> = events.into_iter().filter(|event| event.session.is_some()).collect();
        for event in &about {
            phase = phase.step(event).unwrap_or_else(|wrong| panic!("{shown}: {wrong}"));
        }
        history.extend(about);
        agree(&outcomes, &history);
        let recent = history.len().saturating_sub(50);
        history.drain(..recent);
        world.nothing_leaked().await;
    }
    for tenure in &fronts {
        drop(
            world
                .store
                .end(&world.group, tenure, EndBy::Leave, Call::default())
                .await,
        );
    }
    world.pass(ms(300)).await;
    world.sweep("last").await;
    let reconcile = SweepRequest {
        reconcile: true,
        ..SweepRequest::default()
    };
    let report = world.ask_sweep(reconcile.clone(), "drift").await;
    assert_eq!(report.repaired, SweepReport::default().repaired);
    world.pass(GRACE + ms(300)).await;
    world.sweep("reap").await;
    assert_eq!((world.stats().await, world.session("chat").await), ((0, 0, 0), None));
    let report = world.ask_sweep(reconcile, "drift-again").await;
    assert_eq!((report.repaired, report.skipped), (SweepReport::default().repaired, 0));
    let status = world.tick().await;
    assert_eq!((status.sessions, status.disconnected, status.releasing), (0, 0, 0));
}
