//! Events over HTTP: pages, long polls, streams.

use std::time::Duration;

use serde_json::json;
use tenure_core::clock::SystemClock;
use tenure_core::memory::MemoryStore;
use tenure_core::store::StoreOptions;
use tenure_server::Settings;

use crate::common::faulty::{Faulty, Mood};
use crate::common::sse::Stream;
use crate::common::{Answer, Daemon};

async fn small(events_max: u64) -> Daemon {
    let clock = SystemClock::shared();
    let store = MemoryStore::new(
        StoreOptions {
            events_max,
            ..StoreOptions::default()
        },
        clock.clone(),
    );
    Daemon::over(store, clock, Settings::default()).await
}

#[tokio::test]
async fn events_are_read_page_by_page_and_filtered() {
    let daemon = Daemon::start().await;
    for member in ["a", "b", "a"] {
        daemon.join("g", member).await;
    }
    let first = daemon.get("/v1/groups/g/events?limit=2").await.json();
    assert_eq!(first["events"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&first["missed"], &first["events"][0]["type"]),
        (&json!(false), &json!("joined"))
    );
    let next = first["next"].as_str().unwrap().to_owned();
    let rest = daemon.get(&format!("/v1/groups/g/events?after={next}")).await.json();
    let kinds: Vec<_> = rest["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(kinds, ["superseded", "joined"]);
    let only = daemon.get("/v1/groups/g/events?types=superseded,left").await.json();
    assert_eq!(only["events"].as_array().map(Vec::len), Some(1));
    assert_eq!(only["next"], rest["next"], "looked at all, told one");
}

#[tokio::test]
async fn events_are_read_backwards() {
    let daemon = Daemon::start().await;
    for n in 0..5 {
        daemon.join("g", &format!("m{n}")).await;
    }
    let all = daemon.get("/v1/groups/g/events").await.json();
    let ids: Vec<u64> = all["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["id"].as_u64().unwrap())
        .collect();
    let (mut before, mut read) = ((ids[4] + 1).to_string(), Vec::new());
    loop {
        let path = format!("/v1/groups/g/events?before={before}&limit=2");
        let page = daemon.get(&path).await.json();
        assert_eq!(page["missed"], false);
        let found = page["events"].as_array().unwrap().iter();
        let found: Vec<u64> = found.map(|event| event["id"].as_u64().unwrap()).collect();
        let next = page["next"].as_str().unwrap().to_owned();
        read.splice(0..0, found);
        if next == before {
            break;
        }
        before = next;
    }
    assert_eq!(read, ids);
}

#[tokio::test]
async fn a_long_poll_ends_with_news_or_with_its_patience() {
    let daemon = Daemon::start().await;
    daemon.join("g", "a").await;
    let next = daemon.get("/v1/groups/g/events").await.json()["next"]
        .as_str()
        .unwrap()
        .to_owned();
    let silent = daemon
        .get(&format!("/v1/groups/g/events?after={next}&wait_ms=20"))
        .await
        .json();
    assert_eq!((&silent["events"], &silent["next"]), (&json!([]), &json!(next)));
    let path = format!("/v1/groups/g/events?after={next}&wait_ms=30000");
    let (news, _) = tokio::join!(daemon.get(&path), async {
        tenure_testkit::wait::until_async("the poll waits", crate::common::PATIENCE, || async {
            daemon.get("/v1/status").await.json()["streams"] == 1
        })
        .await;
        daemon.join("g", "b").await;
    });
    assert_eq!(news.json()["events"][0]["type"], "joined");
}

#[tokio::test]
async fn stream_sends_past_and_future_events() {
    let daemon = Daemon::start().await;
    let tenure = daemon.join("g", "a").await;
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events", &[]).await;
    let joined = stream.next().await.unwrap();
    assert_eq!(
        (joined.kind.as_str(), &joined.data["tenure"]),
        ("joined", &json!(tenure))
    );
    assert_eq!(joined.id, joined.data["id"].to_string());
    daemon.delete(&format!("/v1/groups/g/tenures/{tenure}")).await;
    assert_eq!(stream.next().await.unwrap().kind, "left");
}

#[tokio::test]
async fn stream_of_an_unused_group_misses_nothing() {
    let daemon = Daemon::start().await;
    let mut stream = Stream::open(&daemon, "/v1/groups/new/events", &[]).await;
    daemon.join("new", "a").await;
    assert_eq!(stream.next().await.unwrap().kind, "joined", "and no gap before it");
}

#[tokio::test]
async fn a_stream_resumes_after_the_last_event_that_was_seen() {
    let daemon = Daemon::start().await;
    for member in ["a", "b", "c"] {
        daemon.join("g", member).await;
    }
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events", &[]).await;
    let seen = stream.next().await.unwrap();
    drop(stream);
    daemon.join("g", "d").await;
    let resume = [("last-event-id", seen.id.as_str())];
    // The header goes before the query, which a browser repeats as it was at first.
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events?after=0", &resume).await;
    for member in ["b", "c", "d"] {
        let event = stream.next().await.unwrap();
        assert!(event.data["tenure"].as_str().unwrap().starts_with(member), "{event:?}");
    }
}

#[tokio::test]
async fn a_stream_tells_only_the_types_that_were_asked_for() {
    let daemon = Daemon::start().await;
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events?types=left,expelled", &[]).await;
    for (member, query) in [("a", ""), ("b", "?expel=true")] {
        let tenure = daemon.join("g", member).await;
        daemon.delete(&format!("/v1/groups/g/tenures/{tenure}{query}")).await;
    }
    assert_eq!(stream.kinds(2).await, ["left", "expelled"]);
}

#[tokio::test]
async fn trimmed_events_are_announced_as_a_gap() {
    let daemon = small(10).await;
    daemon.join("g", "a").await;
    let first = daemon.get("/v1/groups/g/events").await.json()["events"][0]["id"]
        .as_u64()
        .unwrap();
    for _ in 0..30 {
        daemon.join("g", "a").await;
    }
    let id = first.to_string();
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events", &[("last-event-id", &id)]).await;
    let gap = stream.next().await.unwrap();
    assert_eq!((gap.kind.as_str(), &gap.data["after"]), ("gap", &json!(first)));
    let next = stream.next().await.unwrap();
    assert_eq!(
        next.data["id"].as_u64(),
        gap.data["resumes_after"].as_u64().map(|after| after + 1)
    );
    // A reader that disconnects at the gap resumes after it, and gets it once.
    assert_eq!(gap.id, gap.data["resumes_after"].to_string());
    let page = daemon.get(&format!("/v1/groups/g/events?after={first}")).await.json();
    assert_eq!(page["missed"], true);
}

#[tokio::test]
async fn position_of_a_lost_store_reads_as_a_gap() {
    let daemon = Daemon::start().await;
    daemon.join("g", "a").await;
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events?after=9007199254740000", &[]).await;
    assert_eq!(stream.next().await.unwrap().kind, "gap");
}

#[tokio::test]
async fn a_silent_stream_says_that_it_is_there_and_where_it_is() {
    let settings = Settings {
        stream_keep_alive: Duration::from_millis(30),
        ..Settings::default()
    };
    let daemon = Daemon::with(settings).await;
    daemon.join("g", "a").await;
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events?types=left", &[]).await;
    let newest = daemon.get("/v1/groups/g").await.json()["last_event"].to_string();
    // Filtered events advance the position, so that a later resume is not a gap.
    stream.comment("still here").await;
    assert_eq!(stream.last_id, newest);
}

#[tokio::test]
async fn streams_are_limited_and_closing_frees_one() {
    let daemon = Daemon::with(Settings {
        max_streams: 2,
        ..Settings::default()
    })
    .await;
    let one = Stream::open(&daemon, "/v1/groups/g/events", &[]).await;
    let _two = Stream::open(&daemon, "/v1/groups/g/events", &[]).await;
    let refused = daemon
        .request("GET", "/v1/groups/g/events")
        .header("accept", "text/event-stream")
        .send()
        .await;
    let refused = Answer::read(refused.unwrap()).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (503, "overloaded".to_owned())
    );
    assert!(refused.json()["retry_after_ms"].is_u64() && refused.headers.contains_key("retry-after"));
    assert_eq!(
        daemon.get("/v1/groups/g/events").await.status,
        200,
        "a page needs no place"
    );
    drop(one);
    tenure_testkit::wait::until_async("a place is free", crate::common::PATIENCE, || async {
        daemon.get("/v1/status").await.json()["streams"] == 1
    })
    .await;
    Stream::open(&daemon, "/v1/groups/g/events", &[]).await;
}

#[tokio::test]
async fn a_stream_outlives_an_outage_of_the_store() {
    let clock = SystemClock::shared();
    let store = Faulty::new(clock.clone());
    let daemon = Daemon::over(store.clone(), clock, Settings::default()).await;
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events", &[]).await;
    daemon.join("g", "a").await;
    assert_eq!(stream.next().await.unwrap().kind, "joined");
    store.be(Mood::Fails(tenure_core::ErrorKind::Unavailable));
    let away = daemon
        .request("GET", "/v1/groups/g/events")
        .header("accept", "text/event-stream")
        .send()
        .await;
    assert_eq!(
        Answer::read(away.unwrap()).await.code(),
        "store_unavailable",
        "a new one is not opened onto nothing"
    );
    store.be(Mood::Good);
    daemon.join("g", "b").await;
    let event = stream.next().await.unwrap();
    assert!(event.data["tenure"].as_str().unwrap().starts_with('b'), "{event:?}");
}

#[tokio::test]
async fn a_busy_stream_tells_every_event_once_and_in_order() {
    let daemon = Daemon::start().await;
    let mut stream = Stream::open(&daemon, "/v1/groups/g/events?types=joined", &[]).await;
    let joins = async {
        for n in 0..300 {
            daemon.join("g", &format!("m{n}")).await;
        }
    };
    let reads = async {
        for n in 0..300 {
            let event = stream.next().await.expect("an event");
            assert!(
                event.data["tenure"].as_str().unwrap().starts_with(&format!("m{n}@")),
                "{event:?}"
            );
        }
    };
    tokio::join!(joins, reads);
}
