//! The file and its mount, without the event stream.

use tenure_supervise::leadership::MountRule;

use super::mount::Mount;
use super::{Watched, quick};

#[tokio::test]
async fn lasting_absence_of_the_file_means_primary() {
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
async fn briefly_disconnected_replica_is_never_primary() {
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
async fn frozen_file_system_is_uncertain_and_blocks_no_caller() {
    let Some(mount) = Mount::start() else { return };
    let mut watched = Watched::new(quick(mount.dir()));
    watched.primary().await;
    mount.freeze();
    watched.doubt("does not respond").await;
    mount.follow();
    mount.thaw();
    // The poll from before the freeze completes now; its result is stale.
    watched.never_primary_until("").await;
    // A mount that is frozen from the start.
    mount.unfollow();
    mount.freeze();
    let mut late = Watched::new(quick(mount.dir()));
    late.never_primary_until("does not respond").await;
    mount.thaw();
    late.never_primary_until("not for long enough").await;
    late.primary().await;
}

#[tokio::test]
async fn dead_or_missing_mount_is_uncertain() {
    let Some(mount) = Mount::start() else { return };
    let mut watched = Watched::new(quick(mount.dir()));
    watched.primary().await;
    mount.kill();
    watched.doubt("dead").await;
    let mut late = Watched::new(quick(mount.dir()));
    late.never_primary_until("dead").await;
    // The mount is gone; its directory exists and has no `.primary`.
    mount.unmount();
    watched.never_primary_until("no FUSE file system").await;
    late.never_primary_until("no FUSE file system").await;
    mount.restart();
    watched.never_primary_until("not for long enough").await;
    watched.primary().await;
    late.primary().await;
}

#[tokio::test]
async fn only_a_litefs_mount_counts() {
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
