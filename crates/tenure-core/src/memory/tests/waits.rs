//! The limits of the queues.

use std::time::Duration;

use crate::call::{Op, Reply};
use crate::id::{LeaseName, MemberId, NodeId, TenureId};
use crate::lease::{Acquire, AcquireOutcome, MAX_WAITING_PER_GROUP, MAX_WAITING_PER_LEASE, Queue, RequestId, Token};
use crate::membership::{Join, Labels};
use crate::memory::GroupModel;
use crate::store::{Call, StoreOptions};
use crate::time::StoreTime;

const NOW: StoreTime = StoreTime::from_micros(1_700_000_000_000_000);

struct World(GroupModel);

impl World {
    fn new() -> Self {
        Self(GroupModel::new(StoreOptions::default(), NOW))
    }

    fn ask(&mut self, op: Op) -> Reply {
        self.0.decide(&op, Call::default(), NOW).unwrap()
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
        let queue = Queue {
            within: Duration::from_secs(60),
            request: RequestId::new(1).unwrap(),
            node: NodeId::new("node").unwrap(),
        };
        let acquire = Acquire {
            queue: Some(queue),
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
