//! A mount that is not what it should be never starts a command; a demotion stops one.

use std::path::Path;

use tenure_testkit::Process;

use crate::run::beats::{Beats, dies};
use crate::run::mount::Mount;
use crate::run::node::{doubts, is, node, status};
use crate::run::stream::{Says, Stream};

fn watching(who: &str, dir: &Path, args: &[&str], beats: &Beats) -> Process {
    let leader = format!("litefs:{}", dir.display());
    node(who, &[&["--leader", &leader][..], args].concat(), beats)
}

/// The file alone, with less patience than by default.
const FILE: [&str; 4] = ["--litefs-events", "off", "--stable-window", "300ms"];

/// A replica whose stream breaks for a moment has no `.primary`.
#[test]
fn briefly_disconnected_replica_never_starts_its_command() {
    let Some(mount) = Mount::start() else { return };
    mount.follow();
    let beats = Beats::new();
    let args = ["--litefs-events", "off", "--stable-window", "20s"];
    let replica = watching("a", &mount.dir(), &args, &beats);
    for _ in 0..5 {
        is(&replica, "leadership", "replica");
        mount.unfollow();
        doubts(&replica, "not for long enough");
        mount.follow();
    }
    is(&replica, "leadership", "replica");
    assert_eq!(
        (status(&replica)["state"].as_str(), beats.lives("a").len()),
        (Some("waiting"), 0)
    );
}

#[test]
fn without_a_mount_nothing_starts_and_with_one_it_does() {
    let Some(mount) = Mount::start() else { return };
    let (beats, plain) = (Beats::new(), tempfile::tempdir().unwrap());
    let nowhere = plain.path().join("nowhere");
    let others: Vec<_> = [plain.path(), &nowhere, Path::new("/dev/shm")]
        .into_iter()
        .map(|dir| {
            let supervisor = watching("none", dir, &FILE, &beats);
            doubts(&supervisor, dir.to_str().unwrap());
            supervisor
        })
        .collect();
    let supervisor = watching("a", &mount.dir(), &FILE, &beats);
    let first = beats.begins("a", 1);
    // Its server dies (ENOTCONN), then the mount is removed; the running command stays, and no other one starts.
    mount.kill();
    doubts(&supervisor, "dead");
    let late = watching("late", &mount.dir(), &FILE, &beats);
    doubts(&late, "dead");
    mount.unmount();
    doubts(&supervisor, "no FUSE file system");
    doubts(&late, "no FUSE file system");
    beats.goes_on(&first);
    assert!(beats.lives("late").is_empty());
    mount.restart();
    beats.begins("late", 1);
    for other in &others {
        assert_eq!(status(other)["state"], "waiting");
    }
    assert!(beats.lives("none").is_empty());
    assert_eq!(beats.lives("a").len(), 1);
}

#[test]
fn hung_mount_starts_nothing() {
    let Some(mount) = Mount::start() else { return };
    let beats = Beats::new();
    let keeps = watching("keeps", &mount.dir(), &FILE, &beats);
    let stops = [&FILE[..], &["--on-uncertain", "stop-after:500ms"]].concat();
    let stops = watching("stops", &mount.dir(), &stops, &beats);
    let (kept, stopped) = (beats.begins("keeps", 1), beats.begins("stops", 1));
    mount.freeze();
    let late = watching("late", &mount.dir(), &FILE, &beats);
    for supervisor in [&keeps, &stops, &late] {
        doubts(supervisor, "does not respond");
    }
    dies(&stopped);
    is(&stops, "state", "waiting");
    beats.goes_on(&kept);
    assert!(beats.lives("late").is_empty());
    // It was demoted while it hung.
    mount.follow();
    mount.thaw();
    dies(&kept);
    is(&keeps, "leadership", "replica");
    mount.unfollow();
    beats.begins("keeps", 2);
    beats.begins("stops", 2);
    beats.begins("late", 1);
}

/// A demoted primary has no `.primary` either until there is a new one; only the event stream shows the demotion.
#[test]
fn demotion_seen_by_event_stream_stops_the_command() {
    let Some(mount) = Mount::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stream = runtime.block_on(Stream::start(Says::Primary));
    let (beats, url) = (Beats::new(), stream.url());
    let args = ["--stable-window", "300ms", "--litefs-events", &url];
    let supervisor = watching("a", &mount.dir(), &args, &beats);
    let first = beats.begins("a", 1);
    stream.say(Says::Replica);
    dies(&first);
    is(&supervisor, "leadership", "replica");
    stream.say(Says::Primary);
    let second = beats.begins("a", 2);
    // Without it the primary is unknown, which starts nothing and by default stops nothing.
    stream.say(Says::Nothing);
    doubts(&supervisor, "event stream of LiteFS is disconnected");
    let late = watching(
        "late",
        &mount.dir(),
        &[&args[..], &["--litefs-events-required"]].concat(),
        &beats,
    );
    doubts(&late, "has not connected yet");
    beats.goes_on(&second);
    assert!(beats.lives("late").is_empty());
}
