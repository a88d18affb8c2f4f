//! A simulation of clients with leases: never more holders that trust a lease than it has places, tokens that rise, and
//! every waiter served or answered.
//!
//! A client trusts its leases until one ttl after it sent its last confirmed beat. It may be superseded or expelled
//! without noticing, lose replies, and stop for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::call::{Op, Reply};
use crate::conformance::{Cases, Chance};
use crate::error::Result;
use crate::id::{Group, LeaseName, MemberId, NodeId, TenureId};
use crate::lease::{
    Acquire, AcquireOutcome, Holders, LeasesOf, Place, Queue, ReleaseLeases, RequestId, RevokeLease, RevokeOf, Token,
    Withdraw, Withdrawn,
};
use crate::membership::{Beat, BeatReply, Beats, End, EndBy, Join, Labels, Revision};
use crate::memory::GroupModel;
use crate::store::{Call, PageRequest, StoreOptions};
use crate::sweep::{EndLapsed, Release, ReleaseRequest, Tick};
use crate::time::StoreTime;

const LEASES: [&str; 2] = ["one", "pool"];
const MEMBERS: usize = 6;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn node() -> NodeId {
    NodeId::new("node").unwrap()
}

/// A lease that a client believes to hold.
#[derive(Debug, Clone, Copy)]
struct Guard {
    token: Token,
    place: Place,
    holders: Holders,
}

#[derive(Debug, Clone)]
struct Wait {
    request: RequestId,
    until: StoreTime,
}

/// A process with one tenure.
#[derive(Debug)]
struct Client {
    tenure: TenureId,
    ttl: Duration,
    trusts_until: StoreTime,
    /// The revision that its beats name, if they name any.
    known: Revision,
    names: bool,
    guards: BTreeMap<LeaseName, Guard>,
    waits: BTreeMap<LeaseName, Wait>,
}

struct World {
    model: GroupModel,
    now: StoreTime,
    chance: Chance,
    clients: Vec<Client>,
    highest: BTreeMap<LeaseName, Token>,
    requests: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = StoreTime::from_micros(1_700_000_000_000_000);
        Self {
            model: GroupModel::new(StoreOptions::default(), now),
            now,
            chance: Chance::new(seed),
            clients: Vec::new(),
            highest: BTreeMap::new(),
            requests: 0,
        }
    }

    fn ask(&mut self, op: Op) -> Result<Reply> {
        let reply = self.model.decide(&op, Call::default(), self.now);
        self.take_turns();
        reply
    }

    fn lease(&mut self) -> (LeaseName, Holders) {
        let name = *self.chance.of(&LEASES);
        let holders = if name == "one" { 1 } else { 2 };
        let holders = if self.chance.below(12) == 0 { 3 } else { holders };
        (LeaseName::new(name).unwrap(), Holders::new(holders).unwrap())
    }

    /// One of the clients, living or not.
    fn client(&mut self) -> Option<usize> {
        (!self.clients.is_empty()).then(|| self.chance.below(self.clients.len()))
    }

    fn join(&mut self) {
        let member = MemberId::new(format!("m{}", self.chance.below(MEMBERS))).unwrap();
        let ttl = ms(*self.chance.of(&[1_500, 3_000, 6_000]));
        let (sent, labels) = (self.now, Labels::default());
        let Ok(Reply::Join(joined)) = self.ask(Op::Join(Join { member, ttl, labels })) else {
            return;
        };
        let names = self.chance.below(4) > 0;
        self.clients.push(Client {
            tenure: joined.tenure,
            ttl,
            trusts_until: sent + ttl,
            known: Revision::NONE,
            names,
            guards: BTreeMap::new(),
            waits: BTreeMap::new(),
        });
        // Processes that can no longer act are forgotten.
        let now = self.now;
        self.clients.retain(|client| client.trusts_until + ms(60_000) > now);
    }

    fn beat(&mut self, n: usize) {
        let late = ms(self.chance.below(200) as u64);
        let is_lost = self.chance.below(6) == 0;
        let client = &self.clients[n];
        let (tenure, sent) = (client.tenure.clone(), self.now);
        let revision = if client.names { client.known } else { Revision::NONE };
        self.now = self.now + late;
        let beats = vec![Beat {
            tenure,
            ttl: None,
            revision,
            seen: Revision::NONE,
        }];
        let Ok(Reply::Beat(beaten)) = self.ask(Op::Beat(Beats { beats })) else {
            return;
        };
        if is_lost {
            return;
        }
        match beaten.replies[0] {
            BeatReply::Renewed { revision, .. } => {
                let client = &mut self.clients[n];
                client.trusts_until = client.trusts_until.max(sent + client.ttl);
                if revision != client.known {
                    self.read_back(n);
                }
            }
            BeatReply::Ended(_) | BeatReply::Unknown => self.clients[n].guards.clear(),
            BeatReply::Refused => panic!("the model writes"),
        }
    }

    /// The leases that the store says the client holds. Those that are missing are lost.
    fn read_back(&mut self, n: usize) {
        let (tenure, page) = (self.clients[n].tenure.clone(), PageRequest::default());
        let op = Op::HeldLeases(LeasesOf { tenure, page });
        let Ok(Reply::HeldLeases(held)) = self.model.look_up(&op, self.now) else {
            panic!("a read");
        };
        let client = &mut self.clients[n];
        if !client.names {
            return;
        }
        client.guards.clear();
        for lease in held.page.items {
            let (token, place, holders) = (lease.token, lease.place, lease.places);
            client.guards.insert(lease.lease, Guard { token, place, holders });
        }
        client.known = held.revision;
    }

    fn acquire(&mut self, n: usize, waits: bool) {
        let (lease, holders) = self.lease();
        self.requests += 1;
        let request = RequestId::new(self.requests).unwrap();
        let within = ms(500 + self.chance.below(8_000) as u64);
        let queue = waits.then(|| Queue {
            within,
            request,
            node: node(),
        });
        self.ask_for(n, lease, holders, queue);
    }

    fn ask_for(&mut self, n: usize, lease: LeaseName, holders: Holders, queue: Option<Queue>) {
        let tenure = self.clients[n].tenure.clone();
        let request = queue.as_ref().map(|queue| queue.request);
        let acquire = Acquire {
            holders,
            queue,
            ..Acquire::new(tenure, vec![lease.clone()])
        };
        let Ok(Reply::Acquire(acquired)) = self.ask(Op::Acquire(acquire)) else {
            self.clients[n].guards.clear();
            self.clients[n].waits.clear();
            return;
        };
        let outcome = &acquired.outcomes[0];
        let client = &mut self.clients[n];
        if let (Some(token), Some(place)) = (outcome.token(), outcome.place()) {
            if matches!(outcome, AcquireOutcome::Granted { .. }) {
                let highest = self.highest.entry(lease.clone()).or_insert(token);
                assert!(
                    *highest == token || token > *highest,
                    "{lease}: {token} after {highest}"
                );
                *highest = token;
            }
            client.waits.remove(&lease);
            client.guards.insert(lease, Guard { token, place, holders });
            if client.known != acquired.before && client.names {
                self.read_back(n);
            } else {
                self.clients[n].known = acquired.revision;
            }
        } else if let (AcquireOutcome::Waiting { until, .. }, Some(request)) = (outcome, request) {
            let until = *until;
            client.waits.insert(lease, Wait { request, until });
        }
    }

    /// A process receives the grants of its waiting requests, and asks for the result.
    fn take_turns(&mut self) {
        if !self.model.has_turns() {
            return;
        }
        for turn in self.model.take_turns(&Group::new("g").unwrap(), &node()) {
            let is_of = |client: &&mut Client| client.tenure == turn.tenure;
            let Some(client) = self.clients.iter_mut().find(is_of) else {
                continue;
            };
            let is_newest = client
                .waits
                .get(&turn.lease)
                .is_some_and(|wait| wait.request == turn.request);
            assert!(is_newest, "{turn:?} is not what {client:?} waits for");
            client.waits.remove(&turn.lease);
            let (tenure, page) = (turn.tenure, PageRequest::default());
            let Ok(Reply::HeldLeases(held)) = self.model.look_up(&Op::HeldLeases(LeasesOf { tenure, page }), self.now)
            else {
                panic!("a read");
            };
            let found = held.page.items.into_iter().find(|lease| lease.lease == turn.lease);
            let Some(found) = found else { continue };
            let highest = self.highest.entry(turn.lease.clone()).or_insert(found.token);
            assert!(found.token >= *highest, "tokens rise");
            *highest = found.token;
            let guard = Guard {
                token: found.token,
                place: found.place,
                holders: found.places,
            };
            client.guards.insert(turn.lease, guard);
        }
    }

    fn release(&mut self, n: usize) {
        let (lease, _) = self.lease();
        let to =
            (self.chance.below(3) == 0).then(|| MemberId::new(format!("m{}", self.chance.below(MEMBERS))).unwrap());
        let client = &mut self.clients[n];
        let Some(guard) = client.guards.remove(&lease) else {
            return;
        };
        let (tenure, leases) = (client.tenure.clone(), vec![(lease, guard.token)]);
        let release = ReleaseLeases {
            tenure,
            leases,
            to,
            seen: Revision::NONE,
        };
        let again = (self.chance.below(3) == 0).then(|| release.clone());
        if let Ok(Reply::ReleaseLeases(released)) = self.ask(Op::ReleaseLeases(release))
            && self.clients[n].known == released.before
        {
            self.clients[n].known = released.revision;
        }
        if let Some(again) = again {
            self.ask(Op::ReleaseLeases(again)).ok();
        }
    }

    fn withdraw(&mut self, n: usize) {
        let (lease, _) = self.lease();
        let client = &mut self.clients[n];
        let Some(wait) = client.waits.remove(&lease) else {
            return;
        };
        let (tenure, request) = (client.tenure.clone(), wait.request);
        let reply = self.ask(Op::Withdraw(Withdraw { tenure, lease, request }));
        let given_back = matches!(reply, Ok(Reply::Withdraw(Withdrawn::GivenBack { .. })));
        assert!(!given_back, "a granted request is told of its grant first");
    }

    fn revoke(&mut self) {
        let (lease, _) = self.lease();
        let member = MemberId::new(format!("m{}", self.chance.below(MEMBERS))).unwrap();
        let of = if self.chance.below(2) == 0 {
            RevokeOf::Any
        } else {
            RevokeOf::Holder(member)
        };
        self.ask(Op::RevokeLease(RevokeLease { lease, of })).ok();
    }

    fn sweep(&mut self) {
        self.ask(Op::Tick(Tick::default())).unwrap();
        self.ask(Op::EndLapsed(EndLapsed { limit: 50 })).unwrap();
        let (pass, limit, force) = ("p".to_owned(), 50, false);
        self.ask(Op::Release(Release(ReleaseRequest { pass, limit, force })))
            .unwrap();
        let next = self.model.status(self.now).next_wake;
        assert!(
            next.is_none_or(|at| at > self.now),
            "a lease with waiters that is free is granted"
        );
    }

    fn act(&mut self) {
        let choice = self.chance.below(40);
        if choice < 4 || self.clients.is_empty() {
            return self.join();
        }
        let Some(n) = self.client() else { return };
        match choice {
            4..=15 => self.beat(n),
            16..=20 => self.acquire(n, false),
            21..=26 => self.acquire(n, true),
            27..=29 => self.release(n),
            30 => self.withdraw(n),
            31 | 32 => self.revoke(),
            33 => {
                let (tenure, by) = (self.clients[n].tenure.clone(), EndBy::Expel);
                self.ask(Op::End(End { tenure, by, text: None })).ok();
            }
            34 => {
                self.clients[n].guards.clear();
                let (tenure, by) = (self.clients[n].tenure.clone(), EndBy::Leave);
                self.ask(Op::End(End { tenure, by, text: None })).ok();
            }
            _ => self.sweep(),
        }
    }

    fn pass(&mut self) {
        let millis = match self.chance.below(20) {
            0 => 4_000,
            1..=4 => 400,
            _ => self.chance.below(80) as u64,
        };
        self.now = self.now + ms(millis);
    }

    fn check(&self) {
        for lease in LEASES.map(|name| LeaseName::new(name).unwrap()) {
            let trusting = self.clients.iter().filter(|client| self.now < client.trusts_until);
            let guards: Vec<Guard> = trusting
                .filter_map(|client| client.guards.get(&lease).copied())
                .collect();
            let Some(first) = guards.first() else { continue };
            let places: std::collections::BTreeSet<Place> = guards.iter().map(|guard| guard.place).collect();
            let is_right = guards.len() <= usize::from(first.holders.get())
                && places.len() == guards.len()
                && guards
                    .iter()
                    .all(|guard| guard.holders == first.holders && guard.place.get() < first.holders.get());
            assert!(is_right, "{lease} at {}: {:#?}", self.now, self.clients);
        }
        for client in &self.clients {
            for (lease, wait) in &client.waits {
                let row = self.model.leases_waiting(lease, &client.tenure);
                let told = wait.until <= self.now || self.model.current(&client.tenure).is_none();
                assert!(
                    told || row == Some(wait.request),
                    "{lease}: {client:?} is neither served nor told"
                );
            }
        }
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..150 {
        world.act();
        world.check();
        world.pass();
        world.check();
    }
}

/// `TENURE_SOAK` multiplies the number of seeds.
#[test]
fn leases_never_have_more_holders_than_places() {
    let cases = Cases::times(400);
    for seed in 0..cases.count {
        let seed = cases.seed.wrapping_mul(1_000_003).wrapping_add(seed);
        let done = std::panic::catch_unwind(|| run(seed));
        assert!(done.is_ok(), "seed {seed}");
    }
}
