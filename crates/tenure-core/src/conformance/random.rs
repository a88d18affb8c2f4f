//! Random operations on a store and on the reference model: every reply and every event must be equal.

mod lease;
mod reply;
mod roster;
mod session;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use self::reply::comparable;
use super::cases::Cases;
use super::world::{Make, SERVED_EVERY, World, key, lease, member, ms, s};
use crate::call::{Request, StoreRequest, Verb, make};
use crate::clock::{Clock, ManualClock};
use crate::error::Result;
use crate::event::EventQuery;
use crate::id::{LeaseName, MAX_NAME, RegistryName, TenureId, Term};
use crate::lease::{Acquire, Token};
use crate::membership::{Beat, Beats, End, EndBy, Join, Labels, MemberOf, Revision, SetLabels};
use crate::memory::MemoryStore;
use crate::pulse::BeatPulse;
use crate::registry::{ClaimKeys, ClaimMode, ClaimOf, Claims, ReleaseClaim};
use crate::session::{Detach, Epoch, SessionSettings};
use crate::settling::GapCause;
use crate::store::{Call, PageRequest, Store, StoreOptions};
use crate::sweep::{EndLapsed, ListDoomed, Release, ReleaseRequest, Settle, Status, Tick};
use crate::target::{PutTarget, RemoveTarget, TargetSpec};
use crate::time::StoreTime;

/// One operation. Numbers map to names, and indices to tenures seen so far.
#[derive(Debug, Clone)]
enum Op {
    Join(u8, u16),
    Beat(Vec<(u16, Option<u16>, u8)>),
    End(u16, u8),
    Label(u16, u8),
    Claim(u16, u8, Vec<u8>, bool),
    Release(u16, u8, u8),
    Acquire(u16, Vec<u8>),
    GiveUp(u16, u8, u8, Option<u8>),
    Put(u8, bool),
    Remove(u8),
    Session(session::Op),
    Roster(roster::Op),
    Share(u16, u8, u8),
    Revoke(u8, u8),
    Tick,
    EndLapsed(u8),
    Evict(bool),
    Doomed,
    Pass(u16),
    /// Time passes while the store serves, without visits to the group.
    Serve(u16),
    /// Time passes without a beat of the pulse.
    Outage(u16),
    Pulse,
    /// A beat of the group failed although the store served.
    Failed,
    Read(u8, u8),
    TooLate(u16),
    Settle(bool),
}

/// The nouns of a history beside members, claims, leases and targets.
#[derive(Debug, Clone, Copy)]
enum About {
    Nothing,
    Sessions,
    Roster,
    SharedLeases,
}

/// More than a third of the operations are about the chosen nouns.
fn operation(about: About) -> BoxedStrategy<Op> {
    match about {
        About::Nothing => plain().boxed(),
        About::Sessions => prop_oneof![3 => plain(), 2 => session::operation().prop_map(Op::Session)].boxed(),
        About::SharedLeases => prop_oneof![3 => plain(), 4 => lease::operation()].boxed(),
        About::Roster => prop_oneof![1 => plain(), 1 => roster::operation().prop_map(Op::Roster)].boxed(),
    }
}

fn plain() -> impl Strategy<Value = Op> {
    let ttl = prop_oneof![Just(1000u16), Just(2500), Just(6000), Just(20_000)];
    let time = prop_oneof![
        Just(1u16),
        Just(40),
        Just(250),
        Just(390),
        Just(900),
        Just(2100),
        Just(7000),
        Just(25_000)
    ];
    // With the longest names, all keys of a registry need more than one eviction event.
    let keys = prop_oneof![9 => prop::collection::vec(0..12u8, 0..5), 1 => Just((0..12).collect::<Vec<u8>>())];
    // Mostly a recent tenure, which is likely to be alive.
    let tenure = || prop_oneof![3 => 0..4u16, 2 => any::<u16>()];
    prop_oneof![
        4 => (0..14u8, ttl.clone()).prop_map(|(m, t)| Op::Join(m, t)),
        5 => prop::collection::vec((tenure(), prop::option::weighted(0.1, ttl), any::<u8>()), 0..9).prop_map(Op::Beat),
        2 => (tenure(), 0..8u8).prop_map(|(t, by)| Op::End(t, by)),
        1 => (tenure(), 0..3u8).prop_map(|(t, n)| Op::Label(t, n)),
        5 => (tenure(), 0..2u8, keys, any::<bool>())
            .prop_map(|(t, r, k, absent)| Op::Claim(t, r, k, absent)),
        2 => (any::<u16>(), 0..2u8, 0..12u8).prop_map(|(t, r, k)| Op::Release(t, r, k)),
        5 => (tenure(), prop::collection::vec(0..10u8, 0..5)).prop_map(|(t, l)| Op::Acquire(t, l)),
        2 => (tenure(), 0..10u8, 0..4u8, prop::option::weighted(0.5, 0..14u8))
            .prop_map(|(t, l, n, to)| Op::GiveUp(t, l, n, to)),
        1 => (0..4u8, any::<bool>()).prop_map(|(l, paused)| Op::Put(l, paused)),
        1 => (0..4u8).prop_map(Op::Remove),
        2 => Just(Op::Tick),
        2 => (1..5u8).prop_map(Op::EndLapsed),
        3 => prop::bool::weighted(0.1).prop_map(Op::Evict),
        1 => Just(Op::Doomed),
        3 => time.clone().prop_map(Op::Pass),
        2 => time.clone().prop_map(Op::Serve),
        1 => time.prop_map(Op::Outage),
        1 => prop::bool::weighted(0.2).prop_map(|failed| if failed { Op::Failed } else { Op::Pulse }),
        3 => (0..14u8, 0..12u8).prop_map(|(m, k)| Op::Read(m, k)),
        1 => any::<u16>().prop_map(Op::TooLate),
        1 => any::<bool>().prop_map(Op::Settle),
    ]
}

/// The store under test and the model.
struct Pair {
    world: World,
    model: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    seen: Vec<TenureId>,
    granted: Vec<(TenureId, LeaseName, Token)>,
    revisions: Vec<Revision>,
    epochs: Vec<Epoch>,
    attached: Vec<(TenureId, Detach)>,
    pending: Vec<TenureId>,
    passes: u32,
}

/// Runs 96 random histories ([`Cases`]).
///
/// # Panics
/// Panics with the shortest history whose replies differ, the step and both replies.
pub async fn the_store_agrees_with_the_model(make: Make<'_>) {
    run(make, About::Nothing).await;
}

/// Like [`the_store_agrees_with_the_model`], with sessions among the operations.
///
/// # Panics
/// As there.
pub async fn sessions_agree_with_the_model(make: Make<'_>) {
    run(make, About::Sessions).await;
}

/// Like [`the_store_agrees_with_the_model`], with leases of several holders and operators that release them.
///
/// # Panics
/// As there.
pub async fn shared_leases_agree_with_the_model(make: Make<'_>) {
    run(make, About::SharedLeases).await;
}

/// Like [`the_store_agrees_with_the_model`], with the mirror of a roster.
///
/// # Panics
/// As there.
pub async fn the_mirror_agrees_with_the_model(make: Make<'_>) {
    run(make, About::Roster).await;
}

async fn run(make: Make<'_>, about: About) {
    let histories = prop::collection::vec(operation(about), 1..90);
    let check = async |history: &Vec<Op>| compare(make, history).await;
    Cases::times(96).check(histories, check).await;
}

async fn compare(make_store: Make<'_>, history: &[Op]) -> Result<(), String> {
    let options = StoreOptions {
        max_ttl: s(20),
        events_max: 5_000,
        sessions: SessionSettings {
            grace: s(3),
            max_age: Some(s(30)),
        },
        ..StoreOptions::default()
    };
    let world = World::with(make_store, options.clone()).await;
    let now = world.store.now().await.map_err(|error| error.to_string())?;
    let clock = Arc::new(ManualClock::new(now.micros(), 0));
    let model = MemoryStore::new(options, Arc::clone(&clock) as Arc<dyn Clock>);
    if world.beat_pulse().await {
        let beaten = model.beat_pulse(BeatPulse::default()).await;
        beaten.map_err(|error| error.to_string())?;
    }
    let mut pair = Pair {
        world,
        model,
        clock,
        seen: Vec::new(),
        granted: Vec::new(),
        revisions: Vec::new(),
        epochs: Vec::new(),
        attached: Vec::new(),
        pending: Vec::new(),
        passes: 0,
    };
    for (n, op) in history.iter().enumerate() {
        pair.step(op)
            .await
            .map_err(|difference| format!("step {n} {op:?}: {difference}"))?;
    }
    let query = EventQuery {
        after: None,
        limit: 1000,
        ..EventQuery::default()
    };
    pair.both(query).await.map(drop)
}

/// Reads everything. Items may come in any order, and at this size one page holds all.
const ALL: PageRequest = PageRequest {
    after: None,
    limit: 1_000,
};

/// This many labels.
fn labels(n: u8) -> Labels {
    let label = |n: u8| (format!("label{n}"), n.to_string());
    Labels::new((0..n).map(label).collect()).expect("good labels")
}

fn same<T: std::fmt::Debug + PartialEq>(what: &str, theirs: &Result<T>, ours: &Result<T>) -> Result<(), String> {
    if let (Ok(theirs), Ok(ours)) = (theirs, ours)
        && theirs == ours
    {
        return Ok(());
    }
    let show = |result: &Result<T>| match result {
        Ok(done) => format!("{done:#?}"),
        Err(error) => format!("{:?} {:?}", error.kind(), error.outcome()),
    };
    let (theirs, ours) = (show(theirs), show(ours));
    if theirs == ours {
        return Ok(());
    }
    let lines = theirs.lines().zip(ours.lines()).find(|(a, b)| a != b);
    Err(format!(
        "{what} differs, first in {lines:?}\nthe store: {theirs}\nthe model: {ours}"
    ))
}

impl Pair {
    /// Sends the request to the model and to the store, compares the replies, and returns the model's.
    async fn both<R: Request>(&self, request: R) -> Result<Result<R::Reply>, String> {
        self.both_until(request, Call::default()).await
    }

    async fn both_until<R: Request>(&self, request: R, call: Call) -> Result<Result<R::Reply>, String> {
        let (group, op) = (Some(self.world.group.clone()), request.op());
        let (verb, ask) = (op.verb(), StoreRequest { group, op, call });
        let store = match verb {
            // A daemon sweeps its store itself.
            Verb::Tick | Verb::EndLapsed | Verb::Release | Verb::Reap | Verb::Doomed => self.world.sweeper(),
            _ => Arc::clone(&self.world.store),
        };
        let resolution = self.world.resolution();
        let coarse = |reply| comparable(reply, resolution);
        let ours = make(&*self.model, ask.clone()).await.map(coarse);
        let theirs = make(&*store, ask).await.map(coarse);
        same(&verb.to_string(), &theirs, &ours)?;
        Ok(ours.map(|reply| R::reply(reply).expect("the model answers what it was asked")))
    }

    /// A tenure seen so far, or one that never existed.
    fn tenure(&self, index: u16) -> TenureId {
        match usize::from(index) % (self.seen.len() + 2) {
            n if n < self.seen.len() => self.seen[self.seen.len() - 1 - n].clone(),
            n if n == self.seen.len() || !self.world.fails_over() => {
                TenureId::new(member("nobody"), Term::new(3).expect("a term"))
            }
            // A term between the newest one and now looks like a lost tail.
            _ => TenureId::new(member("lost"), Term::new(self.clock.wall_micros()).expect("a term")),
        }
    }

    async fn step(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Join(m, ttl) => self.join(*m, *ttl).await,
            Op::Beat(beats) => self.beat(beats).await,
            Op::End(t, by) => {
                let tenure = self.tenure(*t);
                let by = match by {
                    0..=2 => EndBy::Leave,
                    3..=5 => EndBy::Expel,
                    by => EndBy::NoProgress { stopped: *by == 6 },
                };
                let text = (by == EndBy::Leave).then(|| "no_progress".to_owned());
                self.both(End { tenure, by, text }).await.map(drop)
            }
            Op::Label(t, n) => {
                let (tenure, labels) = (self.tenure(*t), labels(*n));
                self.both(SetLabels { tenure, labels }).await.map(drop)
            }
            Op::TooLate(t) => {
                let call = Call::not_after(StoreTime::from_micros(self.clock.wall_micros() - 1));
                let (tenure, by, text) = (self.tenure(*t), EndBy::Leave, None);
                self.both_until(End { tenure, by, text }, call).await.map(drop)
            }
            Op::Settle(named) => {
                let cause = named.then_some(GapCause::Silent);
                self.both(Settle { cause }).await.map(drop)
            }
            Op::Claim(..) | Op::Release(..) => self.claim(op).await,
            Op::Acquire(t, leases) => {
                let leases = leases.iter().map(|l| lease(&format!("l{l}"))).collect();
                self.acquire(Acquire::new(self.tenure(*t), leases)).await
            }
            Op::Share(t, l, holders) => self.share(*t, *l, *holders).await,
            Op::Revoke(l, m) => self.revoke(*l, *m).await,
            Op::GiveUp(t, l, n, to) => self.give_up(*t, *l, *n, *to).await,
            Op::Put(l, paused) => {
                let (target, weight) = (lease(&format!("l{l}")), 1 + u32::from(*l));
                let spec = TargetSpec {
                    paused: *paused,
                    weight,
                };
                self.both(PutTarget { target, spec }).await.map(drop)
            }
            Op::Remove(l) => {
                let target = lease(&format!("l{l}"));
                self.both(RemoveTarget { target }).await.map(drop)
            }
            Op::Session(op) => self.session(op).await,
            Op::Roster(op) => self.roster(op).await,
            Op::Read(m, k) => {
                self.read(*m, *k).await?;
                self.read_leases(*m, *k).await
            }
            Op::Tick => self.both(Tick::default()).await.map(drop),
            Op::EndLapsed(limit) => {
                let limit = u32::from(*limit);
                self.both(EndLapsed { limit }).await.map(drop)
            }
            Op::Evict(force) => {
                let request = self.pass_of(200, *force);
                self.both(Release(request)).await.map(drop)
            }
            Op::Doomed => self.both(ListDoomed { limit: 50 }).await.map(drop),
            Op::Pass(time) => self.pass(ms(u64::from(*time))).await,
            Op::Serve(time) => self.serve(ms(u64::from(*time))).await,
            Op::Outage(time) => {
                self.turn(ms(u64::from(*time))).await;
                Ok(())
            }
            Op::Pulse => self.pulse(false).await,
            Op::Failed => self.pulse(true).await,
        }
    }

    /// A release request with its own pass.
    fn pass_of(&mut self, limit: u32, force: bool) -> ReleaseRequest {
        self.passes += 1;
        let pass = format!("p{}", self.passes);
        ReleaseRequest { pass, limit, force }
    }

    async fn join(&mut self, m: u8, ttl: u16) -> Result<(), String> {
        let join = Join {
            member: member(&format!("m{m}")),
            ttl: ms(u64::from(ttl)),
            labels: labels(m % 3),
        };
        let joined = self.both(join).await?;
        self.seen.extend(joined.into_iter().map(|joined| joined.tenure));
        Ok(())
    }

    async fn beat(&self, beats: &[(u16, Option<u16>, u8)]) -> Result<(), String> {
        let beat = |(t, ttl, r): &(u16, Option<u16>, u8)| Beat {
            tenure: self.tenure(*t),
            ttl: ttl.map(|ttl| ms(u64::from(ttl))),
            revision: self.revision(*r),
            seen: self.revision(r.rotate_left(3)),
        };
        let beats = beats.iter().map(beat).collect();
        self.both(Beats { beats }).await.map(drop)
    }

    /// None, a known revision, or one that looks as if the store had lost its tail.
    fn revision(&self, choice: u8) -> Revision {
        if !self.world.fails_over() {
            return Revision::NONE;
        }
        match choice {
            0..=9 => Revision(self.clock.wall_micros()),
            10..=19 => Revision(self.clock.wall_micros() - 300_000),
            20..=22 => Revision(self.clock.wall_micros() + 7_000_000),
            23..=90 => Revision::NONE,
            _ => self.revisions.last().copied().unwrap_or_default(),
        }
    }

    async fn claim(&self, op: &Op) -> Result<(), String> {
        // One registry has names of maximum length.
        let width = |r: &u8| if *r == 1 { MAX_NAME } else { 2 };
        let registry = |r: &u8| RegistryName::new(format!("{r:r>width$}", width = width(r))).expect("a name");
        let key_of = |r: &u8, k: &u8| key(&format!("{k:k>width$}", width = width(r)));
        match op {
            Op::Claim(t, r, keys, absent) => {
                let claim = ClaimKeys {
                    registry: registry(r),
                    tenure: self.tenure(*t),
                    keys: keys.iter().map(|k| key_of(r, k)).collect(),
                    mode: if *absent { ClaimMode::IfAbsent } else { ClaimMode::Take },
                };
                self.both(claim).await.map(drop)
            }
            Op::Release(t, r, k) => {
                let (tenure, registry, key) = (self.tenure(*t), registry(r), key_of(r, k));
                self.both(ReleaseClaim { registry, key, tenure }).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    async fn turn(&self, by: Duration) {
        self.world.outage(by).await;
        self.clock.advance(by);
    }

    async fn pass(&self, time: Duration) -> Result<(), String> {
        let mut left = time;
        while !left.is_zero() {
            let status = self.both(Tick::default()).await?;
            let step = status.map_or(left, |status| (status.gap / 3).min(SERVED_EVERY).min(left));
            self.serve(step).await?;
            left -= step;
        }
        Ok(())
    }

    async fn serve(&self, time: Duration) -> Result<(), String> {
        let mut left = time;
        while !left.is_zero() {
            let step = SERVED_EVERY.min(left);
            self.turn(step).await;
            self.pulse(false).await?;
            left -= step;
        }
        Ok(())
    }

    async fn pulse(&self, failed: bool) -> Result<(), String> {
        let failed = failed.then(|| self.world.group.clone()).into_iter().collect();
        let beat = BeatPulse { failed };
        let beaten = self.world.sweeper().beat_pulse(beat.clone()).await;
        match beaten {
            // Both go by the ticks of the groups.
            Ok(pulsed) if !pulsed.without.is_empty() => Ok(()),
            Ok(_) => self
                .model
                .beat_pulse(beat)
                .await
                .map(drop)
                .map_err(|error| error.to_string()),
            Err(error) => Err(format!("the pulse was not beaten: {error}")),
        }
    }

    async fn read(&self, m: u8, k: u8) -> Result<(), String> {
        let (member, key) = (member(&format!("m{m}")), key(&format!("k{k}")));
        self.both(MemberOf { member: member.clone() }).await?.ok();
        self.both(Status).await?.ok();
        for registry in ["r0", "r1"] {
            let registry = RegistryName::new(registry).expect("a name");
            let look = ClaimOf {
                registry: registry.clone(),
                key: key.clone(),
            };
            self.both(look).await?.ok();
            for owner in [None, Some(member.clone())] {
                let list = Claims {
                    registry: registry.clone(),
                    owner,
                    page: ALL,
                };
                self.both(list).await?.ok();
            }
        }
        Ok(())
    }
}
