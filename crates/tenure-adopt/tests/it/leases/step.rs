//! The steps over the leases of other programs, on real servers.

use std::sync::Arc;
use std::time::Duration;

use tenure_adopt::{KeyPattern, OldKeys, StoredKeys, TakeOutcome};
use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::id::LeaseName;
use tenure_testkit::resp::Reply;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Mode, Proxy, wait};
use tenure_valkey::ConnectionOptions;

use crate::world::connected;

const TTL: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(30);

/// Tolerates a short stall of the machine.
async fn old_keys(url: &str) -> StoredKeys {
    let patient = ConnectionOptions {
        request_timeout: PATIENCE,
        connect_timeout: PATIENCE / 3,
        ..ConnectionOptions::default()
    };
    old_keys_with(url, patient).await
}

async fn old_keys_with(url: &str, options: ConnectionOptions) -> StoredKeys {
    let pattern = KeyPattern::parse("poll:lease:{target}").unwrap();
    StoredKeys::new(connected(url, options).await, pattern, TTL).unwrap()
}

fn by(value: &str, targets: &[&str]) -> Vec<(LeaseName, String)> {
    let each = targets
        .iter()
        .map(|target| (LeaseName::new(target).unwrap(), value.to_owned()));
    each.collect()
}

fn get(server: &Server, key: &str) -> Option<String> {
    match server.cli(&["GET", key]).unwrap() {
        Reply::Nil => None,
        reply => Some(reply.text()),
    }
}

fn ttl(server: &Server, key: &str) -> i64 {
    server.cli(&["PTTL", key]).unwrap().int().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn take_acquires_free_keys_and_keeps_ours() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let keys = old_keys(&server.url()).await;
        server
            .cli(&["SET", "poll:lease:b", "old-1", "NX", "PX", "20000"])
            .unwrap();
        server.cli(&["SET", "poll:lease:c", "old-1"]).unwrap();
        server.cli(&["HSET", "poll:lease:d", "holder", "old-1"]).unwrap();
        let taken = keys.take(&by("new", &["a", "b", "c", "d"])).await.unwrap();
        assert_eq!(taken[0], TakeOutcome::Ours);
        let TakeOutcome::Held { by: holder, free_in } = &taken[1] else {
            panic!("{taken:?}")
        };
        assert_eq!(holder, "old-1");
        assert!(free_in.is_some_and(|left| left <= Duration::from_secs(20) && left > Duration::from_secs(5)));
        let for_ever = |by: &str| TakeOutcome::Held {
            by: by.to_owned(),
            free_in: None,
        };
        assert_eq!(taken[2..], [for_ever("old-1"), for_ever("")]);
        // The old programs see exactly what they would write themselves.
        assert_eq!(get(&server, "poll:lease:a").as_deref(), Some("new"));
        assert!(
            server
                .cli(&["SET", "poll:lease:a", "old-1", "NX", "PX", "5000"])
                .unwrap()
                == Reply::Nil
        );
        server.cli(&["PEXPIRE", "poll:lease:a", "9000"]).unwrap();
        let again = keys.take(&by("new", &["a"])).await.unwrap();
        assert_eq!(again, [TakeOutcome::Ours], "a lost reply is read back like this");
        assert!(ttl(&server, "poll:lease:a") > 25_000);
        assert_eq!(get(&server, "poll:lease:b").as_deref(), Some("old-1"));
        assert!(ttl(&server, "poll:lease:b") <= 20_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renew_and_release_require_our_value() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let keys = old_keys(&server.url()).await;
        let all = by("new", &["kept", "stolen", "expired"]);
        assert_eq!(keys.take(&all).await.unwrap(), vec![TakeOutcome::Ours; 3]);
        server
            .cli(&["SET", "poll:lease:stolen", "thief", "PX", "20000"])
            .unwrap();
        server.cli(&["DEL", "poll:lease:expired"]).unwrap();
        server.cli(&["PEXPIRE", "poll:lease:kept", "9000"]).unwrap();
        assert_eq!(keys.renew(&all).await.unwrap(), [true, false, false]);
        assert!(ttl(&server, "poll:lease:kept") > 25_000);
        assert!(ttl(&server, "poll:lease:stolen") <= 20_000);
        assert_eq!(get(&server, "poll:lease:expired"), None, "a renewal creates no key");
        assert_eq!(keys.release(&all).await.unwrap(), [true, false, false]);
        assert_eq!(get(&server, "poll:lease:kept"), None);
        assert_eq!(get(&server, "poll:lease:stolen").as_deref(), Some("thief"));
        // Many targets in one call, too many are rejected.
        let many: Vec<_> = (0..200)
            .map(|n| (LeaseName::new(format!("t-{n}")).unwrap(), "new".to_owned()))
            .collect();
        assert_eq!(keys.take(&many).await.unwrap(), vec![TakeOutcome::Ours; 200]);
        assert_eq!(keys.renew(&many).await.unwrap(), vec![true; 200]);
        let more = [many.clone(), by("new", &["one-more"])].concat();
        assert_eq!(keys.take(&more).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_reply_is_read_back_by_a_repeated_take() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let proxy = Proxy::start(server.addr());
        let keys = old_keys(&proxy.url("valkey")).await;
        // Lets the server learn the scripts.
        keys.take(&by("new", &["warm"])).await.unwrap();
        keys.release(&by("new", &["warm"])).await.unwrap();
        proxy.set(Mode::DropReplies);
        let wanted = by("new", &["a"]);
        let (lost, ()) = tokio::join!(keys.take(&wanted), async {
            let lost = |counts: &tenure_testkit::proxy::Counts| counts.swallowed > 0;
            proxy.wait_async("the reply is lost", lost).await;
            proxy.set(Mode::Pass);
        });
        let lost = lost.unwrap_err();
        assert_eq!(
            (lost.kind(), lost.outcome()),
            (ErrorKind::Unavailable, Outcome::Unknown)
        );
        assert_eq!(
            get(&server, "poll:lease:a").as_deref(),
            Some("new"),
            "the lost step was applied"
        );
        wait::until_async("the client has reconnected", PATIENCE, || {
            let keys = keys.clone();
            async move { keys.renew(&by("new", &["a"])).await.is_ok() }
        })
        .await;
        assert_eq!(keys.take(&by("new", &["a"])).await.unwrap(), [TakeOutcome::Ours]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn take_that_arrives_after_its_timeout_acquires_nothing() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let proxy = Proxy::start(server.addr());
        let keys = old_keys_with(&proxy.url("valkey"), ConnectionOptions::default()).await;
        keys.take(&by("new", &["a"])).await.unwrap();
        proxy.set(Mode::HoldRequests);
        let late = keys.take(&by("new", &["b"])).await.unwrap_err();
        assert_eq!(late.outcome(), Outcome::Unknown);
        let late = keys.release(&by("new", &["a"])).await.unwrap_err();
        assert_eq!(late.outcome(), Outcome::Unknown);
        let before = proxy.counts();
        proxy.release();
        proxy.wait("all held data have arrived", |counts| {
            counts.held == 0 && counts.requests >= before.requests + before.held
        });
        // One round trip later on the server.
        server.cli(&["PING"]).unwrap();
        assert_eq!(get(&server, "poll:lease:b"), None);
        assert_eq!(get(&server, "poll:lease:a").as_deref(), Some("new"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_memory_blocks_take_but_not_renew_and_release() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let keys = old_keys(&server.url()).await;
        keys.take(&by("new", &["a"])).await.unwrap();
        keys.renew(&by("new", &["a"])).await.unwrap();
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let refused = keys.take(&by("new", &["b"])).await.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.outcome()),
            (ErrorKind::Unavailable, Outcome::Unchanged)
        );
        assert_eq!(keys.renew(&by("new", &["a"])).await.unwrap(), [true]);
        assert_eq!(keys.release(&by("new", &["a"])).await.unwrap(), [true]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_returns_exactly_the_old_leases() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let fill = "for i = 1, 3000 do redis.call('SET', 'poll:lease:t-' .. i, 'old-' .. i % 3, 'PX', 60000); \
                    redis.call('SET', 'other:' .. i, 'x') end";
        server.cli(&["EVAL", fill, "0"]).unwrap();
        server.cli(&["SET", "poll:lease:for-ever", "old-9"]).unwrap();
        let listed = old_keys(&server.url()).await.list().await.unwrap();
        assert_eq!(listed.len(), 3_001);
        let for_ever = listed.iter().find(|lease| lease.target == b"for-ever").unwrap();
        assert_eq!((for_ever.value.as_slice(), for_ever.free_in), (&b"old-9"[..], None));
        let with_end = listed.iter().filter(|lease| lease.free_in.is_some());
        assert_eq!(with_end.count(), 3_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_list_is_an_error() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let fill = "for i = 1, 30000 do redis.call('SET', 'poll:lease:' .. i, 'old-1', 'PX', 600000) end";
        server.cli(&["EVAL", fill, "0"]).unwrap();
        let proxy = Arc::new(Proxy::start(server.addr()));
        let keys = old_keys(&proxy.url("valkey")).await;
        assert_eq!(keys.list().await.unwrap().len(), 30_000);
        // Slow enough that it cannot complete before the cut.
        proxy.set(Mode::Delay {
            requests: Duration::ZERO,
            replies: Duration::from_millis(20),
        });
        let cutting = Arc::clone(&proxy);
        let from = proxy.counts().replies;
        let cut = std::thread::spawn(move || {
            cutting.wait("some pages", |counts| counts.replies > from + 100_000);
            cutting.set(Mode::Reset);
            cutting.set(Mode::Pass);
        });
        let error = keys.list().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        cut.join().unwrap();
        wait::until_async("a complete list", PATIENCE, || {
            let keys = keys.clone();
            async move { keys.list().await.is_ok_and(|found| found.len() == 30_000) }
        })
        .await;
    }
}
