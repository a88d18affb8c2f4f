//! The file together with the event stream.

use tenure_supervise::leadership::litefs::EventStream;

use super::events::{Says, Stream};
use super::mount::Mount;
use super::{Watched, quick};

fn watch(mount: &Mount, stream: &Stream) -> Watched {
    let mut settings = quick(mount.dir());
    settings.events = EventStream::WhenReachable(stream.url());
    Watched::new(settings)
}

#[tokio::test]
async fn stream_reports_a_demotion_that_the_file_misses() {
    let Some(mount) = Mount::start() else { return };
    let stream = Stream::start(Says::Primary).await;
    let mut watched = watch(&mount, &stream);
    watched.primary().await;
    // There is no other primary yet, so `.primary` is still absent.
    stream.say(Says::Replica);
    watched.replica().await;
    stream.say(Says::Primary);
    watched.primary().await;
    // Each source alone suffices for replica.
    mount.follow();
    watched.replica().await;
}

#[tokio::test]
async fn replica_by_the_stream_is_never_primary_by_the_file() {
    let Some(mount) = Mount::start() else { return };
    let stream = Stream::start(Says::Replica).await;
    let mut settings = quick(mount.dir());
    settings.events = EventStream::Required(stream.url());
    let mut watched = Watched::new(settings);
    watched.never_primary_until("").await;
    stream.say(Says::Nothing);
    // First because of its last event, and a second later because it is disconnected.
    watched.never_primary_until("last said replica").await;
    stream.say(Says::Garbage);
    watched.never_primary_until("of LiteFS is disconnected").await;
    stream.say(Says::Primary);
    watched.primary().await;
}

#[tokio::test]
async fn lost_stream_is_uncertain_until_litefs_restarts() {
    let Some(mount) = Mount::start() else { return };
    // The source has seen the stream once it reports what only the stream says.
    let stream = Stream::start(Says::Replica).await;
    let mut watched = watch(&mount, &stream);
    watched.replica().await;
    stream.say(Says::Primary);
    watched.primary().await;
    stream.say(Says::Nothing);
    watched.doubt("event stream of LiteFS is disconnected").await;
    stream.say(Says::Primary);
    watched.primary().await;
    stream.say(Says::Nothing);
    watched.doubt("event stream of LiteFS is disconnected").await;
    mount.kill();
    watched.doubt("dead").await;
    mount.restart();
    watched.primary().await;
}

#[tokio::test]
async fn unreachable_stream_is_ignored_unless_required() {
    let Some(mount) = Mount::start() else { return };
    for says in [Says::Garbage, Says::Silence, Says::Nothing] {
        let stream = Stream::start(says).await;
        watch(&mount, &stream).primary().await;
        let mut settings = quick(mount.dir());
        settings.events = EventStream::Required(stream.url());
        Watched::new(settings)
            .never_primary_until("has not connected yet")
            .await;
    }
}
