//! The room of bodies that are arriving: what it holds, and who is refused first.

use super::*;
use std::convert::Infallible;

use futures_util::{StreamExt, poll};
use tenure_core::clock::ManualClock;
use tokio::sync::mpsc;

use crate::auth::Caller;

const LIMIT: usize = 1_000;

fn bodies() -> (Bodies, ManualClock) {
    let clock = ManualClock::new(0, 1);
    (Bodies::new(LIMIT, Duration::from_secs(10)), clock)
}

fn share(address: &str, group: &str) -> Share {
    let from = Some(format!("{address}:1").parse().unwrap());
    Share::of(7, &Caller::Anyone, from, &format!("/v1/groups/{group}/members"))
}

fn body() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, pieces) = mpsc::unbounded_channel();
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        let piece: Bytes = pieces.recv().await?;
        Some((Ok::<_, Infallible>(piece), pieces))
    });
    (sender, Body::from_stream(pieces.boxed()))
}

fn bytes(count: usize) -> Bytes {
    vec![b'x'; count].into()
}

#[tokio::test]
async fn complete_body_returns_its_memory() {
    let (bodies, clock) = bodies();
    let (sender, body) = body();
    sender.send(bytes(600)).unwrap();
    sender.send(bytes(400)).unwrap();
    drop(sender);
    let whole = bodies
        .read(&clock, share("10.0.0.1", "g"), body, LIMIT)
        .await
        .ok()
        .unwrap();
    assert_eq!((whole.bytes.len(), bodies.memory.held()), (1_000, 1_000));
    drop(whole);
    assert_eq!((bodies.memory.held(), bodies.reading()), (0, 0));
    let (sender, body) = self::body();
    sender.send(bytes(600)).unwrap();
    sender.send(bytes(401)).unwrap();
    let refused = bodies.read(&clock, share("10.0.0.1", "g"), body, LIMIT).await.err();
    assert_eq!((refused, bodies.memory.held()), (Some(BodyError::TooLarge(LIMIT)), 0));
}

#[tokio::test]
async fn a_body_has_its_time() {
    let (bodies, clock) = bodies();
    let (sender, body) = body();
    let mut reading = Box::pin(bodies.read(&clock, share("10.0.0.1", "g"), body, LIMIT));
    sender.send(bytes(1)).unwrap();
    assert!(poll!(&mut reading).is_pending());
    assert_eq!(bodies.reading(), 1);
    clock.advance(Duration::from_secs(10));
    assert_eq!(reading.await.err(), Some(BodyError::TooSlow));
}

/// So many stalled bodies that nearly fill what one group of a caller may send.
type Stuck = Vec<mpsc::UnboundedSender<Bytes>>;

#[tokio::test]
async fn slow_bodies_yield_to_the_same_caller_only() {
    let (bodies, clock) = bodies();
    let mine = share("10.0.0.1", "g");
    let (mut senders, mut stuck): (Stuck, Vec<_>) = (Vec::new(), Vec::new());
    for _ in 0..LARGEST {
        let (sender, body) = body();
        sender.send(bytes(LIMIT - 1)).unwrap();
        senders.push(sender);
        let mut reading = Box::pin(bodies.read(&clock, mine, body, LIMIT));
        assert!(poll!(&mut reading).is_pending());
        stuck.push(reading);
    }
    let whole = || {
        let (sender, body) = self::body();
        sender.send(bytes(500)).unwrap();
        sender.send(bytes(500)).unwrap();
        body
    };
    let refused = bodies.read(&clock, mine, whole(), LIMIT).await.err();
    assert_eq!(refused, Some(BodyError::NoRoom), "none of them is slow yet");
    let stranger = bodies.read(&clock, share("10.0.0.2", "g"), whole(), LIMIT).await;
    assert!(stranger.is_ok(), "another caller has room of its own");
    drop(stranger);
    clock.advance(SLOW);
    let room = bodies.read(&clock, mine, whole(), LIMIT).await;
    assert!(room.is_ok());
    let mut stuck = stuck.into_iter();
    assert_eq!(
        stuck.next().unwrap().await.err(),
        Some(BodyError::NoRoom),
        "the oldest was cut"
    );
    drop((room, stuck));
    assert_eq!(bodies.memory.held(), 0);
}

#[tokio::test]
async fn only_a_small_refused_body_is_drained() {
    let clock = ManualClock::new(0, 1);
    assert!(discard_rest(&clock, Body::from("{}")).await);
    assert!(!discard_rest(&clock, Body::from(bytes(DISCARD_LIMIT))).await);
    let (_sender, body) = body();
    let mut waiting = Box::pin(discard_rest(&clock, body));
    assert!(poll!(&mut waiting).is_pending());
    clock.advance(DISCARD_TIME);
    assert!(!waiting.await);
}
