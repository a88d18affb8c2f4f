//! Nodes of a cluster that are away, one after the other and all together, and what the daemon reports.

use serde_json::Value;
use tenure_testkit::valkey::cluster::Cluster;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::outage::on_each_server;
use crate::support::{Daemon, SOON};

on_each_server!(a_daemon_is_unready_only_when_no_node_takes_writes);

fn a_daemon_is_unready_only_when_no_node_takes_writes(flavour: Flavour) {
    let Some(cluster) = Cluster::start(flavour, &[]) else {
        return;
    };
    // No replica takes over, so that what is away stays away.
    cluster.set_node_timeout(SOON * 2);
    let daemon = Daemon::start(&["--store", &cluster.url()]);
    until(&daemon, "all nodes are there", 200, &[]);
    let (primaries, replicas) = cluster.nodes().split_at(3);
    for node in primaries {
        node.pause();
        until(&daemon, "one node is away", 200, &[node]);
        node.resume();
        until(&daemon, "it is back", 200, &[]);
    }
    for node in replicas {
        node.pause();
        until(&daemon, "a replica is away", 200, &[]);
        node.resume();
    }
    primaries.iter().for_each(Server::pause);
    until(&daemon, "no node is there", 503, &[]);
    primaries.iter().for_each(Server::resume);
    until(&daemon, "all are back", 200, &[]);
}

/// Waits until the daemon answers so, and names exactly these nodes as away.
#[track_caller]
fn until(daemon: &Daemon, what: &str, status: u16, away: &[&Server]) {
    let ports: Vec<String> = away.iter().map(|node| format!(":{}:", node.port())).collect();
    wait::until(what, SOON, || {
        let (answered, readiness) = daemon.http("GET", "/readyz", "");
        let notes = readiness["notes"].as_array().map_or(&[][..], Vec::as_slice);
        let about_store: Vec<&str> = notes
            .iter()
            .filter_map(Value::as_str)
            .filter(|note| note.starts_with("store: "))
            .collect();
        answered == status
            && about_store.len() == ports.len()
            && about_store
                .iter()
                .zip(&ports)
                .all(|(note, port)| note.contains(port.as_str()))
    });
}
