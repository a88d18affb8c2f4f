//! Combining two sources.

use std::time::Duration;

use tenure_core::clock::{Mono, SystemClock};

use super::*;

fn primary(until: Option<u64>) -> Evidence {
    Evidence::Primary(Primacy {
        until: until.map(|seconds| Mono::from_origin(Duration::from_secs(seconds))),
        term: None,
        token: None,
    })
}

fn unclear(why: &str) -> Evidence {
    Evidence::Uncertain(why.to_owned())
}

#[test]
fn primary_needs_both_sources_and_replica_one() {
    let replica = Evidence::Replica;
    assert_eq!(both(&primary(None), &primary(None)), primary(None));
    assert_eq!(both(&primary(Some(5)), &primary(None)), primary(Some(5)));
    assert_eq!(both(&primary(Some(5)), &primary(Some(4))), primary(Some(4)));
    for other in [primary(None), replica.clone(), unclear("dark")] {
        assert_eq!(both(&replica, &other), replica);
        assert_eq!(both(&other, &replica), replica);
    }
    assert_eq!(both(&primary(None), &unclear("dark")), unclear("dark"));
    assert_eq!(both(&unclear("dark"), &primary(None)), unclear("dark"));
    assert_eq!(both(&unclear("dark"), &unclear("cold")), unclear("dark; cold"));
}

/// A source controlled by a test.
fn source(first: Evidence) -> (watch::Sender<Evidence>, Leadership) {
    let (tell, evidence) = watch::channel(first);
    (tell, Leadership::new(evidence, Vec::new()))
}

#[tokio::test]
async fn combined_evidence_follows_both_and_doubts_a_lost_source() {
    let (file, one) = source(primary(None));
    let (lease, other) = source(unclear("not asked yet"));
    let together = combine(&SystemClock::shared(), one, other);
    let mut said = together.evidence();
    assert_eq!(*said.borrow_and_update(), unclear("not asked yet"));
    lease.send_replace(primary(Some(9)));
    said.wait_for(|now| *now == primary(Some(9))).await.unwrap();
    file.send_replace(Evidence::Replica);
    said.wait_for(|now| *now == Evidence::Replica).await.unwrap();
    drop(lease);
    said.wait_for(|now| matches!(now, Evidence::Uncertain(_)))
        .await
        .unwrap();
}

#[tokio::test]
async fn always_stays_primary() {
    let source = always();
    let mut said = source.evidence();
    assert_eq!(*said.borrow_and_update(), Evidence::primary());
    // Neither a change nor the end of the channel.
    tokio::select! {
        biased;
        changed = said.changed() => panic!("{changed:?}"),
        () = std::future::ready(()) => {}
    }
}
