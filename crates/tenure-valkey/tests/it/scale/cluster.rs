//! A real cluster of six nodes: failover and slot migration under load, and calls to all nodes.

use std::time::{Duration, Instant};

use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::id::Group;
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::{Join, Labels, MembershipStore};
use tenure_core::store::{Backend, Call, Health, Severity, Store, StoreOptions};
use tenure_testkit::certs::Certs;
use tenure_testkit::valkey::Flavour;
use tenure_testkit::valkey::cluster::Cluster;
use tenure_testkit::valkey::cluster::tls::TlsCluster;
use tenure_testkit::wait;
use tenure_valkey::ConnectionOptions;
use tenure_valkey::connection::Connection;

use crate::scale::load::Load;
use crate::world::*;

on_both! {
    primary_failure_ends_no_tenure,
    slot_migration_under_load_ends_no_tenure,
    all_nodes_are_checked_and_all_groups_listed,
    cluster_user_needs_one_more_rule,
    cluster_works_over_tls,
}

/// One group on each primary: the second, the first, the third.
pub(super) const GROUPS: [&str; 3] = ["ingest", "g2", "g1"];

pub(super) fn cluster(flavour: Flavour) -> Cluster {
    let cluster = mortal(flavour);
    cluster.set_node_timeout(PATIENCE);
    cluster
}

/// A cluster that detects a killed node soon.
fn mortal(flavour: Flavour) -> Cluster {
    let cluster = Cluster::start(flavour, &[]).expect("these tests need their servers");
    for group in GROUPS {
        // Old groups, which need not wait for a longest ttl.
        let marker = format!("{{tenure:{group}}}:store");
        cluster.run_on(&marker, &["HSET", &marker, "born", "1"]);
    }
    cluster
}

pub(super) fn slot_of(cluster: &Cluster, group: &str) -> u16 {
    cluster.slot_of(&format!("{{tenure:{group}}}:meta"))
}

async fn primary_failure_ends_no_tenure(flavour: Flavour) {
    let cluster = mortal(flavour);
    let store = open(&cluster.url()).await;
    assert_eq!(store.health(), Health::Up);
    let mut loads = Vec::new();
    for group in GROUPS {
        loads.push(Load::start(&store, group).await);
    }
    let slot = slot_of(&cluster, GROUPS[0]);
    // New replicas may not have any data yet.
    for (primary, replica) in cluster.nodes().iter().zip(cluster.nodes().iter().skip(3)) {
        replica.catch_up_with(primary);
    }
    let (killed, at) = (cluster.owner(slot).unwrap(), Instant::now());
    killed.kill();
    tenure_testkit::wait::until("a replica takes over", 2 * PATIENCE, || {
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

async fn slot_migration_under_load_ends_no_tenure(flavour: Flavour) {
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
    // There and back: the second time the importing node has served the group before.
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
            // One key at a time, so that many calls meet a half-migrated group.
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

async fn all_nodes_are_checked_and_all_groups_listed(flavour: Flavour) {
    let cluster = cluster(flavour);
    let store = open(&cluster.url()).await;
    for group in GROUPS {
        Load::start(&store, group).await.end("quiet").await;
    }
    let mut names = GROUPS.map(|name| Group::new(name).unwrap());
    names.sort();
    assert_eq!(store.groups().await.unwrap(), names);
    // The list is lost, and this store has acted on none of the groups.
    cluster.run_on("tenure:groups", &["DEL", "tenure:groups"]);
    let other = open(&cluster.url()).await;
    assert_eq!(other.groups().await.unwrap(), []);
    // A node that refuses SCAN does not keep the groups of other nodes off the list.
    let refusing = cluster.nodes().iter().take(3).max_by_key(|node| node.port()).unwrap();
    refusing.cli(&["ACL", "SETUSER", "default", "-scan"]).unwrap();
    let refused = loop {
        match other.find_groups().await {
            Ok(more) => assert!(more, "the search ended well"),
            Err(error) => break error.kind(),
        }
    };
    assert_eq!((refused, other.groups().await.unwrap().len()), (ErrorKind::Denied, 2));
    refusing.cli(&["ACL", "SETUSER", "default", "+scan"]).unwrap();
    while other.find_groups().await.unwrap() {}
    assert_eq!(other.groups().await.unwrap(), names);
    let findings = store.examine().await;
    let of = |check: &str| findings.iter().filter(|finding| finding.check == check).count();
    assert_eq!((of("cluster"), of("role"), of("eviction")), (1, 3, 3), "{findings:?}");
    assert!(
        findings.iter().all(|finding| finding.severity != Severity::Error),
        "{findings:?}"
    );
    assert!(store.now().await.unwrap().micros() > 0);
    // An unknown group may have been lost with its node.
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
        AcquireOutcome::Unsettled { retry_in, .. } => assert!(*retry_in > longest - PATIENCE, "{retry_in:?}"),
        other => panic!("{other:?}"),
    }
    // Other programs' keys are read on one server at a time.
    let clock = tenure_core::clock::SystemClock::shared();
    let refused = Connection::open(&cluster.url(), ConnectionOptions::default(), clock);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
}

async fn cluster_user_needs_one_more_rule(flavour: Flavour) {
    let cluster = cluster(flavour);
    let least = [
        "~{tenure:*",
        "~tenure:*",
        "+@hash",
        "+@set",
        "+@sortedset",
        "+@stream",
        "+unlink",
        "+pexpire",
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
    // A node that is slow to connect is reported only until another one refuses.
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
async fn unreachable_cluster_fails_at_once() {
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
    wait::until_async("the group's node is known to be away", PATIENCE, || async {
        try_join(&store, "a")
            .await
            .is_err_and(|error| error.outcome() == Outcome::Unchanged)
    })
    .await;
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

/// Generous timeouts, for tests about which server a store uses: a busy machine does not change the result.
pub(crate) async fn open_patiently(url: &str) -> std::sync::Arc<tenure_valkey::ValkeyStore> {
    let patient = ConnectionOptions {
        request_timeout: PATIENCE,
        connect_timeout: PATIENCE / 3,
        ..options()
    };
    open_with(url, patient).await
}

/// Asserts that a store is never up, and waits until it reports an error for the operator; returns it.
pub(crate) async fn until_refused(url: &str, what: &str) {
    let store = open_patiently(url).await;
    wait::until_async("the refusal is reported", PATIENCE, || async {
        let error = try_join(&store, "a").await.expect_err("it is refused");
        assert_eq!(error.outcome(), Outcome::Unchanged, "{error:?}");
        error.kind() == ErrorKind::Misconfigured && error.chain().contains(what)
    })
    .await;
}

async fn cluster_works_over_tls(flavour: Flavour) {
    let certs = Certs::new();
    let cluster = TlsCluster::start(flavour, &certs, "127.0.0.1").expect("these tests need their servers");
    let url = |ca: std::path::PathBuf| format!("{}?tls_ca={}", cluster.url(), ca.display());
    let store = open_patiently(&url(certs.ca())).await;
    until_up(&store).await;
    let join = Join {
        member: member("a"),
        ttl: Duration::from_secs(30),
        labels: Labels::default(),
    };
    for name in GROUPS {
        let group = Group::new(name).unwrap();
        store.join(&group, &join, Call::default()).await.unwrap();
    }
    for node in cluster.nodes() {
        // One of the groups is here.
        let keys = node.plain().cli(&["KEYS", "{tenure:*}:members"]).unwrap().texts();
        assert_eq!(keys.len(), 1, "{keys:?}");
    }
    until_refused(&url(certs.other_ca()), "tls_ca=PATH").await;
    until_refused(&format!("{}?tls=on", cluster.url()), "tls_ca=PATH").await;
    // The seeds are verified by their names, the nodes by the addresses that they announce.
    let elsewhere = TlsCluster::start(flavour, &certs, "127.0.0.2").expect("these tests need their servers");
    let url = format!("{}?tls_ca={}", elsewhere.url(), certs.ca().display());
    until_refused(&url, "the certificate of 127.0.0.2").await;
}

/// How often the running nodes were asked for the slot map so far.
fn askings(cluster: &Cluster) -> u64 {
    let of = |node: &tenure_testkit::valkey::Server| {
        let told = node.cli(&["INFO", "commandstats"]).ok()?.text();
        let line = told
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_cluster|slots:calls="))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    cluster.nodes().iter().filter_map(of).sum()
}

/// Sends failing calls for some seconds. Returns how often the map was requested, the duration, and the last error.
async fn call_in_vain(cluster: &Cluster, store: &tenure_valkey::ValkeyStore) -> (u64, Duration, String) {
    let (before, began) = (askings(cluster), Instant::now());
    let mut last = String::new();
    while began.elapsed() < Duration::from_secs(3) {
        let error = try_join(store, "b").await.expect_err("it is refused");
        assert!(error.is_unavailable(), "{error:?}");
        last = error.chain();
        tokio::time::sleep(Duration::from_millis(10)).await; // tidy: waits on the pace of the calls
    }
    (askings(cluster) - before, began.elapsed(), last)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_map_requests_are_rate_limited() {
    let cluster = mortal(Flavour::Valkey);
    let ping_interval = Duration::from_secs(1);
    let store = open_with(
        &cluster.url(),
        ConnectionOptions {
            ping_interval,
            request_timeout: PATIENCE,
            ..options()
        },
    )
    .await;
    until_up(&store).await;
    join(&store, "a").await;
    let slot = slot_of(&cluster, "ingest");
    let primary = cluster.owner(slot).unwrap();
    let at = cluster.nodes().iter().position(|node| node.port() == primary.port());
    let replica = &cluster.nodes()[at.unwrap() + 3];
    let limit = |bytes| primary.cli(&["CONFIG", "SET", "maxmemory", bytes]).unwrap();

    limit("1");
    let (asked, took, last) = call_in_vain(&cluster, &store).await;
    limit("0");
    assert!(last.contains("OOM"), "{last}");
    // A healthy cluster is asked every ten intervals.
    assert!(
        u128::from(asked) <= 1 + took.as_millis() / 10_000,
        "{asked} in {took:?}"
    );

    replica.kill();
    primary.kill();
    until_down(&store).await;
    let (asked, took, _) = call_in_vain(&cluster, &store).await;
    // The pause grows to half an interval and is never less than half of that; six allow for the time until then.
    let most = 6 + took.as_millis() / 250;
    assert!((1..=most).contains(&u128::from(asked)), "{asked} in {took:?}");
    primary.restart_with_data();
    replica.restart_with_data();
    cluster.until_whole();
    until_up(&store).await;
    join(&store, "c").await;
}
