//! Claims with lost replies, and the claims of an earlier tenure.

use super::*;

#[tokio::test]
async fn data_loss_leads_to_rejoin_and_reclaim() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    registry.claim_many(["d1", "d2", "d3"], ClaimMode::Take).await.unwrap();
    let tenure = membership.tenure();
    let empty = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    world.store.swap(empty.clone());
    world.until("it joined again", || membership.tenure() != tenure).await;
    world.pass(ms(100)).await;
    for key in ["d1", "d2", "d3"] {
        let claim = registry.look_up(key).await.unwrap().unwrap();
        assert!(claim.alive && claim.tenure == membership.tenure(), "{claim:?}");
    }
    assert_eq!(membership.status().rejoins, 1);
}

#[tokio::test]
async fn data_loss_does_not_reclaim_keys_of_others() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    let keys: Vec<String> = (0..1_500).map(|n| format!("d{n}")).collect();
    registry.claim_many(&keys, ClaimMode::Take).await.unwrap();
    let rival = world.other.join(named("b")).await.unwrap();
    rival.registry("devices").unwrap().claim("d7").await.unwrap();
    // The review runs once a minute.
    world.pass(secs(80)).await;
    assert_eq!(registry.remembered(), 1_499);
    let lost = registry.lost_claims().await;
    assert_eq!(
        (lost.len(), lost[0].key.as_str(), &lost[0].to),
        (1, "d7", &rival.tenure())
    );
    let tenure = membership.tenure();
    let empty = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    world.store.swap(empty.clone());
    world.until("it joined again", || membership.tenure() != tenure).await;
    world.pass(ms(100)).await;
    assert_eq!(registry.look_up("d7").await.unwrap(), None);
    assert_eq!(
        registry.look_up("d8").await.unwrap().unwrap().tenure,
        membership.tenure()
    );
}

#[tokio::test]
async fn panicking_claim_review_is_retried() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    registry.claim("d7").await.unwrap();
    let rival = world.other.join(named("b")).await.unwrap();
    rival.registry("devices").unwrap().claim("d7").await.unwrap();
    world.store.next(Verb::Look, Fault::Panic);
    world.pass(secs(80)).await;
    assert_eq!(registry.remembered(), 0);
}

#[tokio::test]
async fn lapse_reclaims_free_keys_and_reports_lost_ones() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    registry
        .claim_many(["kept", "moved", "released"], ClaimMode::Take)
        .await
        .unwrap();
    registry.release("released").await.unwrap();
    world.store.cut(true);
    world.pass(TTL * 2).await;
    let rival = world.other.join(named("b")).await.unwrap();
    rival.registry("devices").unwrap().claim("moved").await.unwrap();
    world.store.cut(false);
    let lost = Arc::new(Mutex::new(Vec::new()));
    let (told, watched) = (Arc::clone(&lost), registry.clone());
    tokio::spawn(async move { *told.lock().unwrap() = watched.lost_claims().await });
    world
        .until("the loss is reported", || !lost.lock().unwrap().is_empty())
        .await;
    let lost = lost.lock().unwrap().clone();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].key.as_str(), &lost[0].to), ("moved", &rival.tenure()));
    assert_eq!(
        registry.look_up("kept").await.unwrap().unwrap().tenure,
        membership.tenure()
    );
    assert_eq!(registry.look_up("moved").await.unwrap().unwrap().tenure, rival.tenure());
    assert_eq!(registry.look_up("released").await.unwrap(), None);
    assert_eq!(registry.remembered(), 1);
}

#[tokio::test]
async fn reclaim_survives_store_failures() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    let keys: Vec<String> = (0..2_500).map(|n| format!("d{n}")).collect();
    registry.claim_many(&keys, ClaimMode::Take).await.unwrap();
    world.store.cut(true);
    world.pass(TTL * 2).await;
    for fault in [
        Fault::LoseReply,
        Fault::Fail(ErrorKind::Unavailable),
        Fault::Hang { applied: true },
        Fault::Panic,
    ] {
        world.store.next(Verb::Claim, fault);
    }
    world.store.cut(false);
    let before = world.store.calls(Verb::Claim);
    world
        .until("all is claimed again", || {
            world.store.calls(Verb::Claim) >= before + 4 + 3
        })
        .await;
    world.pass(ms(100)).await;
    for key in ["d0", "d999", "d1000", "d2499"] {
        assert_eq!(
            registry.look_up(key).await.unwrap().unwrap().tenure,
            membership.tenure(),
            "{key}"
        );
    }
}

#[tokio::test]
async fn claim_with_lost_reply_is_read_back() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("r").unwrap();
    world.store.next(Verb::Claim, Fault::LoseReply);
    assert_eq!(registry.claim("k").await.unwrap(), ClaimOutcome::Kept);
    assert_eq!(registry.remembered(), 1);
    let rival = world.other.join(named("b")).await.unwrap().registry("r").unwrap();
    assert!(matches!(
        rival.claim_if_absent("k").await.unwrap(),
        ClaimOutcome::Held { .. }
    ));
    assert!(matches!(rival.claim("k").await.unwrap(), ClaimOutcome::Moved { .. }));
    assert_eq!(registry.release("k").await.unwrap_err().kind(), ErrorKind::NotOwner);
    assert_eq!(registry.remembered(), 0, "a key of another owner is not reclaimed");
}

#[tokio::test]
async fn claim_that_did_not_arrive_is_made_again_if_free() {
    let world = world().await;
    let registry = world.join().await.registry("r").unwrap();
    world.store.next(Verb::Claim, Fault::LoseRequest);
    assert_eq!(registry.claim("k").await.unwrap(), ClaimOutcome::New);
    for _ in 0..2 {
        world.store.next(Verb::Claim, Fault::LoseRequest);
    }
    assert_eq!(registry.claim("other").await.unwrap_err().outcome(), Outcome::Unknown);
    let rival = world.other.join(named("b")).await.unwrap().registry("r").unwrap();
    rival.claim("taken").await.unwrap();
    world.store.next(Verb::Claim, Fault::LoseRequest);
    // It may have been ours for a moment, and have moved on.
    assert_eq!(registry.claim("taken").await.unwrap_err().outcome(), Outcome::Unknown);
    let owner = registry.look_up("taken").await.unwrap().unwrap().owner;
    assert_eq!(owner.as_str(), "b");
    assert_eq!(registry.remembered(), 1);
}
