//! The file together with the event stream.

use tenure_supervise::leadership::litefs::Events;

use super::events::{Says, Stream};
use super::mount::Mount;
use super::{Watched, quick};

fn watch(mount: &Mount, stream: &Stream) -> Watched {
    let mut settings = quick(mount.dir());
    settings.events = Events::WhenReachable(stream.url());
    Watched::new(settings)
}

#[tokio::test]
async fn the_stream_shows_a_demotion_that_the_file_does_not() {
    let Some(mount) = Mount::start() else { return };
    let stream = Stream::start(Says::Primary).await;
    let mut watched = watch(&mount, &stream);
    watched.primary().await;
    // There is no other primary yet, so there is no `.primary` either.
    stream.say(Says::Replica);
    watched.replica().await;
    stream.say(Says::Primary);
    watched.primary().await;
    // Either says replica.
    mount.follow();
    watched.replica().await;
}

#[tokio::test]
async fn a_replica_by_the_stream_is_never_primary_by_the_file() {
    let Some(mount) = Mount::start() else { return };
    let stream = Stream::start(Says::Replica).await;
    let mut settings = quick(mount.dir());
    settings.events = Events::Required(stream.url());
    let mut watched = Watched::new(settings);
    watched.never_primary_until("").await;
    stream.say(Says::Nothing);
    // First because of what it has said, and after a second because it is away.
    watched.never_primary_until("is away").await;
    stream.say(Says::Garbage);
    watched.never_primary_until("of LiteFS is away").await;
    stream.say(Says::Primary);
    watched.primary().await;
}

#[tokio::test]
async fn a_stream_that_was_heard_and_is_away_makes_it_uncertain_until_litefs_starts_anew() {
    let Some(mount) = Mount::start() else { return };
    // Once it has said something that the file does not, it was heard.
    let stream = Stream::start(Says::Replica).await;
    let mut watched = watch(&mount, &stream);
    watched.replica().await;
    stream.say(Says::Primary);
    watched.primary().await;
    stream.say(Says::Nothing);
    watched.doubt("event stream of LiteFS is away").await;
    stream.say(Says::Primary);
    watched.primary().await;
    stream.say(Says::Nothing);
    watched.doubt("event stream of LiteFS is away").await;
    mount.kill();
    watched.doubt("dead").await;
    mount.restart();
    watched.primary().await;
}

#[tokio::test]
async fn a_stream_that_was_never_heard_is_done_without_unless_it_is_required() {
    let Some(mount) = Mount::start() else { return };
    for says in [Says::Garbage, Says::Silence, Says::Nothing] {
        let stream = Stream::start(says).await;
        watch(&mount, &stream).primary().await;
        let mut settings = quick(mount.dir());
        settings.events = Events::Required(stream.url());
        Watched::new(settings).never_primary_until("was not heard yet").await;
    }
}
