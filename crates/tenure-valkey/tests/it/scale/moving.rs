//! The pulses of a cluster, one on each primary, while slots move and primaries are away.

use std::time::{Duration, Instant};

use tenure_core::id::{Group, TenureId};
use tenure_core::membership::{Join, Labels, MembershipStore};
use tenure_core::pulse::BeatPulse;
use tenure_core::settling::LEVELS;
use tenure_core::store::{Backend, Call, Severity, Store};
use tenure_core::sweep::{Sweep, SweepSteps};
use tenure_testkit::valkey::cluster::Cluster;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;
use tenure_valkey::{ConnectionOptions, ValkeyStore};

use crate::scale::cluster::{GROUPS, cluster, slot_of};
use crate::world::*;

on_both! {
    a_group_that_moves_meets_a_gap,
    a_group_and_its_pulse_that_move_meet_a_gap,
    a_pulse_whose_slot_moves_goes_on,
    a_primary_that_is_away_stops_no_other_pulse,
    without_the_rights_there_is_no_pulse,
}

const TTL: Duration = Duration::from_secs(5);
/// The last slot of the third primary, which has its pulse.
const LAST: u16 = 16_383;

fn named(name: &str) -> Group {
    Group::new(name).expect("a good name")
}

async fn joined(store: &ValkeyStore, group: &Group) -> TenureId {
    let join = Join {
        member: member("a"),
        ttl: TTL,
        labels: Labels::default(),
    };
    store.join(group, &join, Call::default()).await.expect("a join").tenure
}

/// The tenures that a sweep ends; it is repeated while the map of the slots is old.
async fn ended(store: &ValkeyStore, group: &Group) -> Vec<TenureId> {
    let ended = std::sync::Mutex::new(Vec::new());
    wait::until_async("the group is served", PATIENCE, || async {
        let batch = store.end_lapsed(group, 10, Call::default()).await;
        batch.is_ok_and(|batch| {
            *ended.lock().expect("no panic") = batch.ended;
            true
        })
    })
    .await;
    ended.into_inner().expect("no panic")
}

async fn move_slot(cluster: &Cluster, slot: u16, from: &Server, to: &Server, lasts: Duration) {
    cluster.begin_move(slot, from, to);
    while cluster.move_keys(slot, from, to, 100) > 0 {}
    // tidy: waits on the time that a move of many keys takes
    tokio::time::sleep(lasts).await;
    cluster.end_move(slot, from, to);
}

async fn a_group_that_moves_meets_a_gap(flavour: Flavour) {
    let cluster = cluster(flavour);
    let (group, slot) = (named(GROUPS[0]), slot_of(&cluster, GROUPS[0]));
    let [to, from, _] = &cluster.nodes()[..3] else {
        panic!("three primaries")
    };
    let store = open(&cluster.url()).await;
    let _beats = serve(&store);
    // The node to which the group moves has served for long, and has raised its epoch.
    let resumed_at = async || store.due(TTL, 100).await.expect("the nodes answer").resumed_at;
    beaten(&store).await;
    let before = resumed_at().await;
    move_slot(&cluster, slot + 1, from, to, Duration::ZERO).await;
    wait::until_async("its pulse began again", PATIENCE, || async {
        resumed_at().await > before
    })
    .await;
    let tenure = joined(&store, &group).await;
    // A ttl in which the member cannot beat.
    move_slot(&cluster, slot, from, to, TTL + Duration::from_secs(1)).await;
    assert_eq!(ended(&store, &group).await, []);
    // The index of the node that the group left names it, and the visit puts it into the right one.
    wait::until_async("it is due", PATIENCE, || async {
        let due = store.due(TTL, 100).await.expect("the nodes answer");
        due.groups.iter().any(|(name, _)| *name == group)
    })
    .await;
    store.tick(&group).await.expect("a visit");
    wait::until_async("it lapses after a ttl of service", PATIENCE, || async {
        ended(&store, &group).await == std::slice::from_ref(&tenure)
    })
    .await;
}

async fn a_group_and_its_pulse_that_move_meet_a_gap(flavour: Flavour) {
    let cluster = cluster(flavour);
    let (group, slot) = (named(GROUPS[2]), slot_of(&cluster, GROUPS[2]));
    let [to, _, from] = &cluster.nodes()[..3] else {
        panic!("three primaries")
    };
    let store = open(&cluster.url()).await;
    let beats = serve(&store);
    beaten(&store).await;
    joined(&store, &group).await;
    // A ttl in which the member cannot beat, while the pulse is beaten.
    move_slot(&cluster, slot, from, to, TTL + Duration::from_secs(1)).await;
    drop(beats);
    move_slot(&cluster, LAST, from, to, Duration::ZERO).await;
    // It names the pulse that came with the slot, and nothing has beaten it at its new node.
    let later = open(&cluster.url()).await;
    assert_eq!(ended(&later, &group).await, []);
}

/// Beats all pulses, and again while the map of the slots is old.
async fn beaten(store: &ValkeyStore) {
    wait::until_async("all pulses are beaten", PATIENCE, || async {
        let beaten = store.beat_pulse(BeatPulse::default()).await;
        beaten.is_ok_and(|beaten| beaten.without.is_empty())
    })
    .await;
}

async fn a_pulse_whose_slot_moves_goes_on(flavour: Flavour) {
    let cluster = cluster(flavour);
    let group = named(GROUPS[2]);
    let [to, _, from] = &cluster.nodes()[..3] else {
        panic!("three primaries")
    };
    let store = open(&cluster.url()).await;
    beaten(&store).await;
    joined(&store, &group).await;
    for slot in (0..=LAST).rev() {
        beaten(&store).await;
        let (before, at) = (store.status(&group).await.expect("a status"), Instant::now());
        move_slot(&cluster, slot, from, to, Duration::ZERO).await;
        beaten(&store).await;
        let status = store.status(&group).await.expect("a status");
        // Not if the machine stalled.
        if at.elapsed() < LEVELS[0] {
            assert!(status.has_pulse);
            assert_eq!(status.resumed_at, before.resumed_at, "no gap");
            return;
        }
    }
    panic!("each move was slow");
}

async fn a_primary_that_is_away_stops_no_other_pulse(flavour: Flavour) {
    let cluster = cluster(flavour);
    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"])
            .unwrap();
    }
    let group = named(GROUPS[0]);
    // Calls to it wait for longer than a hole of the pulse.
    let patient = ConnectionOptions {
        request_timeout: TTL,
        ..options()
    };
    let store = open_with(&cluster.url(), patient).await;
    let _beats = serve(&store);
    let tenure = joined(&store, &group).await;
    cluster.nodes()[2].pause();
    wait::until_async("the pulse of one primary is missing", PATIENCE, || async {
        let beaten = store.beat_pulse(BeatPulse::default()).await;
        beaten.is_ok_and(|beaten| beaten.without.len() == 1)
    })
    .await;
    wait::until_async("a dead member elsewhere is due and ends", PATIENCE, || async {
        let due = store.due(Duration::ZERO, 100).await;
        let is_due = due.is_ok_and(|due| due.groups.iter().any(|(name, _)| *name == group));
        is_due && ended(&store, &group).await == std::slice::from_ref(&tenure)
    })
    .await;
    cluster.nodes()[2].resume();
    beaten(&store).await;
}

async fn without_the_rights_there_is_no_pulse(flavour: Flavour) {
    let cluster = cluster(flavour);
    for node in cluster.nodes() {
        node.cli(&["ACL", "SETUSER", "default", "-cluster|myid"]).unwrap();
    }
    let (store, group) = (open(&cluster.url()).await, named(GROUPS[0]));
    joined(&store, &group).await;
    let beaten = store.beat_pulse(BeatPulse::default()).await.expect("an answer");
    assert_eq!(beaten.without.len(), 3, "{beaten:?}");
    assert!(
        beaten.without[0].ends_with("the user may not run CLUSTER MYID and CLUSTER INFO"),
        "{beaten:?}"
    );
    assert!(!store.status(&group).await.expect("a status").has_pulse);
    let findings = store.examine().await;
    let pulses = findings.iter().filter(|finding| finding.check == "pulse");
    let warned = pulses.filter(|finding| finding.severity == Severity::Warning);
    assert_eq!(warned.count(), 3, "{findings:?}");
}
