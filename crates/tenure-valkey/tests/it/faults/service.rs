//! A pulse that is refused and delayed whenever beats are: a store that did not serve ends no member.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::id::TenureId;
use tenure_core::membership::{Join, Labels, MembershipStore};
use tenure_core::pulse::BeatPulse;
use tenure_core::store::{Call, Store};
use tenure_core::sweep::SweepSteps;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;
use tenure_valkey::ValkeyStore;

use crate::faults::permission::{LEAST, user};
use crate::world::*;

on_both! {
    refused_beats_end_no_member,
    a_step_that_waited_in_a_frozen_server_ends_no_member,
}

const TTL: Duration = Duration::from_secs(2);

async fn joined(store: &ValkeyStore) -> TenureId {
    let join = Join {
        member: member("a"),
        ttl: TTL,
        labels: Labels::default(),
    };
    let joined = store.join(&group(), &join, Call::default()).await;
    joined.expect("a join").tenure
}

/// Ends lapsed members as soon as the store lets it.
async fn ended(store: &ValkeyStore) -> Vec<TenureId> {
    let began = Instant::now();
    loop {
        match store.end_lapsed(&group(), 10, Call::default()).await {
            Ok(batch) => return batch.ended,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error:?}"),
        }
        tokio::task::yield_now().await;
    }
}

async fn refused_beats_end_no_member(flavour: Flavour) {
    let set = |server: &Server, name: &str, value: &str| drop(server.cli(&["CONFIG", "SET", name, value]).unwrap());
    let may = |server: &Server, more: &str| drop(user(server, &[LEAST, &[more]].concat()));
    type Change<'a> = &'a dyn Fn(&Server, bool);
    let causes: [(&str, Change<'_>); 3] = [
        ("memory", &|server, is_refused| {
            set(server, "maxmemory", if is_refused { "1" } else { "0" })
        }),
        ("replicas", &|server, is_refused| {
            set(server, "min-replicas-to-write", if is_refused { "1" } else { "0" });
        }),
        ("rights", &|server, is_refused| {
            may(server, if is_refused { "-hset" } else { "+hset" })
        }),
    ];
    for (cause, refuse) in causes {
        let server = server(flavour, &[]);
        mature(&server);
        let store = open(&user(&server, LEAST)).await;
        let _beats = serve(&store);
        let tenure = joined(&store).await;
        refuse(&server, true);
        wait::until_async(cause, PATIENCE, || async {
            store.beat_pulse(BeatPulse::default()).await.is_err()
        })
        .await;
        // tidy: waits on two ttls without service
        tokio::time::sleep(TTL * 2).await;
        assert!(try_beat(&store, &tenure).await.is_err(), "{cause}");
        refuse(&server, false);
        assert_eq!(ended(&store).await, [], "{cause}");
        wait::until_async("it lapses after a ttl of service", PATIENCE, || async {
            ended(&store).await == std::slice::from_ref(&tenure)
        })
        .await;
    }
}

async fn a_step_that_waited_in_a_frozen_server_ends_no_member(flavour: Flavour) {
    let server = server(flavour, &[]);
    mature(&server);
    let store = open(&server.url()).await;
    let beats = serve(&store);
    joined(&store).await;
    store.beat_pulse(BeatPulse::default()).await.expect("a beat");
    server.pause();
    let waiting = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.end_lapsed(&group(), 10, Call::default()).await })
    };
    // tidy: waits on two ttls without service
    tokio::time::sleep(TTL * 2).await;
    drop(beats);
    server.resume();
    let batch = waiting.await.expect("no panic").expect("a batch");
    assert_eq!(batch.ended, [], "what was true when it was sent counts for nothing");
}
