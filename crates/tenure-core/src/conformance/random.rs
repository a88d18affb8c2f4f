//! Random operations on a store and on the reference model at once: every reply and every event must be equal.

mod roster;
mod session;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::cases::Cases;
use super::world::{Make, World, key, lease, member, ms, s};
use crate::clock::{Clock, ManualClock};
use crate::error::Result;
use crate::event::EventQuery;
use crate::id::{LeaseName, MAX_NAME, RegistryName, TenureId, Term};
use crate::lease::Token;
use crate::membership::{Beat, EndBy, Join, Labels, Revision};
use crate::memory::MemoryStore;
use crate::registry::ClaimMode;
use crate::session::{Detach, Epoch, SessionSettings};
use crate::settling::GapCause;
use crate::store::{Call, PageRequest, StoreOptions};
use crate::sweep::{ReleaseRequest, SweepSteps};
use crate::target::TargetSpec;
use crate::time::StoreTime;

/// One operation. Numbers are turned into names, and indices into tenures seen so far.
#[derive(Debug, Clone)]
enum Op {
    Join(u8, u16),
    Beat(Vec<(u16, Option<u16>, u8)>),
    End(u16, bool),
    Claim(u16, u8, Vec<u8>, bool),
    Release(u16, u8, u8),
    Acquire(u16, Vec<u8>),
    GiveUp(u16, u8, u8, Option<u8>),
    Put(u8, bool),
    Remove(u8),
    Session(session::Op),
    Roster(roster::Op),
    Tick,
    EndLapsed(u8),
    Evict(bool),
    Doomed,
    Pass(u16),
    Outage(u16),
    Read(u8, u8),
    TooLate(u16),
    Settle(bool),
}

/// Which nouns a history is about, beside those that come first.
#[derive(Debug, Clone, Copy)]
enum About {
    Nothing,
    Sessions,
    Roster,
}

/// What a history is about makes more than a third of its operations.
fn operation(about: About) -> BoxedStrategy<Op> {
    match about {
        About::Nothing => plain().boxed(),
        About::Sessions => prop_oneof![3 => plain(), 2 => session::operation().prop_map(Op::Session)].boxed(),
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
    // All keys of a registry are more than one event of their eviction lists, when their names are long.
    let keys = prop_oneof![9 => prop::collection::vec(0..12u8, 0..5), 1 => Just((0..12).collect::<Vec<u8>>())];
    // Mostly one of those that came last, and so is likely to be alive.
    let tenure = || prop_oneof![3 => 0..4u16, 2 => any::<u16>()];
    prop_oneof![
        4 => (0..14u8, ttl.clone()).prop_map(|(m, t)| Op::Join(m, t)),
        5 => prop::collection::vec((tenure(), prop::option::weighted(0.1, ttl), any::<u8>()), 0..9).prop_map(Op::Beat),
        2 => (tenure(), any::<bool>()).prop_map(|(t, expel)| Op::End(t, expel)),
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
        4 => time.clone().prop_map(Op::Pass),
        1 => time.prop_map(Op::Outage),
        3 => (0..14u8, 0..12u8).prop_map(|(m, k)| Op::Read(m, k)),
        1 => any::<u16>().prop_map(Op::TooLate),
        1 => any::<bool>().prop_map(Op::Settle),
    ]
}

/// The model beside the store.
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
/// With the shortest history that was found, the step and both answers, when they differ.
pub async fn the_store_agrees_with_the_model(make: Make<'_>) {
    run(make, About::Nothing).await;
}

/// The same with sessions among the operations.
///
/// # Panics
/// As the other.
pub async fn sessions_agree_with_the_model(make: Make<'_>) {
    run(make, About::Sessions).await;
}

/// The same with the mirror of a roster.
///
/// # Panics
/// As the others.
pub async fn the_mirror_agrees_with_the_model(make: Make<'_>) {
    run(make, About::Roster).await;
}

async fn run(make: Make<'_>, about: About) {
    let histories = prop::collection::vec(operation(about), 1..90);
    let check = async |history: &Vec<Op>| compare(make, history).await;
    Cases::times(96).check(histories, check).await;
}

async fn compare(make: Make<'_>, history: &[Op]) -> Result<(), String> {
    let options = StoreOptions {
        max_ttl: s(20),
        events_max: 5_000,
        sessions: SessionSettings {
            grace: s(3),
            max_age: Some(s(30)),
        },
        ..StoreOptions::default()
    };
    let world = World::with(make, options.clone()).await;
    let now = world.store.now().await.map_err(|error| error.to_string())?;
    let clock = Arc::new(ManualClock::new(now.micros(), 0));
    let model = MemoryStore::new(options, Arc::clone(&clock) as Arc<dyn Clock>);
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
    let (theirs, ours) = (
        pair.world.store.events(&pair.world.group, &query).await,
        pair.model.events(&pair.world.group, &query).await,
    );
    same("the events", theirs, ours)
}

use crate::event::EventLog;
use crate::lease::LeaseStore;
use crate::membership::MembershipStore;
use crate::registry::RegistryStore;
use crate::sweep::Sweep;
use crate::target::TargetStore;

fn same<T: std::fmt::Debug>(what: &str, theirs: Result<T>, ours: Result<T>) -> Result<(), String> {
    let show = |result: Result<T>| match result {
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

/// Asks the model and the store the same, and compares.
macro_rules! both {
    ($pair:expr, $what:literal, |$store:ident| $call:expr) => {{
        let $store = &$pair.model;
        let ours = $call.await;
        let $store = &$pair.world.store;
        same($what, $call.await, ours)
    }};
}

impl Pair {
    /// One of the tenures seen so far, or one that never was.
    fn tenure(&self, index: u16) -> TenureId {
        match usize::from(index) % (self.seen.len() + 2) {
            n if n < self.seen.len() => self.seen[self.seen.len() - 1 - n].clone(),
            n if n == self.seen.len() || !self.world.fails_over() => {
                TenureId::new(member("nobody"), Term::new(3).expect("a term"))
            }
            // A term between what was given out and now looks like a lost tail.
            _ => TenureId::new(member("lost"), Term::new(self.clock.wall_micros()).expect("a term")),
        }
    }

    async fn step(&mut self, op: &Op) -> Result<(), String> {
        let group = self.world.group.clone();
        match op {
            Op::Join(m, ttl) => self.join(*m, *ttl).await,
            Op::Beat(beats) => {
                let ttl = |ms: &Option<u16>| ms.map(|ms| Duration::from_millis(u64::from(ms)));
                let beat = |(t, ms, r): &(u16, Option<u16>, u8)| Beat {
                    tenure: self.tenure(*t),
                    ttl: ttl(ms),
                    revision: self.revision(*r),
                };
                let beats: Vec<_> = beats.iter().map(beat).collect();
                both!(self, "beat", |store| store.beat(&group, &beats))
            }
            Op::End(t, expel) => {
                let (tenure, by) = (self.tenure(*t), if *expel { EndBy::Expel } else { EndBy::Leave });
                both!(self, "end", |store| store.end(&group, &tenure, by, Call::default()))
            }
            Op::TooLate(t) => {
                let call = Call::not_after(StoreTime::from_micros(self.clock.wall_micros() - 1));
                let tenure = self.tenure(*t);
                both!(self, "too late", |store| store.end(&group, &tenure, EndBy::Leave, call))
            }
            Op::Settle(named) => {
                let cause = named.then_some(GapCause::Silent);
                both!(self, "settle", |store| store.settle(
                    Some(&group),
                    cause,
                    Call::default()
                ))
            }
            Op::Claim(..) | Op::Release(..) => self.claim(op).await,
            Op::Acquire(t, leases) => self.acquire(*t, leases).await,
            Op::GiveUp(..) => self.give_up(op).await,
            Op::Put(..) | Op::Remove(_) => self.target(op).await,
            Op::Session(op) => self.session(op).await,
            Op::Roster(op) => self.roster(op).await,
            Op::Read(m, k) => {
                self.read(*m, *k).await?;
                self.read_leases(*m, *k).await
            }
            Op::Tick | Op::EndLapsed(_) | Op::Evict(_) | Op::Doomed => self.sweep(op).await,
            Op::Pass(time) => self.pass(ms(u64::from(*time))).await,
            Op::Outage(time) => {
                self.turn(ms(u64::from(*time))).await;
                Ok(())
            }
        }
    }

    async fn join(&mut self, m: u8, ttl: u16) -> Result<(), String> {
        let join = Join {
            member: member(&format!("m{m}")),
            ttl: ms(u64::from(ttl)),
            labels: Labels::default(),
        };
        let ours = self.model.join(&self.world.group, &join, Call::default()).await;
        self.seen.extend(ours.iter().map(|joined| joined.tenure.clone()));
        let theirs = self.world.store.join(&self.world.group, &join, Call::default()).await;
        same("join", theirs, ours)
    }

    /// None, one that was told, or one that only a store which lost its tail has not heard of.
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

    async fn acquire(&mut self, t: u16, leases: &[u8]) -> Result<(), String> {
        let (group, tenure) = (self.world.group.clone(), self.tenure(t));
        let asked: Vec<_> = leases.iter().map(|l| lease(&format!("l{l}"))).collect();
        let ours = self.model.acquire(&group, &tenure, &asked, Call::default()).await;
        if let Ok(acquired) = &ours {
            self.revisions.push(acquired.revision);
            for (name, outcome) in asked.iter().zip(&acquired.outcomes) {
                let grant = outcome.token().map(|token| (tenure.clone(), name.clone(), token));
                self.granted.extend(grant);
            }
        }
        let theirs = self.world.store.acquire(&group, &tenure, &asked, Call::default()).await;
        same("acquire", theirs, ours)
    }

    /// Mostly what was granted, by whoever had it; sometimes what was not.
    async fn give_up(&mut self, op: &Op) -> Result<(), String> {
        let Op::GiveUp(t, l, n, to) = op else { return Ok(()) };
        let (group, to) = (self.world.group.clone(), to.map(|m| member(&format!("m{m}"))));
        let one = Token::new(1).map_err(|error| error.to_string())?;
        let (tenure, given) = match self.granted.len() {
            0 => (self.tenure(*t), vec![(lease("l0"), one)]),
            len => {
                let (tenure, name, token) = self.granted[len - 1 - usize::from(*t) % len].clone();
                let mut given = vec![(name, token)];
                given.extend((0..*n).map(|_| (lease(&format!("l{l}")), token)));
                (tenure, given)
            }
        };
        let ours = self
            .model
            .release_leases(&group, &tenure, &given, to.as_ref(), Call::default());
        let ours = ours.await;
        self.revisions.extend(ours.iter().map(|given| given.revision));
        let theirs = self
            .world
            .store
            .release_leases(&group, &tenure, &given, to.as_ref(), Call::default());
        same("release_leases", theirs.await, ours)
    }

    async fn target(&self, op: &Op) -> Result<(), String> {
        let group = &self.world.group;
        match op {
            Op::Put(l, paused) => {
                let (name, spec) = (
                    lease(&format!("l{l}")),
                    TargetSpec {
                        paused: *paused,
                        weight: 1 + u32::from(*l),
                    },
                );
                both!(self, "put_target", |store| store.put_target(
                    group,
                    &name,
                    spec,
                    Call::default()
                ))
            }
            Op::Remove(l) => {
                let name = lease(&format!("l{l}"));
                both!(self, "remove_target", |store| store.remove_target(
                    group,
                    &name,
                    Call::default()
                ))
            }
            _ => Ok(()),
        }
    }

    async fn read_leases(&self, m: u8, k: u8) -> Result<(), String> {
        let (store, model, group) = (&self.world.store, &self.model, &self.world.group);
        let (member, name) = (member(&format!("m{m}")), lease(&format!("l{k}")));
        let ours = model.lease_of(group, &name).await;
        same("lease_of", store.lease_of(group, &name).await, ours)?;
        let ours = model.target(group, &name).await;
        same("target", store.target(group, &name).await, ours)?;
        let page = PageRequest {
            after: None,
            limit: 1000,
        };
        let sorted = |page: Result<crate::store::Page<crate::lease::Lease>>| {
            page.map(|mut page| {
                page.items
                    .sort_by(|a, b| (&a.lease, &a.tenure).cmp(&(&b.lease, &b.tenure)));
                page.items
            })
        };
        for holder in [None, Some(&member)] {
            let ours = sorted(model.leases(group, holder, &page).await);
            same("leases", sorted(store.leases(group, holder, &page).await), ours)?;
        }
        let tenure = self.tenure(u16::from(m));
        let parts = |held: Result<crate::lease::HeldLeases>| {
            held.map(|held| (held.revision, sorted(Ok(held.page)).unwrap_or_default()))
        };
        let ours = parts(model.held_leases(group, &tenure, &page).await);
        same(
            "held_leases",
            parts(store.held_leases(group, &tenure, &page).await),
            ours,
        )
    }

    async fn claim(&self, op: &Op) -> Result<(), String> {
        let group = &self.world.group;
        // One registry has names as long as any can be.
        let width = |r: &u8| if *r == 1 { MAX_NAME } else { 2 };
        let registry = |r: &u8| RegistryName::new(format!("{r:r>width$}", width = width(r))).expect("a name");
        let key_of = |r: &u8, k: &u8| key(&format!("{k:k>width$}", width = width(r)));
        match op {
            Op::Claim(t, r, keys, absent) => {
                let keys: Vec<_> = keys.iter().map(|k| key_of(r, k)).collect();
                let mode = if *absent { ClaimMode::IfAbsent } else { ClaimMode::Take };
                let (tenure, registry) = (self.tenure(*t), registry(r));
                both!(self, "claim", |store| store.claim(
                    group,
                    &registry,
                    &tenure,
                    &keys,
                    mode,
                    Call::default()
                ))
            }
            Op::Release(t, r, k) => {
                let (tenure, registry, key) = (self.tenure(*t), registry(r), key_of(r, k));
                both!(self, "release", |store| store.release_claim(
                    group,
                    &registry,
                    &key,
                    &tenure,
                    Call::default()
                ))
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
            let status = self.model.tick(&self.world.group).await;
            let step = status.as_ref().map_or(left, |status| (status.gap / 3).min(left));
            same("tick", Ok(self.world.tick().await), status)?;
            self.turn(step).await;
            left -= step;
        }
        Ok(())
    }

    async fn sweep(&mut self, op: &Op) -> Result<(), String> {
        let sweeper = self.world.sweeper();
        let steps: &dyn SweepSteps = sweeper.steps().expect("the sweeping store has steps");
        let (group, model) = (&self.world.group, &self.model);
        match op {
            Op::EndLapsed(limit) => {
                let limit = u32::from(*limit);
                let ours = model.end_lapsed(group, limit, Call::default()).await;
                same(
                    "end_lapsed",
                    steps.end_lapsed(group, limit, Call::default()).await,
                    ours,
                )
            }
            Op::Evict(force) => {
                self.passes += 1;
                let request = ReleaseRequest {
                    pass: format!("p{}", self.passes),
                    limit: 200,
                    force: *force,
                };
                let ours = model.release(group, &request, Call::default()).await;
                same("release", steps.release(group, &request, Call::default()).await, ours)
            }
            Op::Doomed => same("doomed", steps.doomed(group, 50).await, model.doomed(group, 50).await),
            _ => same("tick", steps.tick(group).await, model.tick(group).await),
        }
    }

    async fn read(&self, m: u8, k: u8) -> Result<(), String> {
        let (store, model, group) = (&self.world.store, &self.model, &self.world.group);
        let (member, key) = (member(&format!("m{m}")), key(&format!("k{k}")));
        same(
            "member",
            store.member(group, &member).await,
            model.member(group, &member).await,
        )?;
        same("status", store.status(group).await, model.status(group).await)?;
        for registry in ["r0", "r1"] {
            let registry = RegistryName::new(registry).expect("a name");
            let ours = model.claim_of(group, &registry, &key).await;
            same("claim_of", store.claim_of(group, &registry, &key).await, ours)?;
            for owner in [None, Some(&member)] {
                // Pages may come in any order; at this size one page holds all.
                let page = PageRequest {
                    after: None,
                    limit: 1000,
                };
                let sorted = |page: Result<crate::store::Page<crate::registry::Claim>>| {
                    page.map(|mut page| {
                        page.items.sort_by(|a, b| (&a.key, &a.tenure).cmp(&(&b.key, &b.tenure)));
                        page.items
                    })
                };
                let theirs = sorted(store.claims(group, &registry, owner, &page).await);
                same(
                    "claims",
                    theirs,
                    sorted(model.claims(group, &registry, owner, &page).await),
                )?;
            }
        }
        Ok(())
    }
}
