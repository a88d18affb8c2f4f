//! Networks that drop, delay and lose, and a server that sends unexpected replies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::membership::{BeatReply, MembershipStore};
use tenure_core::store::{Backend, Health};
use tenure_core::sweep::Sweep;
use tenure_testkit::valkey::Flavour;
use tenure_testkit::{Mode, Proxy};
use tenure_valkey::ConnectionOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::world::*;

on_both! {
    dropped_packets_do_not_delay_calls_past_the_deadline,
    late_step_changes_nothing,
    lost_reply_leaves_the_outcome_unknown,
}

async fn dropped_packets_do_not_delay_calls_past_the_deadline(flavour: Flavour) {
    let server = server(flavour, &[]);
    let proxy = Proxy::start(server.addr());
    let store = open_with(&proxy.url("valkey"), hasty()).await;
    until_up(&store).await;
    let tenure = join(&store, "a").await;
    proxy.set(Mode::BlackHole);
    let calls = (0..50).map(|_| {
        let (store, tenure) = (Arc::clone(&store), tenure.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            let error = try_beat(&store, &tenure).await.expect_err("a black hole");
            within_deadline(began);
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    until_down(&store).await;
    proxy.set(Mode::Pass);
    until_up(&store).await;
    assert!(matches!(beat(&store, &tenure).await, BeatReply::Renewed { .. }));
}

async fn late_step_changes_nothing(flavour: Flavour) {
    let server = server(flavour, &[]);
    let proxy = Proxy::start(server.addr());
    let patient = ConnectionOptions {
        ping_interval: Duration::from_secs(60),
        ..hasty()
    };
    let (store, direct) = (
        open_with(&proxy.url("valkey"), patient).await,
        open(&server.url()).await,
    );
    let tenure = join(&store, "a").await;
    proxy.set(Mode::HoldRequests);
    unavailable(try_join(&store, "late").await, Outcome::Unknown);
    unavailable(claim(&store, &tenure, "late").await, Outcome::Unknown);
    // Both callers have timed out; the server receives their calls only now.
    let seen = server.cli(&["INFO", "commandstats"]).unwrap().text();
    let before = calls_of(&seen, "evalsha");
    proxy.release();
    tenure_testkit::wait::until("the late calls arrive", PATIENCE, || {
        calls_of(&server.cli(&["INFO", "commandstats"]).unwrap().text(), "evalsha") >= before + 2
    });
    assert_eq!(direct.member(&group(), &member("late")).await.unwrap(), None);
    let claims = server.cli(&["EXISTS", "{tenure:ingest}:claims:devices"]).unwrap();
    assert_eq!(claims.int(), Some(0));
    until_up(&store).await;
    claim(&store, &tenure, "in-time")
        .await
        .expect("the connection works after late replies");
}

fn calls_of(stats: &str, command: &str) -> u64 {
    let line = stats
        .lines()
        .find(|line| line.starts_with(&format!("cmdstat_{command}:")));
    let calls = line.and_then(|line| line.split("calls=").nth(1)?.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

async fn lost_reply_leaves_the_outcome_unknown(flavour: Flavour) {
    let server = server(flavour, &[]);
    let proxy = Proxy::start(server.addr());
    let (store, direct) = (
        open_with(&proxy.url("valkey"), hasty()).await,
        open(&server.url()).await,
    );
    until_up(&store).await;
    let first = join(&store, "a").await;
    proxy.set(Mode::DropReplies);
    unavailable(try_join(&store, "a").await, Outcome::Unknown);
    let second = direct
        .member(&group(), &member("a"))
        .await
        .unwrap()
        .expect("the join was applied")
        .tenure;
    assert!(second.term() > first.term());
    until_down(&store).await;
    proxy.set(Mode::Pass);
    until_up(&store).await;
    // Another join supersedes the one whose reply was lost.
    let third = try_join(&store, "a").await.unwrap();
    assert_eq!(third.superseded, Some(second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_above_the_in_flight_limit_fails_at_once() {
    let server = server(Flavour::Valkey, &[]);
    let store = open_with(
        &server.url(),
        ConnectionOptions {
            in_flight: 4,
            // All ten must have arrived by then.
            request_timeout: TIMEOUT * 10,
            ..options()
        },
    )
    .await;
    let tenure = join(&store, "a").await;
    server.pause();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let (store, tenure) = (Arc::clone(&store), tenure.clone());
            tokio::spawn(async move { try_beat(&store, &tenure).await.expect_err("a frozen server").outcome() })
        })
        .collect();
    let mut refused = 0;
    for call in calls {
        refused += usize::from(call.await.unwrap() == Outcome::Unchanged);
    }
    server.resume();
    assert_eq!(refused, 6);
}

/// A server that completes the handshake and then replies to scripts with `answer`.
async fn liar(answer: &'static str) -> (String, tokio::sync::mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("valkey://{}", listener.local_addr().unwrap());
    let (accepted, accepts) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = accepted.send(());
            tokio::spawn(async move {
                let mut buffer = vec![0; 65536];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
                    // A client that waits for each reply sends one command per read.
                    let reply = match text.lines().nth(2) {
                        Some("TIME") => "*2\r\n$10\r\n1763676800\r\n$1\r\n7\r\n",
                        Some("EVAL") => "*0\r\n",
                        Some("HGET") => "$-1\r\n",
                        Some("PING") => "+PONG\r\n",
                        Some("SADD" | "HSETNX") => ":1\r\n",
                        Some("ROLE") => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
                        _ => answer,
                    };
                    if stream.write_all(reply.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (url, accepts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unexpected_reply_ends_the_connection() {
    for lie in [
        "*5\r\n$4\r\nnope\r\n:1763676800000000\r\n$2\r\nok\r\n:5\r\n:0\r\n",
        "*2\r\n$4\r\nnope\r\n:1\r\n",
        "*0\r\n",
        "$2\r\nOK\r\n",
        ":7\r\n",
        "$-1\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
    ] {
        let (url, mut accepts) = liar(lie).await;
        let store = open_with(&url, hasty()).await;
        accepts.recv().await.expect("the first connection");
        until_up(&store).await;
        unavailable(try_join(&store, "a").await, Outcome::Unknown);
        accepts
            .recv()
            .await
            .expect("a second connection in place of the one that lied");
    }
}

#[test]
fn blocked_caller_does_not_starve_the_connection() {
    let server = server(Flavour::Valkey, &[]);
    let ours = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let store = ours.block_on(open_with(&server.url(), hasty()));
    // A runtime without I/O and time: the store must not depend on it.
    let theirs = tokio::runtime::Builder::new_current_thread().build().unwrap();
    theirs.block_on(async {
        tenure_testkit::wait::until("the store is up", PATIENCE, || store.health() == Health::Up);
        let mut joining = Box::pin(try_join(&store, "a"));
        // The call is on its way; then the thread blocks for longer than any deadline.
        let begun = std::future::poll_fn(|context| std::task::Poll::Ready(joining.as_mut().poll(context))).await;
        tenure_testkit::wait::until("twice the request timeout is over", PATIENCE, {
            let began = Instant::now();
            move || began.elapsed() > TIMEOUT * 2
        });
        assert_eq!(store.health(), Health::Up);
        let joined = match begun {
            std::task::Poll::Ready(joined) => joined,
            std::task::Poll::Pending => joining.await,
        };
        assert!(
            joined.is_ok() || joined.as_ref().is_err_and(|error| error.kind() == ErrorKind::TooLate),
            "{joined:?}"
        );
        join(&store, "a").await;
        assert_eq!(store.status(&group()).await.unwrap().members, 1);
    });
}
