//! A lease as a second guard: two nodes that both take themselves for the primary run one command between them.

use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Mode, Process, Proxy, wait};

use crate::run::PATIENCE;
use crate::run::beats::{self, Beats, dies};
use crate::run::mount::Mount;
use crate::run::node::{is, looking_at, running};
use crate::support::{Daemon, exists, said};

fn guarded(who: &str, mount: &Mount, store: &str, beats: &Beats) -> Process {
    let leader = format!("litefs:{}", mount.dir().display());
    guarded_by(who, &looking_at(&leader, &[]), store, beats)
}

fn guarded_by(who: &str, leader: &[&str], store: &str, beats: &Beats) -> Process {
    let guard = [
        "--guard", "music", "--ttl", "4s", "--grace", "200ms", "--member", who, "--store", store, "--group", "players",
    ];
    running(who, &[leader, &guard].concat(), &beats::stubborn(), |command| {
        beats.arm(command, who);
        command.env("TENURE_LOG", "info,tenure_supervise=debug");
    })
}

/// The tenure of this one has ended at the store.
#[track_caller]
fn has_ended(who: &str, daemon: &Daemon) {
    let name = format!("\"{who}\"");
    wait::until("its tenure has ended", PATIENCE, || {
        let (status, members) = daemon.http("GET", "/v1/groups/players/members", "");
        assert_eq!(status, 200, "{members}");
        !members.to_string().contains(&name)
    });
}

#[test]
fn two_primaries_by_the_file_are_one_by_the_guard() {
    // No `.primary` in either.
    let (Some(one), Some(two)) = (Mount::start(), Mount::start()) else {
        return;
    };
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let way = Proxy::start(daemon.addr);
    let first = guarded("a", &one, &daemon.url(), &beats);
    beats.begins("a", 2);
    let second = guarded("b", &two, &way.url("http"), &beats);
    is(&second, "leadership", "replica");
    assert!(beats.lives("b").is_empty());
    // The first is demoted, and gives the guard up when nothing of its command is left.
    one.follow();
    let successor = beats.begins("b", 2);
    is(&first, "leadership", "replica");
    assert!(beats.lives("a").iter().all(|life| !exists(&life.pid)));
    beats.never_overlapped();
    // A replica never blocks the guard, also when its file comes and goes.
    one.unfollow();
    is(&first, "leadership", "replica");
    // The guard runs out with the way to its store, whatever the file says.
    way.set(Mode::BlackHole);
    dies(&successor);
    beats.begins("a", 4);
    beats.never_overlapped();
    way.set(Mode::Pass);
    is(&second, "leadership", "replica");
    beats.never_overlapped();
}

#[test]
fn a_guard_without_its_store_starts_nothing() {
    let Some(mount) = Mount::start() else { return };
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let way = Proxy::start(daemon.addr);
    way.set(Mode::Refuse);
    let node = guarded("a", &mount, &way.url("http"), &beats);
    crate::run::node::doubts(&node, "the store is unreachable");
    assert!(beats.lives("a").is_empty());
    way.set(Mode::Pass);
    beats.begins("a", 2);
    // After a reign, too, it is said why nothing runs here.
    way.set(Mode::Refuse);
    crate::run::node::doubts(&node, "cannot be acquired");
    assert!(beats.lives("a").iter().all(|life| !exists(&life.pid)));
}

/// It was the primary by the file for a while, in which another held the guard.
#[test]
fn waiting_replica_does_not_block_the_guard() {
    let (Some(one), Some(two), Some(three)) = (Mount::start(), Mount::start(), Mount::start()) else {
        return;
    };
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let first = guarded("a", &one, &daemon.url(), &beats);
    beats.begins("a", 2);
    let second = guarded("b", &two, &daemon.url(), &beats);
    said(&second, "another member holds the lease");
    two.follow();
    first.kill();
    has_ended("a", &daemon);
    // The file moves on to a third.
    let third = guarded("c", &three, &daemon.url(), &beats);
    beats.begins("c", 2);
    is(&second, "leadership", "replica");
    is(&third, "leadership", "primary");
    assert!(beats.lives("b").is_empty());
    beats.never_overlapped();
}

/// The first source has said primary all the time; a store without its data grants nothing for a while.
#[test]
fn a_primary_that_has_lost_the_guard_asks_for_it_again() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let beats = Beats::new();
    let args = ["--leader", "always", "--max-ttl", "4s"];
    let node = guarded_by("a", &args, &server.url(), &beats);
    beats.begins("a", 2);
    server.cli(&["FLUSHALL"]).unwrap();
    beats.begins("a", 4);
    is(&node, "state", "running");
    assert!(beats.lives("a")[..2].iter().all(|life| !exists(&life.pid)));
}

/// It is frozen for longer than its lease lasts.
#[test]
fn a_primary_that_was_frozen_asks_for_the_guard_again() {
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let node = guarded_by("a", &["--leader", "always"], &daemon.url(), &beats);
    beats.begins("a", 2);
    node.pause().unwrap();
    has_ended("a", &daemon);
    node.resume().unwrap();
    beats.begins("a", 4);
    is(&node, "state", "running");
    assert!(beats.lives("a")[..2].iter().all(|life| !exists(&life.pid)));
}
