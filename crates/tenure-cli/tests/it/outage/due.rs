//! Deaths that no process waits for: the daemon that took the join has died.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use tenure_testkit::valkey::cluster::Cluster;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::outage::on_each_server;
use crate::support::{Daemon, Lateness, SOON};

on_each_server!(
    members_of_a_killed_daemon_end_elsewhere,
    a_lost_index_of_due_groups_is_rebuilt,
);

const GROUPS: usize = 20;
const ROUNDS: usize = 3;
const TTL: Duration = Duration::from_millis(1_500);
/// Well below the time after which all groups are listed again.
const ALLOWED: Duration = Duration::from_secs(8);

fn daemon(url: &str) -> Daemon {
    Daemon::start(&["--store", url, "--limits-new-groups", "0"])
}

/// Sends a join, and does not wait for the answer.
fn send_join(daemon: &Daemon, group: &str) -> TcpStream {
    let body = format!(r#"{{"member":"m","ttl_ms":{}}}"#, TTL.as_millis());
    daemon.send("POST", &format!("/v1/groups/{group}/members"), &body)
}

/// How many events of a kind a group has.
fn count(daemon: &Daemon, group: &str, kind: &str) -> usize {
    let path = format!("/v1/groups/{group}/events?types={kind}&limit=100");
    let (_, page) = daemon.answered("GET", &path, "");
    page["events"].as_array().map_or(0, Vec::len)
}

/// Waits until the member of each of these groups has ended. Returns how many had one.
fn all_end(daemon: &Daemon, groups: &[String]) -> usize {
    let (at, lateness) = (Instant::now(), Lateness::watch());
    let joined: Vec<&String> = groups
        .iter()
        .filter(|group| count(daemon, group, "joined") > 0)
        .collect();
    for group in &joined {
        wait::until("the member ends", SOON, || count(daemon, group, "lapsed") == 1);
    }
    let (took, stalled) = (at.elapsed(), lateness.so_far());
    assert!(
        took < TTL + ALLOWED + stalled,
        "{took:?}, of which the machine stalled {stalled:?}"
    );
    joined.len()
}

fn members_end_elsewhere(url: &str) {
    let survivor = daemon(url);
    let mut joined = 0;
    for round in 0..ROUNDS {
        let dying = daemon(url);
        let groups: Vec<String> = (0..GROUPS).map(|number| format!("g{round}-{number}")).collect();
        let _joins: Vec<TcpStream> = groups.iter().map(|group| send_join(&dying, group)).collect();
        wait::until("a join took effect", SOON, || {
            count(&survivor, &groups[round], "joined") > 0
        });
        dying.process.kill();
        joined += all_end(&survivor, &groups);
    }
    eprintln!("{joined} of {} joins took effect", ROUNDS * GROUPS);
}

fn members_of_a_killed_daemon_end_elsewhere(flavour: Flavour) {
    let Some(server) = Server::start(flavour) else { return };
    members_end_elsewhere(&server.url());
}

#[test]
fn members_of_a_killed_daemon_end_elsewhere_on_a_cluster() {
    let Some(cluster) = Cluster::start(Flavour::Valkey, &[]) else {
        return;
    };
    cluster.set_node_timeout(SOON);
    members_end_elsewhere(&cluster.url());
}

fn a_lost_index_of_due_groups_is_rebuilt(flavour: Flavour) {
    let Some(server) = Server::start(flavour) else { return };
    let (survivor, dying) = (daemon(&server.url()), daemon(&server.url()));
    // It knows the group from the listing, and nothing is due in it for long.
    let tenure = dying.join("quiet", "m", 60_000);
    wait::until("the other daemon knows the group", SOON, || {
        survivor
            .text("GET", "/metrics", "")
            .1
            .contains("tenure_members{group=\"quiet\"} 1\n")
    });
    dying.beat(
        "quiet",
        &[&tenure],
        u64::try_from(TTL.as_millis()).expect("a short time"),
    );
    server.cli(&["DEL", "tenure:due"]).expect("the server answers");
    dying.process.kill();
    assert_eq!(all_end(&survivor, &["quiet".to_owned()]), 1);
}
