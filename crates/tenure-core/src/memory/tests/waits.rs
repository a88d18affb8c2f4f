//! The limits of the queues.

use std::time::Duration;

use crate::call::{Op, Reply};
use crate::id::{Group, LeaseName, MemberId, NodeId, TenureId};
use crate::lease::{
    Acquire, AcquireOutcome, MAX_WAITING_PER_GROUP, MAX_WAITING_PER_LEASE, Queue, ReleaseLeases, RequestId, Token,
};
use crate::membership::{Join, Labels};
use crate::memory::GroupModel;
use crate::store::{Call, StoreOptions};
use crate::time::StoreTime;

const NOW: StoreTime = StoreTime::from_micros(1_700_000_000_000_000);

struct World {
    model: GroupModel,
    now: StoreTime,
}

impl World {
    fn new() -> Self {
        let model = GroupModel::new(StoreOptions::default(), NOW);
        Self { model, now: NOW }
    }

    fn ask(&mut self, op: Op) -> Reply {
        self.model.decide(&op, Call::default(), self.now).unwrap()
    }

    fn join(&mut self, name: &str) -> TenureId {
        let (member, ttl) = (MemberId::new(name).unwrap(), Duration::from_secs(60));
        let labels = Labels::default();
        match self.ask(Op::Join(Join { member, ttl, labels })) {
            Reply::Join(joined) => joined.tenure,
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, tenure: &TenureId, name: &str) -> AcquireOutcome {
        self.acquire(tenure, name, Some(Duration::from_secs(60)))
    }

    fn acquire(&mut self, tenure: &TenureId, name: &str, wait: Option<Duration>) -> AcquireOutcome {
        let queue = wait.map(|within| Queue {
            within,
            request: RequestId::new(1).unwrap(),
            node: NodeId::new("node").unwrap(),
        });
        let acquire = Acquire {
            queue,
            ..Acquire::new(tenure.clone(), vec![LeaseName::new(name).unwrap()])
        };
        match self.ask(Op::Acquire(acquire)) {
            Reply::Acquire(mut acquired) => acquired.outcomes.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn granted(&mut self, tenure: &TenureId, name: &str) -> Token {
        self.wait(tenure, name).token().expect("a free lease")
    }
}

#[test]
fn full_queue_is_refused() {
    let mut world = World::new();
    let holder = world.join("holder");
    for name in ["one", "two", "three"] {
        world.granted(&holder, name);
    }
    let waiters: Vec<TenureId> = (0..=MAX_WAITING_PER_LEASE)
        .map(|n| world.join(&format!("m{n}")))
        .collect();
    let (last, others) = waiters.split_last().unwrap();
    let full = |waiting: usize| AcquireOutcome::QueueFull {
        waiting: u32::try_from(waiting).unwrap(),
    };
    for name in ["one", "two"] {
        for (n, waiter) in others.iter().enumerate() {
            let AcquireOutcome::Waiting { ahead, .. } = world.wait(waiter, name) else {
                panic!("refused after {n}");
            };
            assert_eq!(ahead as usize, n);
        }
        let waiting = if name == "one" {
            MAX_WAITING_PER_LEASE
        } else {
            MAX_WAITING_PER_GROUP
        };
        assert_eq!(world.wait(last, name), full(waiting));
    }
    assert_eq!(world.wait(last, "three"), full(MAX_WAITING_PER_GROUP));
    for n in [0, 5_000] {
        let AcquireOutcome::Waiting { ahead, .. } = world.wait(&waiters[n], "one") else {
            panic!("{n} lost its place");
        };
        assert_eq!(ahead as usize, n);
    }
}

/// A step looks at some hundreds of waiters. If all of these waits are over, another waiter may stand behind them.
#[test]
fn waiter_behind_many_that_are_over_is_not_overtaken() {
    let mut world = World::new();
    let holder = world.join("holder");
    let token = world.granted(&holder, "poll");
    for n in 0..2_000 {
        let hasty = world.join(&format!("hasty-{n}"));
        world.acquire(&hasty, "poll", Some(Duration::from_secs(1)));
    }
    let (patient, late) = (world.join("patient"), world.join("late"));
    world.wait(&patient, "poll");
    world.now = NOW + Duration::from_millis(1_500);
    let release = ReleaseLeases {
        tenure: holder,
        leases: vec![(LeaseName::new("poll").unwrap(), token)],
        to: None,
        seen: crate::membership::Revision::NONE,
    };
    world.ask(Op::ReleaseLeases(release));
    for _ in 0..20 {
        assert_eq!(world.acquire(&late, "poll", None).token(), None, "it overtook a waiter");
    }
    assert!(world.wait(&patient, "poll").token().is_some(), "it has the lease");
}

/// A daemon in front of this store learns of its own requests only.
#[test]
fn each_node_takes_the_turns_of_its_own_requests() {
    let mut world = World::new();
    let holder = world.join("holder");
    let (token, waiter) = (world.granted(&holder, "one"), world.join("waiter"));
    world.wait(&waiter, "one");
    let leases = vec![(LeaseName::new("one").unwrap(), token)];
    let (tenure, to) = (holder, None);
    world.ask(Op::ReleaseLeases(ReleaseLeases {
        tenure,
        leases,
        to,
        seen: crate::membership::Revision::NONE,
    }));
    let group = Group::new("g").unwrap();
    let mut turns = |node: &str| world.model.take_turns(&group, &NodeId::new(node).unwrap()).len();
    assert_eq!([turns("other"), turns("node"), turns("node")], [0, 1, 0]);
}
