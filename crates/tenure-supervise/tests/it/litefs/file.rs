//! The file and its mount, without the event stream.

use tenure_supervise::leadership::MountRule;

use super::mount::Mount;
use super::{Watched, quick};

#[tokio::test]
async fn the_primary_is_where_the_file_is_not() {
    let Some(mount) = Mount::start() else { return };
    let mut watched = Watched::new(quick(mount.dir()));
    watched.never_primary_until("not for long enough").await;
    watched.primary().await;
    mount.follow();
    watched.replica().await;
    mount.unfollow();
    watched.never_primary_until("not for long enough").await;
    watched.primary().await;
}

#[tokio::test]
async fn a_replica_that_is_disconnected_for_a_moment_never_counts_as_primary() {
    let Some(mount) = Mount::start() else { return };
    mount.follow();
    let mut watched = Watched::new(quick(mount.dir()));
    for _ in 0..10 {
        watched.never_primary_until("").await;
        mount.unfollow();
        watched.never_primary_until("not for long enough").await;
        mount.follow();
    }
}

#[tokio::test]
async fn a_frozen_file_system_makes_it_uncertain_and_hangs_nobody() {
    let Some(mount) = Mount::start() else { return };
    let mut watched = Watched::new(quick(mount.dir()));
    watched.primary().await;
    mount.freeze();
    watched.doubt("does not answer").await;
    mount.follow();
    mount.thaw();
    // What was asked before the freeze is answered now, and is old news.
    watched.never_primary_until("").await;
    // One that is frozen from the start.
    mount.unfollow();
    mount.freeze();
    let mut late = Watched::new(quick(mount.dir()));
    late.never_primary_until("does not answer").await;
    mount.thaw();
    late.never_primary_until("not for long enough").await;
    late.primary().await;
}

#[tokio::test]
async fn a_dead_mount_and_a_missing_one_are_no_evidence() {
    let Some(mount) = Mount::start() else { return };
    let mut watched = Watched::new(quick(mount.dir()));
    watched.primary().await;
    mount.kill();
    watched.doubt("dead").await;
    let mut late = Watched::new(quick(mount.dir()));
    late.never_primary_until("dead").await;
    // The mount is gone, its directory is there, and there is no `.primary` in it.
    mount.unmount();
    watched.never_primary_until("no FUSE file system").await;
    late.never_primary_until("no FUSE file system").await;
    mount.restart();
    watched.never_primary_until("not for long enough").await;
    watched.primary().await;
    late.primary().await;
}

#[tokio::test]
async fn only_a_mount_of_litefs_counts() {
    for dir in ["/dev/shm", "/nowhere/at/all", "/proc"] {
        let mut watched = Watched::new(quick(dir));
        watched.never_primary_until(dir).await;
    }
    let Some(mount) = Mount::of("something") else { return };
    let mut watched = Watched::new(quick(mount.dir()));
    watched.never_primary_until("a mount of something, not of litefs").await;
    let mut settings = quick(mount.dir());
    settings.mount = MountRule::UnsafeAnyFuse;
    Watched::new(settings).primary().await;
}
