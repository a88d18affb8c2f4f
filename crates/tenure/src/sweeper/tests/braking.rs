//! The brake, as reported by a janitor.

use super::*;

/// A member that beats and nineteen that do not.
async fn fleet(world: &World, g: &Group) -> TenureId {
    for n in 0..19 {
        world.join(g, &format!("dead-{n}")).await;
    }
    world.join(g, "alive").await
}

#[tokio::test]
async fn mass_lapse_engages_the_brake_once_until_its_time_ends() {
    let world = world(3);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let alive = world.join(&g, "alive").await;
    for n in 0..19 {
        let dead = world.join(&g, &format!("dead-{n}")).await;
        world.claim(&g, &dead, 10).await;
    }
    world.keep_alive(&g, &alive, TTL + secs(60)).await;
    assert_eq!(world.telemetry.count("tenure_ended_total"), 19, "expiry continues");
    assert_eq!(world.evicted(&g).await, 0, "removal is");
    assert!(world.telemetry.gauge("tenure_brake_engaged") > 0.5);
    assert_eq!(world.telemetry.lines("WARN braked"), 1);
    world.keep_alive(&g, &alive, secs(300)).await;
    assert_eq!(world.evicted(&g).await, 190);
    assert_eq!(world.telemetry.count("tenure_registry_evicted_total"), 190);
    assert_eq!(
        (
            world.telemetry.lines("WARN braked"),
            world.telemetry.lines("WARN unbraked")
        ),
        (1, 1)
    );
    assert!(world.telemetry.gauge("tenure_brake_engaged") < 0.5);
}

#[tokio::test]
async fn brake_is_reported_by_the_step_that_engaged_it() {
    let world = world(1);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let alive = fleet(&world, &g).await;
    // A mass lapse writes many events; none of them is needed.
    let failing = Fault::Fail(ErrorKind::Unavailable);
    world.store.always(Verb::Events, Some(failing));
    world.keep_alive(&g, &alive, TTL + secs(5)).await;
    assert_eq!(world.telemetry.count("tenure_ended_total"), 19);
    assert_eq!(
        (world.telemetry.lines("WARN braked"), world.store.calls(Verb::Events)),
        (1, 0)
    );
}

#[tokio::test]
async fn brake_is_reported_when_the_next_tick_fails() {
    let world = world(1);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let alive = fleet(&world, &g).await;
    world.keep_alive(&g, &alive, TTL - ms(1)).await;
    world.store.next(Verb::EndLapsed, Fault::Delay(ms(50)));
    let ends = world.store.calls(Verb::EndLapsed);
    pass_until(&world.clock, "they are due", secs(1), || {
        world.store.calls(Verb::EndLapsed) > ends
    })
    .await;
    world
        .store
        .always(Verb::Tick, Some(Fault::Fail(ErrorKind::Unavailable)));
    world.keep_alive(&g, &alive, ms(100)).await;
    let told = |world: &World| {
        (
            world.telemetry.count("tenure_ended_total"),
            world.telemetry.lines("WARN braked"),
        )
    };
    assert_eq!(told(&world), (19, 0));
    world.store.always(Verb::Tick, None);
    world.keep_alive(&g, &alive, secs(5)).await;
    assert_eq!(told(&world), (19, 1));
}
