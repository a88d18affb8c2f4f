//! A real cluster of six nodes: failover and the move of a slot under load, and what is asked of all nodes.

use std::time::{Duration, Instant};

use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::id::Group;
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::{Join, Labels, MembershipStore};
use tenure_core::store::{Call, Health, Severity, Store, StoreOptions};
use tenure_testkit::valkey::Flavour;
use tenure_testkit::valkey::cluster::Cluster;
use tenure_testkit::wait;
use tenure_valkey::{Connection, ConnectionOptions};

use crate::load::Load;
use crate::world::*;

on_both! {
    the_death_of_a_primary_ends_nobody,
    a_slot_that_moves_under_load_ends_nobody,
    all_nodes_are_looked_at_and_all_groups_are_listed,
    a_user_of_a_cluster_needs_one_rule_more,
}

/// One group on each primary: the second, the first, the third.
const GROUPS: [&str; 3] = ["ingest", "g2", "g1"];

fn cluster(flavour: Flavour) -> Cluster {
    let cluster = Cluster::start(flavour, &[]).expect("these tests need their servers");
    for group in GROUPS {
        // Groups that have been there for long, so that they do not wait for a longest ttl.
        let marker = format!("{{tenure:{group}}}:store");
        cluster.run_on(&marker, &["HSET", &marker, "born", "1"]);
    }
    cluster
}

fn slot_of(cluster: &Cluster, group: &str) -> u16 {
    cluster.slot_of(&format!("{{tenure:{group}}}:meta"))
}

async fn the_death_of_a_primary_ends_nobody(flavour: Flavour) {
    let cluster = cluster(flavour);
    let store = open(&cluster.url()).await;
    assert_eq!(store.health(), Health::Up);
    let mut loads = Vec::new();
    for group in GROUPS {
        loads.push(Load::start(&store, group).await);
    }
    let slot = slot_of(&cluster, GROUPS[0]);
    // Replicas that were just made may not have heard of anything yet.
    for (primary, replica) in cluster.nodes().iter().zip(cluster.nodes().iter().skip(3)) {
        replica.catch_up_with(primary);
    }
    let (killed, at) = (cluster.owner(slot).unwrap(), Instant::now());
    killed.kill();
    tenure_testkit::wait::until("a replica takes over", 4 * PATIENCE, || {
        cluster.owner(slot).is_some_and(|owner| owner.port() != killed.port())
    });
    let taken = at.elapsed();
    for (group, load) in GROUPS.iter().zip(&loads) {
        let (beaten, granted) = load.until_served(at + taken).await;
        eprintln!(
            "{flavour:?} cluster, primary of {} killed, {group}: taken over after {taken:?}, beats +{beaten:?}, grants +{granted:?}",
            GROUPS[0]
        );
    }
    killed.restart_with_data();
    cluster.until_whole();
    for load in loads {
        load.until_served(Instant::now()).await;
        load.end("cluster failover").await;
    }
    until_up(&store).await;
}

async fn a_slot_that_moves_under_load_ends_nobody(flavour: Flavour) {
    let cluster = cluster(flavour);
    let store = open(&cluster.url()).await;
    let load = Load::start(&store, GROUPS[0]).await;
    let bystander = Load::start(&store, GROUPS[1]).await;
    let slot = slot_of(&cluster, GROUPS[0]);
    let from = cluster.owner(slot).unwrap();
    let to = cluster
        .nodes()
        .iter()
        .take(3)
        .find(|node| node.port() != from.port())
        .unwrap();
    // There and back: the second time the node that takes it has served the group before.
    // And slower, so that it is a gap.
    for (from, to, pace) in [(from, to, 30), (to, from, 100)] {
        let at = Instant::now();
        cluster.begin_move(slot, from, to);
        let mut moved = 0;
        loop {
            let keys = cluster.move_keys(slot, from, to, 1);
            if keys == 0 {
                break;
            }
            moved += keys;
            // One key at a time, so that many calls meet a group that is here and there.
            tokio::time::sleep(Duration::from_millis(pace)).await; // tidy: waits on the pace of the move
        }
        cluster.end_move(slot, from, to);
        let ended = at.elapsed();
        let (beaten, granted) = load.until_served(at + ended).await;
        eprintln!(
            "{flavour:?} cluster, slot moved ({moved} keys in {ended:?}): beats +{beaten:?}, grants +{granted:?}"
        );
    }
    load.end("slot moved").await;
    bystander.end("beside it").await;
}

async fn all_nodes_are_looked_at_and_all_groups_are_listed(flavour: Flavour) {
    let cluster = cluster(flavour);
    let store = open(&cluster.url()).await;
    for group in GROUPS {
        Load::start(&store, group).await.end("quiet").await;
    }
    let mut names = GROUPS.map(|name| Group::new(name).unwrap());
    names.sort();
    assert_eq!(store.groups().await.unwrap(), names);
    let findings = store.examine().await;
    let of = |check: &str| findings.iter().filter(|finding| finding.check == check).count();
    assert_eq!((of("cluster"), of("role"), of("eviction")), (1, 3, 3), "{findings:?}");
    assert!(
        findings.iter().all(|finding| finding.severity != Severity::Error),
        "{findings:?}"
    );
    assert!(store.now().await.unwrap().micros() > 0);
    // A group that nobody has heard of may have been lost with its node.
    let (new, longest) = (Group::new("new").unwrap(), StoreOptions::default().max_ttl);
    let a = Join {
        member: member("a"),
        ttl: Duration::from_secs(30),
        labels: Labels::default(),
    };
    let joined = store.join(&new, &a, Call::default()).await.unwrap();
    let leases = [lease("poll")];
    let acquired = store.acquire(&new, &joined.tenure, &leases, Call::default()).await;
    match &acquired.unwrap().outcomes[0] {
        AcquireOutcome::Unsettled { retry_in } => assert!(*retry_in > longest - PATIENCE, "{retry_in:?}"),
        other => panic!("{other:?}"),
    }
    // Other programs' keys are looked at on one server at a time.
    let clock = tenure_core::clock::SystemClock::shared();
    let refused = Connection::open(&cluster.url(), ConnectionOptions::default(), Vec::new(), clock);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
}

async fn a_user_of_a_cluster_needs_one_rule_more(flavour: Flavour) {
    let cluster = cluster(flavour);
    let least = [
        "~{tenure:*",
        "~tenure:*",
        "+@hash",
        "+@set",
        "+@sortedset",
        "+@stream",
        "+unlink",
    ];
    let user = [
        "ACL", "SETUSER", "app", "reset", "on", ">s3cret", "+eval", "+evalsha", "+time",
    ];
    let run = |args: &[&str]| {
        for node in cluster.nodes() {
            assert_eq!(node.cli(args).unwrap().text(), "OK", "{args:?}");
        }
    };
    run(&[&user[..], &least].concat());
    let store = open(&cluster.url().replace("://", "://app:s3cret@")).await;
    // A node that was slow to connect is told of only until one refuses.
    wait::until_async("a node refuses", PATIENCE, || async {
        matches!(try_join(&store, "a").await, Err(error) if error.kind() == ErrorKind::Denied)
    })
    .await;
    let error = try_join(&store, "a").await.expect_err("CLUSTER SLOTS is denied");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Denied, Outcome::Unchanged),
        "{error:?}"
    );
    assert!(error.chain().contains("+cluster|slots"), "{error:?}");
    run(&["ACL", "SETUSER", "app", "+cluster|slots"]);
    until_up(&store).await;
    let tenure = join(&store, "a").await;
    claim(&store, &tenure, "k").await.unwrap();
    assert_eq!(store.groups().await.unwrap(), [group()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_away_fails_at_once_and_a_lone_node_is_no_plain_server() {
    let cluster = cluster(Flavour::Valkey);
    let plain = open(&cluster.nodes()[0].url()).await;
    let error = try_join(&plain, "a").await.expect_err("a node of a cluster");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.message().contains("valkey-cluster://"), "{error:?}");
    let store = open(&cluster.url()).await;
    join(&store, "a").await;
    for node in cluster.nodes() {
        node.kill();
    }
    until_down(&store).await;
    let began = Instant::now();
    unavailable(try_join(&store, "a").await, Outcome::Unchanged);
    within_deadline(began);
    let away = open("valkey-cluster://127.0.0.1:1").await;
    unavailable(try_join(&away, "a").await, Outcome::Unchanged);
    let Health::Down { reason } = away.health() else {
        panic!("up without a node")
    };
    assert!(reason.contains("127.0.0.1:1"), "{reason}");
}
