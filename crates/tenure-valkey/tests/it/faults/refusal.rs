//! Reachable servers that refuse: busy with a foreign script, loading their data, short of replicas.

use std::sync::Arc;

use tenure_core::error::Outcome;
use tenure_core::membership::{BeatReply, EndBy, MembershipStore};
use tenure_core::store::{Backend, Call, Health};
use tenure_core::sweep::SweepSteps;
use tenure_testkit::valkey::{DURABLE, Flavour};
use tenure_testkit::wait;

use crate::world::*;

on_both! {
    server_busy_with_a_foreign_script_is_retried,
    loading_server_is_used_once_it_serves,
    missing_replicas_refuse_the_whole_step,
}

async fn server_busy_with_a_foreign_script_is_retried(flavour: Flavour) {
    let server = server(flavour, &["--lua-time-limit", "20"]);
    let store = open(&server.url()).await;
    let tenure = join(&store, "a").await;
    let mut other = server.client().expect("a client");
    other.send(&["EVAL", "while true do end", "0"]).expect("sent");
    wait::until("the server is busy", PATIENCE, || {
        server
            .cli(&["GET", "x"])
            .is_ok_and(|reply| reply.text().contains("BUSY"))
    });
    let refused = unavailable(try_beat(&store, &tenure).await, Outcome::Unchanged);
    assert!(refused.chain().contains("BUSY"), "{refused:?}");
    unavailable(claim(&store, &tenure, "k").await, Outcome::Unchanged);
    server.cli(&["SCRIPT", "KILL"]).expect("killed");
    other.receive().expect("the end of the script");
    until_up(&store).await;
    assert!(matches!(beat(&store, &tenure).await, BeatReply::Renewed { .. }));
}

async fn loading_server_is_used_once_it_serves(flavour: Flavour) {
    // It answers other clients after every 1,024 commands it loads, which is ten times a second.
    let slowly = [DURABLE, &["--key-load-delay", "100"]].concat();
    let server = Arc::new(server(flavour, &slowly));
    let store = open(&server.url()).await;
    let tenure = join(&store, "a").await;
    let mut client = server.client().expect("a client");
    for n in 0..30_000 {
        client.send(&["SET", "x", &n.to_string()]).expect("sent");
    }
    for _ in 0..30_000 {
        client.receive().expect("a reply");
    }
    server.kill();
    until_down(&store).await;
    let restarting = {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || server.restart_with_data())
    };
    wait::until_async("the server says that it is loading", PATIENCE, || async {
        matches!(store.health(), Health::Down { reason } if reason.contains("LOADING"))
    })
    .await;
    unavailable(try_beat(&store, &tenure).await, Outcome::Unchanged);
    restarting.await.expect("it serves again");
    until_up(&store).await;
    assert!(matches!(beat(&store, &tenure).await, BeatReply::Renewed { .. }));
}

async fn missing_replicas_refuse_the_whole_step(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    let tenure = join(&store, "a").await;
    claim(&store, &tenure, "k").await.expect("claimed");
    let before = dump(&server);
    server
        .cli(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .expect("set");
    let refused = unavailable(try_join(&store, "a").await, Outcome::Unchanged);
    assert!(refused.chain().contains("NOREPLICAS"), "{refused:?}");
    unavailable(claim(&store, &tenure, "other").await, Outcome::Unchanged);
    unavailable(try_beat(&store, &tenure).await, Outcome::Unchanged);
    unavailable(
        store.end(&group(), &tenure, EndBy::Leave, Call::default()).await,
        Outcome::Unchanged,
    );
    unavailable(store.tick(&group()).await, Outcome::Unchanged);
    assert_eq!(dump(&server), before, "a refused step left something behind");
    server
        .cli(&["CONFIG", "SET", "min-replicas-to-write", "0"])
        .expect("set");
    assert!(matches!(beat(&store, &tenure).await, BeatReply::Renewed { .. }));
}
