//! A lease as a second guard: two nodes that both take themselves for the primary run one command between them.

use tenure_testkit::{Mode, Process, Proxy};

use crate::beats::{self, Beats, dies};
use crate::mount::Mount;
use crate::node::{is, looking_at, running};
use crate::support::{Daemon, exists};

fn guarded(who: &str, mount: &Mount, store: &str, beats: &Beats) -> Process {
    let leader = format!("litefs:{}", mount.dir().display());
    let guard = [
        "--guard", "music", "--ttl", "4s", "--grace", "200ms", "--member", who, "--store", store,
    ];
    running(who, &looking_at(&leader, &guard), &beats::stubborn(), |command| {
        beats.arm(command, who)
    })
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
    // A replica does not keep the guard from anybody, also when its file comes and goes.
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
    crate::node::doubts(&node, "out of reach");
    assert!(beats.lives("a").is_empty());
    way.set(Mode::Pass);
    beats.begins("a", 2);
}
