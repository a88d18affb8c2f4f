//! Resting groups: rarely visited, and swept again when something happens in them.

use tenure_core::membership::EndBy;

use super::*;

/// A group that all members left long enough ago that it rests.
async fn resting() -> (World, Group) {
    let (world, g) = (world(1), group("g"));
    let tenure = world.join(&g, "a").await;
    world.sweepers[0].0.touch(&g);
    world.pass(secs(1)).await;
    let left = world.memory.end(&g, &tenure, EndBy::Leave, Call::default());
    left.await.unwrap();
    world.pass(secs(90)).await;
    (world, g)
}

#[tokio::test]
async fn empty_group_is_rarely_visited() {
    let (world, _) = resting().await;
    let before = world.store.calls(Verb::Tick);
    world.pass(secs(600)).await;
    let visits = world.store.calls(Verb::Tick) - before;
    assert!(visits <= 1, "{visits} visits in ten minutes");
}

#[tokio::test]
async fn join_through_another_process_ends_the_rest() {
    let (world, g) = resting().await;
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 3).await;
    world.pass(TTL + secs(10)).await;
    assert_eq!(world.evicted(&g).await, 3);
}

#[tokio::test]
async fn join_through_this_process_ends_the_rest_immediately() {
    let (world, g) = resting().await;
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 3).await;
    world.sweepers[0].0.touch(&g);
    world.pass(TTL + ms(500)).await;
    assert_eq!(world.evicted(&g).await, 3);
}

#[tokio::test]
async fn group_of_ended_members_is_forgotten() {
    let clock = Arc::new(ManualClock::new(START, 11));
    let forget_after = secs(600);
    let options = StoreOptions {
        max_ttl: TTL,
        forget_after,
        ..StoreOptions::default()
    };
    let memory: Arc<dyn Store> = MemoryStore::new(options, clock.clone());
    let settings = SweeperSettings {
        forget_after,
        ..SweeperSettings::default()
    };
    let loops = Loops::new(clock.clone(), Handle::current());
    let sweeper = Sweeper::start(Arc::clone(&memory), clock.clone(), settings, &loops).unwrap();
    let world = World {
        store: Faulty::new(Arc::clone(&memory), clock.clone()),
        clock,
        memory,
        sweepers: vec![(sweeper, loops)],
        telemetry: Telemetry::default(),
    };
    let g = group("g");
    world.join(&g, "dead").await;
    world.pass(TTL + secs(30)).await;
    assert_eq!(world.memory.groups().await.unwrap().len(), 1);
    world.pass(forget_after * 3).await;
    assert_eq!(world.memory.groups().await.unwrap(), []);
    // Its name is back in the list.
    let sweeper = &world.sweepers[0].0;
    sweeper.touch(&g);
    assert_eq!(sweeper.groups(), [g]);
    world.pass(secs(1)).await;
    assert_eq!(sweeper.groups(), [], "a group that no longer exists is dropped");
}
