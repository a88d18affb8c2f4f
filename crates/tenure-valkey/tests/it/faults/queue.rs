//! Random histories of waiting requests at two processes, one of which freezes now and then: never more holders than
//! places, no grant that no caller knows of, first come, first served, and no waiter left beside a free place.
//!
//! The clock is turned by the test, and a marker on the channel of a process shows that all turns before it have arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::conformance::{Cases, Chance};
use tenure_core::id::{LeaseName, MemberId, NodeId, TenureId};
use tenure_core::lease::{
    Acquire, AcquireOutcome, Holders, LeaseStore, Place, Queue, ReleaseOutcome, RequestId, Token, WaitingTurn,
    Withdrawn,
};
use tenure_core::membership::{EndBy, Join, Labels, MembershipStore};
use tenure_core::store::{Call, Store};
use tenure_core::sweep::SweepSteps;
use tenure_core::time::StoreTime;
use tenure_testkit::valkey::Flavour;

use crate::world::*;

on_both! {
    queues_are_fair_and_safe,
}

const MEMBERS: usize = 6;
/// The process that never freezes, and the one that does.
const NODES: [&str; 2] = ["steady", "frail"];

#[derive(Debug, Clone)]
struct Wait {
    request: RequestId,
    order: u64,
    node: usize,
    until: StoreTime,
    holders: Holders,
    /// Whether it was ever at the frail process, which may have missed its turn.
    frail: bool,
}

/// A lease and a tenure.
type Pair = (LeaseName, TenureId);

struct History {
    world: TestClockStore,
    chance: Chance,
    seed: u64,
    tenures: Vec<TenureId>,
    waits: BTreeMap<Pair, Wait>,
    held: BTreeMap<Pair, (Token, Place)>,
    highest: BTreeMap<LeaseName, Token>,
    /// Leases were handed off to these members.
    heirs: BTreeSet<(LeaseName, MemberId)>,
    frozen: bool,
    number: u64,
    now: StoreTime,
}

impl History {
    async fn new(world: TestClockStore, seed: u64) -> Self {
        let now = world.store.now().await.unwrap();
        let mut history = Self {
            world,
            chance: Chance::new(seed),
            seed,
            tenures: Vec::new(),
            waits: BTreeMap::new(),
            held: BTreeMap::new(),
            highest: BTreeMap::new(),
            heirs: BTreeSet::new(),
            frozen: false,
            number: 0,
            now,
        };
        for node in NODES {
            // Subscribes.
            let (node, store) = (NodeId::new(node).unwrap(), &history.world.store);
            let turns = store.wait_for_grants(&node, Duration::ZERO).await;
            assert!(turns.unwrap().is_empty());
        }
        for member in 0..MEMBERS {
            let tenure = history.join(member).await;
            history.tenures.push(tenure);
        }
        history
    }

    async fn join(&self, number: usize) -> TenureId {
        let join = Join {
            member: member(&format!("m{number}")),
            ttl: Duration::from_secs(110),
            labels: Labels::default(),
        };
        self.world
            .store
            .join(&group(), &join, Call::default())
            .await
            .unwrap()
            .tenure
    }

    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn lease(&mut self) -> (LeaseName, Holders) {
        let name = *self.chance.of(&["one", "pool"]);
        let other = self.chance.below(10) == 0;
        let holders = match (name, other) {
            ("one", false) => 1,
            (_, false) => 2,
            (_, true) => 3,
        };
        (lease(&format!("{name}-{}", self.seed)), Holders::new(holders).unwrap())
    }

    fn tenure(&mut self) -> TenureId {
        self.chance.of(&self.tenures).clone()
    }

    fn is_heir(&self, (lease, tenure): &Pair) -> bool {
        self.heirs.contains(&(lease.clone(), tenure.member().clone()))
    }

    fn is_live(&self, node: usize) -> bool {
        node == 0 || !self.frozen
    }

    /// Requests of the steady process that wait for a lease.
    fn steady(&self, lease: &LeaseName) -> impl Iterator<Item = (&Pair, &Wait)> {
        let of_lease = self.waits.iter().filter(move |((name, _), _)| name == lease);
        of_lease.filter(|(_, wait)| !wait.frail && self.now < wait.until)
    }

    async fn ask(&mut self, pair: &Pair, holders: Holders, wait: Option<Wait>) -> AcquireOutcome {
        let queue = wait.as_ref().map(|wait| Queue {
            within: wait.until.since(self.now),
            request: wait.request,
            node: NodeId::new(NODES[wait.node]).unwrap(),
        });
        let acquire = Acquire {
            holders,
            queue,
            ..Acquire::new(pair.1.clone(), vec![pair.0.clone()])
        };
        let acquired = self.world.store.acquire_with(&group(), acquire, Call::default()).await;
        let outcome = acquired.unwrap().outcomes.remove(0);
        match &outcome {
            AcquireOutcome::Granted { token, place, .. } | AcquireOutcome::Kept { token, place, .. } => {
                let highest = self.highest.get(&pair.0).copied();
                if matches!(outcome, AcquireOutcome::Granted { .. }) {
                    assert!(
                        highest.is_none_or(|highest| *token > highest),
                        "{pair:?} {outcome:?} {highest:?}"
                    );
                    self.highest.insert(pair.0.clone(), *token);
                }
                self.held.insert(pair.clone(), (*token, *place));
                self.waits.remove(pair);
            }
            AcquireOutcome::Waiting { .. } => drop(self.waits.insert(pair.clone(), wait.expect("only if it waits"))),
            _ => {}
        }
        outcome
    }

    /// An acquire without a wait never overtakes one that waits; a successor may.
    async fn acquire(&mut self, by: TenureId) {
        let (lease, holders) = self.lease();
        let pair = (lease, by);
        let may_overtake = self.waits.contains_key(&pair) || self.is_heir(&pair);
        let waits = self.steady(&pair.0).count();
        let outcome = self.ask(&pair, holders, None).await;
        let granted = matches!(outcome, AcquireOutcome::Granted { .. });
        assert!(
            !granted || waits == 0 || may_overtake,
            "{pair:?} overtook {:?}",
            self.waits
        );
    }

    async fn wait(&mut self, by: TenureId) {
        let (lease, holders) = self.lease();
        let node = self.chance.below(2);
        if !self.is_live(node) {
            return;
        }
        let pair = (lease, by);
        let number = self.number();
        let before = self.waits.get(&pair);
        let order = before.map_or(number, |wait| wait.order);
        let frail = node > 0 || before.is_some_and(|wait| wait.frail);
        let within = Duration::from_millis(500 + self.chance.below(20_000) as u64);
        let wait = Wait {
            request: RequestId::new(self.seed * 10_000 + number).unwrap(),
            order,
            node,
            until: self.now + within,
            holders,
            frail,
        };
        self.ask(&pair, holders, Some(wait)).await;
    }

    async fn release(&mut self, hand_off: bool) {
        let all: Vec<Pair> = self.held.keys().cloned().collect();
        if all.is_empty() {
            return;
        }
        let (lease, tenure) = self.chance.of(&all).clone();
        let token = self.held.remove(&(lease.clone(), tenure.clone())).unwrap().0;
        let heir = hand_off.then(|| self.tenure());
        let given = [(lease.clone(), token)];
        let (store, group, to) = (
            &self.world.store,
            group(),
            heir.as_ref().map(|heir| heir.member().clone()),
        );
        let released = store.release_leases(&group, &tenure, &given, to.as_ref(), Call::default());
        let outcome = released.await.unwrap().outcomes.remove(0);
        assert!(
            !matches!(outcome, ReleaseOutcome::NotHolder { .. }),
            "{lease} {tenure}: {outcome:?}"
        );
        self.heirs.extend(heir.map(|heir| (lease, heir.member().clone())));
    }

    async fn withdraw(&mut self) {
        let all: Vec<Pair> = self.waits.keys().cloned().collect();
        if all.is_empty() {
            return;
        }
        let pair = self.chance.of(&all).clone();
        if !self.is_live(self.waits[&pair].node) {
            return;
        }
        let wait = self.waits.remove(&pair).unwrap();
        let group = group();
        let withdrawn = self
            .world
            .store
            .withdraw(&group, &pair.1, &pair.0, wait.request, Call::default());
        let withdrawn = withdrawn.await.unwrap();
        assert!(
            !matches!(withdrawn, Withdrawn::GivenBack { .. }),
            "{pair:?}: {withdrawn:?}"
        );
    }

    async fn leave(&mut self) {
        let at = self.chance.below(MEMBERS);
        let tenure = self.tenures[at].clone();
        self.world
            .store
            .end(&group(), &tenure, EndBy::Leave, Call::default())
            .await
            .unwrap();
        self.waits.retain(|(_, of), _| *of != tenure);
        self.held.retain(|(_, of), _| *of != tenure);
        self.tenures[at] = self.join(at).await;
    }

    /// What has arrived for a process.
    async fn turns(&mut self, node: usize) -> Vec<WaitingTurn> {
        let marker = format!("ingest marker m@1 {}", self.number());
        self.world
            .run(&["PUBLISH", &format!("tenure:turns:{}", NODES[node]), &marker]);
        let node = NodeId::new(NODES[node]).unwrap();
        let mut turns = Vec::new();
        while turns
            .last()
            .is_none_or(|turn: &WaitingTurn| turn.lease != lease("marker"))
        {
            turns.extend(self.world.store.wait_for_grants(&node, PATIENCE).await.unwrap());
        }
        turns.retain(|turn| turn.lease != lease("marker"));
        turns
    }

    /// The processes that are not frozen take their turns.
    async fn serve(&mut self) {
        for node in (0..NODES.len()).filter(|node| self.is_live(*node)).collect::<Vec<_>>() {
            for turn in self.turns(node).await {
                let pair = (turn.lease, turn.tenure);
                let Some(wait) = self
                    .waits
                    .get(&pair)
                    .filter(|wait| wait.request == turn.request)
                    .cloned()
                else {
                    continue;
                };
                assert!(!turn.replaced, "{pair:?} {wait:?}");
                let (order, holders, frail) = (wait.order, wait.holders, wait.frail);
                let outcome = self.ask(&pair, holders, Some(wait)).await;
                if frail || self.is_heir(&pair) {
                    continue;
                }
                assert!(outcome.token().is_some(), "{pair:?} {outcome:?}");
                let earlier: Vec<_> = self.steady(&pair.0).filter(|(_, wait)| wait.order < order).collect();
                assert!(earlier.is_empty(), "{pair:?} before {earlier:?}");
            }
        }
    }

    /// Time passes, while the processes confirm their places.
    async fn pass(&mut self) {
        let millis = *self.chance.of(&[5, 50, 200, 1_200, 2_600]);
        for _ in 0..u64::div_ceil(millis, 200) {
            self.world.pass_in_silence(Duration::from_millis(millis.min(200))).await;
            for node in (0..NODES.len()).filter(|node| self.is_live(*node)) {
                let node = NodeId::new(NODES[node]).unwrap();
                self.world.store.tick_of(&group(), Some(&node)).await.unwrap();
            }
            self.world
                .store
                .end_lapsed(&group(), 100, Call::default())
                .await
                .unwrap();
            self.now = self.world.store.now().await.unwrap();
            self.serve().await;
        }
        self.waits.retain(|_, wait| self.now < wait.until);
    }
}

impl History {
    async fn act(&mut self) {
        let by = self.tenure();
        match self.chance.below(20) {
            0..3 => self.acquire(by).await,
            3..9 => self.wait(by).await,
            9..13 => self.release(false).await,
            13 => self.release(true).await,
            14 => self.withdraw().await,
            15 => self.leave().await,
            16 => self.frozen = !self.frozen,
            _ => self.pass().await,
        }
        self.serve().await;
    }

    async fn check(&self) {
        let reserved = self.world.run(&["ZCARD", &key_of("reservations")]).int();
        for name in ["one", "pool"] {
            let name = lease(&format!("{name}-{}", self.seed));
            let seen = self.world.store.lease_of(&group(), &name).await.unwrap();
            let living: Vec<_> = seen
                .iter()
                .flat_map(|seen| &seen.holders)
                .filter(|holder| holder.alive)
                .collect();
            let places: BTreeSet<Place> = living.iter().map(|holder| holder.place).collect();
            let room = seen.as_ref().map_or(0, |seen| usize::from(seen.places.get()));
            assert!(places.len() == living.len() && living.len() <= room, "{seen:?}");
            for holder in living {
                let known = self.held.get(&(name.clone(), holder.tenure.clone()));
                assert_eq!(
                    known,
                    Some(&(holder.token, holder.place)),
                    "a grant that no caller knows of: {seen:?}"
                );
            }
            let is_free = |wait: &Wait| match &seen {
                None => true,
                Some(seen) => {
                    seen.free > 0 && (seen.places == wait.holders || seen.free == u32::from(seen.places.get()))
                }
            };
            let left = self.steady(&name).find(|(_, wait)| is_free(wait));
            assert!(
                reserved != Some(0) || left.is_none(),
                "{left:?} waits beside a free place: {seen:?}"
            );
        }
    }
}

async fn queues_are_fair_and_safe(flavour: Flavour) {
    let cases = Cases::times(12);
    for case in 0..cases.count {
        let seed = cases.seed.wrapping_mul(1_000).wrapping_add(case) % 1_000_000;
        let mut history = History::new(TestClockStore::new(flavour).await, seed).await;
        for _ in 0..60 {
            history.act().await;
            history.check().await;
        }
    }
}
