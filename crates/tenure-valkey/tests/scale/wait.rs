//! `wait=N`: a lease counts as granted once replicas have it.

use std::time::{Duration, Instant};

use tenure_core::error::Outcome;
use tenure_core::lease::AcquireOutcome;
use tenure_core::membership::BeatReply;
use tenure_testkit::valkey::Flavour;

use crate::world::*;

on_both! { a_grant_that_too_few_replicas_have_is_unknown }

async fn a_grant_that_too_few_replicas_have_is_unknown(flavour: Flavour) {
    let (primary, replica) = (server(flavour, &[]), server(flavour, &[]));
    mature(&primary);
    replica.replica_of(&primary);
    replica.catch_up_with(&primary);
    let store = open(&format!("{}?wait=1&wait_timeout=2s", primary.url())).await;
    let (a, b) = (join(&store, "a").await, join(&store, "b").await);
    let before = Instant::now();
    assert!(matches!(
        acquire(&store, &a, "first").await.unwrap(),
        AcquireOutcome::Granted { .. }
    ));
    eprintln!("{flavour:?}: a grant with wait=1 took {:?}", before.elapsed());
    replica.pause();
    let (asked, beaten) = tokio::join!(acquire(&store, &a, "second"), async {
        // Whoever does not need the replicas does not wait for them.
        let before = Instant::now();
        let reply = beat(&store, &b).await;
        (reply, before.elapsed())
    });
    let error = unavailable(asked, Outcome::Unknown);
    assert!(error.message().starts_with("0 of 1 replicas"), "{error:?}");
    assert!(matches!(beaten.0, BeatReply::Renewed { .. }), "{beaten:?}");
    assert!(beaten.1 < Duration::from_millis(300), "{beaten:?}");
    replica.resume();
    replica.catch_up_with(&primary);
    // It was granted all the same: asking again tells, now that the replica has it.
    assert!(matches!(
        acquire(&store, &a, "second").await.unwrap(),
        AcquireOutcome::Kept { .. }
    ));
}
