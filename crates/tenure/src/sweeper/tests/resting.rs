//! Empty groups: rarely visited, and swept again as soon as something happens in them.

use tenure_core::membership::EndBy;

use super::*;

/// A group that everyone left so long ago that it rests.
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
async fn an_empty_group_costs_next_to_nothing() {
    let (world, _) = resting().await;
    let before = world.store.calls(Verb::Tick);
    world.pass(secs(600)).await;
    let visits = world.store.calls(Verb::Tick) - before;
    assert!(visits <= 1, "{visits} visits in ten minutes");
}

#[tokio::test]
async fn a_join_through_another_process_ends_the_rest() {
    let (world, g) = resting().await;
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 3).await;
    world.pass(TTL + secs(10)).await;
    assert_eq!(world.evicted(&g).await, 3);
}

#[tokio::test]
async fn a_join_through_this_process_ends_the_rest_immediately() {
    let (world, g) = resting().await;
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 3).await;
    world.sweepers[0].0.touch(&g);
    world.pass(TTL + ms(500)).await;
    assert_eq!(world.evicted(&g).await, 3);
}
