//! Cases about groups that are no longer used.

use super::world::{Make, World, lease, s};
use crate::event::EventId;
use crate::store::{Call, StoreOptions};
use crate::sweep::GroupStatus;
use crate::target::TargetSpec;

/// How long a group must stay empty before it is forgotten.
const AFTER: std::time::Duration = s(60);

async fn world(make: Make<'_>) -> World {
    let options = StoreOptions {
        max_ttl: s(10),
        forget_after: AFTER,
        ..StoreOptions::default()
    };
    World::with(make, options).await
}

impl World {
    async fn forgets(&self) -> bool {
        let sweeper = self.sweeper();
        let steps = sweeper.steps().expect("the sweeping store has steps");
        steps
            .forget_group(&self.group, Call::default())
            .await
            .expect("an answer")
    }

    async fn is_listed(&self) -> bool {
        self.sweeper().groups().await.expect("a list").contains(&self.group)
    }

    /// Advances the clock, then runs a sweep of the group.
    async fn rests(&self, time: std::time::Duration) -> GroupStatus {
        self.pass(time).await;
        self.sweep("rest").await;
        self.tick().await
    }
}

/// The group is removed with its events and metadata. A group created later under the same name continues above its
/// numbers.
pub async fn a_long_empty_group_is_forgotten(make: Make<'_>) {
    let world = world(make).await;
    let a = world.join("a", s(6)).await;
    let token = world.granted(&a, "poll").await;
    world.leave(&a).await;
    world.rests(s(5)).await;
    let since = world.rests(s(30)).await.empty_since.expect("it is empty");
    assert!(!world.forgets().await, "it has not been empty long enough");
    assert_eq!(world.rests(s(40)).await.empty_since, Some(since));
    assert!(world.forgets().await);
    assert!(!world.is_listed().await);
    assert!(world.forgets().await, "it is gone");
    assert_eq!(world.end_lapsed().await, []);
    assert_eq!(world.tick().await.last_event, EventId(0));
    assert!(!world.is_listed().await, "a sweep does not bring it back");
    // The group is created again, without a wait.
    let b = world.join("b", s(6)).await;
    assert!(world.is_listed().await);
    assert!(b.term() > a.term());
    assert!(world.granted(&b, "poll").await > token);
    assert_eq!(world.tick().await.empty_since, None);
}

/// A member, a target or a recent change keeps the group.
pub async fn a_group_with_contents_is_kept(make: Make<'_>) {
    let world = world(make).await;
    let (store, call, target) = (&world.store, Call::default(), lease("t"));
    let a = world.join("a", s(6)).await;
    assert!(!world.forgets().await, "it has a member");
    let put = store
        .put_target(&world.group, &target, TargetSpec::default(), call)
        .await;
    put.expect("a target");
    world.leave(&a).await;
    assert!(world.rests(s(90)).await.empty_since.is_some());
    assert!(!world.forgets().await, "it has a target");
    let removed = store.remove_target(&world.group, &target, call).await;
    removed.expect("no target");
    world.rests(s(40)).await;
    assert!(!world.forgets().await, "what kept it restarts the wait");
    world.rests(s(40)).await;
    // A member joins between the status read and the step.
    world.join("b", s(6)).await;
    assert!(!world.forgets().await, "it has a member again");
    assert!(world.is_listed().await);
}
