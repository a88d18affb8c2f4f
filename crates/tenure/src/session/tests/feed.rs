//! The feed of reaped sessions.

use tenure_core::error::ErrorKind;
use tenure_core::event::{EventId, EventQuery};

use super::super::{Reaped, ReapedEvent, ReapedFeed};
use super::*;
use crate::event::FeedItem;
use crate::testing::{Fault, Verb, ms};

impl World {
    async fn reap(&self, membership: &Membership, session: &str) {
        let asked = membership.sessions().attach(session, "c").alias(session).grace(secs(1));
        drop(asked.await.unwrap());
        self.pass(secs(2)).await;
        assert_eq!(self.seen(session).await, None);
    }

    async fn next(&self, feed: &mut ReapedFeed) -> Reaped {
        match self.run(feed.next()).await.unwrap() {
            ReapedEvent::Reaped(reaped) => reaped,
            ReapedEvent::Gap => panic!("a gap"),
        }
    }
}

#[tokio::test]
async fn feed_returns_reaped_sessions_and_resumes_from_a_position() {
    let world = world().await;
    let membership = world.rival().await;
    let mut feed = world.group.sessions().reaped(None);
    assert!(futures_util::poll!(std::pin::pin!(feed.next())).is_pending());
    world.reap(&membership, "one").await;
    let one = world.next(&mut feed).await;
    assert_eq!(
        (one.session.as_str(), one.alias.as_ref().map(|alias| alias.as_str())),
        ("one", Some("one"))
    );
    assert_eq!(feed.position(), Some(one.event));
    world.reap(&membership, "one").await;
    world.reap(&membership, "two").await;
    let again = world.next(&mut feed).await;
    assert_eq!(again.session.as_str(), "one");
    assert!(again.epoch > one.epoch, "a new session has a higher epoch");
    // A reader without a stored position starts over; a reader with one continues.
    let mut resumed = world.group.sessions().reaped(Some(one.event));
    assert_eq!(world.next(&mut resumed).await, again);
    assert_eq!(world.next(&mut resumed).await.session.as_str(), "two");
}

#[tokio::test]
async fn feed_waits_out_an_outage_and_reports_a_gap() {
    let world = world().await;
    let membership = world.rival().await;
    world.reap(&membership, "one").await;
    let mut feed = world.group.sessions().reaped(Some(EventId(1)));
    world.store.always(Verb::Events, Some(Fault::Hang { applied: false }));
    {
        let mut asked = std::pin::pin!(feed.next());
        assert!(futures_util::poll!(&mut asked).is_pending());
        world.pass(secs(20)).await;
        assert!(futures_util::poll!(&mut asked).is_pending());
    }
    world.store.always(Verb::Events, None);
    assert_eq!(world.run(feed.next()).await.unwrap(), ReapedEvent::Gap);
    assert_eq!(world.next(&mut feed).await.session.as_str(), "one");
    world.store.next(Verb::Events, Fault::Fail(ErrorKind::Denied));
    assert_eq!(world.run(feed.next()).await.unwrap_err().kind(), ErrorKind::Denied);
    world.reap(&membership, "two").await;
    assert_eq!(world.next(&mut feed).await.session.as_str(), "two");
    world.pass(ms(1)).await;
}

#[tokio::test]
async fn group_feed_returns_every_event_once_and_its_gaps() {
    let world = world().await;
    let membership = world.rival().await;
    world.reap(&membership, "one").await;
    let query = EventQuery {
        limit: 100,
        ..EventQuery::default()
    };
    let all = world.group.events(&query).await.unwrap().events;
    assert!(all.len() > 3, "{all:?}");
    let mut feed = world.group.follow(None);
    for event in &all {
        assert_eq!(world.run(feed.next()).await.unwrap(), FeedItem::Event(event.clone()));
        assert_eq!(feed.position(), Some(event.id));
    }
    assert!(futures_util::poll!(std::pin::pin!(feed.next())).is_pending());
    // A position that the log does not reach back to.
    let mut behind = world.group.follow(Some(EventId(1)));
    assert_eq!(world.run(behind.next()).await.unwrap(), FeedItem::Gap);
    assert_eq!(world.run(behind.next()).await.unwrap(), FeedItem::Event(all[0].clone()));
}
