//! Waiting requests: a grant is revealed when it is durable, and a lost one puts the waiter back.

use super::*;
use crate::id::NodeId;
use crate::lease::{Acquire, Queue, RequestId, WaitingTurn};

const PATIENCE: Duration = Duration::from_secs(600);

fn node() -> NodeId {
    NodeId::new("node").unwrap()
}

impl World {
    async fn wait(&self, tenure: &TenureId, name: &str) -> AcquireOutcome {
        let acquire = Acquire {
            queue: Some(Queue {
                within: s(60),
                request: RequestId::new(7).unwrap(),
                node: node(),
            }),
            ..Acquire::new(tenure.clone(), vec![LeaseName::new(name).unwrap()])
        };
        let acquired = self.acquire_with(&self.group, acquire, Call::default()).await;
        acquired.unwrap().outcomes.remove(0)
    }

    async fn release(&self, tenure: &TenureId, name: &str) -> Result<()> {
        let name = LeaseName::new(name)?;
        let held = self.lease_of(&self.group, &name).await?.expect("a held lease");
        let leases = [(name, held.token)];
        let released = self.release_leases(&self.group, tenure, &leases, None, Call::default());
        released.await.map(drop)
    }

    fn turn(&self, tenure: &TenureId, name: &str) -> WaitingTurn {
        WaitingTurn {
            group: self.group.clone(),
            lease: LeaseName::new(name).unwrap(),
            tenure: tenure.clone(),
            request: RequestId::new(7).unwrap(),
            replaced: false,
        }
    }
}

#[tokio::test]
async fn grant_to_a_waiter_is_revealed_when_durable() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    world.acquire(&a, "l").await.unwrap();
    assert!(matches!(
        world.wait(&b, "l").await,
        AcquireOutcome::Waiting { ahead: 0, .. }
    ));
    let node = node();
    let mut turns = Box::pin(world.wait_for_grants(&node, PATIENCE));
    world.platter.hold(true);
    let mut releasing = Box::pin(world.release(&a, "l"));
    assert!(poll(&mut releasing).await.is_none() && poll(&mut turns).await.is_none());
    world.platter.hold(false);
    releasing.await.unwrap();
    assert_eq!(turns.await.unwrap(), [world.turn(&b, "l")]);
    assert!(matches!(world.wait(&b, "l").await, AcquireOutcome::Kept { .. }));
}

#[tokio::test]
async fn lost_grant_puts_the_waiter_back() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    world.acquire(&a, "l").await.unwrap();
    world.wait(&b, "l").await;
    world.platter.be(Luck::Full);
    world.release(&a, "l").await.unwrap_err();
    let held = world
        .lease_of(&world.group, &LeaseName::new("l").unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((held.tenure, held.waiting), (a.clone(), 1));
    world.platter.be(Luck::Good);
    world.release(&a, "l").await.unwrap();
    let turns = world.wait_for_grants(&node(), PATIENCE).await.unwrap();
    assert_eq!(turns, [world.turn(&b, "l")]);
    assert_eq!(world.holder("l").await.unwrap(), Some(b));
}
