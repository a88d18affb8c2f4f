//! Leases when the store loses acknowledged writes.

use std::time::Duration;

use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::{Beat, BeatReply, MembershipStore};
use tenure_core::settling::GapCause;
use tenure_core::store::{Call, PageRequest};
use tenure_core::sweep::Sweep;
use tenure_testkit::valkey::Flavour;

use crate::world::*;

on_both! {
    lost_grant_is_noticed_within_one_beat,
    new_store_grants_nothing_before_the_longest_ttl,
}

async fn lost_grant_is_noticed_within_one_beat(flavour: Flavour) {
    let (primary, replica) = (server(flavour, &[]), server(flavour, &[]));
    mature(&primary);
    let before = open(&primary.url()).await;
    let (a, b) = (join(&before, "a").await, join(&before, "b").await);
    replica.replica_of(&primary);
    // The replica has the joins; from here on it lags forever.
    replica.promote();
    let leases = [lease("poll")];
    let granted = before.acquire(&group(), &a, &leases, Call::default()).await.unwrap();
    let token = granted.outcomes[0].token().expect("a grant");
    primary.kill();

    let store = open(&replica.url()).await;
    let told = |tenure: &tenure_core::TenureId, revision| Beat {
        revision,
        ..Beat::of(tenure.clone())
    };
    let beats = [
        told(&b, tenure_core::membership::Revision::NONE),
        told(&a, granted.revision),
    ];
    let beaten = store.beat(&group(), &beats).await.unwrap();
    match beaten.replies[1] {
        BeatReply::Renewed { revision, .. } => assert!(revision < granted.revision, "{revision:?}"),
        ref other => panic!("{other:?}"),
    }
    let status = store.status(&group()).await.unwrap();
    assert_eq!(
        status.unsettled.map(|unsettled| unsettled.cause),
        Some(GapCause::TailLoss)
    );
    // The lease is not granted while its lost holder may still use it.
    match acquire(&store, &b, "poll").await.unwrap() {
        AcquireOutcome::Unsettled { retry_in, .. } => assert!(retry_in > Duration::from_secs(25), "{retry_in:?}"),
        other => panic!("{other:?}"),
    }
    let held = store.held_leases(&group(), &a, &PageRequest::default()).await.unwrap();
    assert_eq!(held.page.items, []);
    // The next token is above the lost one, although the store has no record of it.
    let again = join(&store, "c").await;
    assert!(again.term().get() > token.get());
}

async fn new_store_grants_nothing_before_the_longest_ttl(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    let a = join(&store, "a").await;
    let longest = tenure_core::store::StoreOptions::default().max_ttl;
    match acquire(&store, &a, "poll").await.unwrap() {
        AcquireOutcome::Unsettled { retry_in, .. } => {
            assert!(retry_in <= longest && retry_in > longest - PATIENCE, "{retry_in:?}");
        }
        other => panic!("{other:?}"),
    }
}
