//! The log of a roster as a stream, and what an operator decides as events of its group.

use reqwest::StatusCode;
use serde_json::json;

use crate::common::Answer;
use crate::common::sse::Stream;
use crate::roster::server::{R, RosterServer};

async fn refused(server: &RosterServer, path: &str) -> StatusCode {
    let request = server.daemon.request("GET", path).header("accept", "text/event-stream");
    Answer::read(request.send().await.expect("an answer")).await.status
}

#[tokio::test]
async fn log_is_followed_and_resumed() {
    let server = RosterServer::open().await;
    server.seat("ana", 1).await;
    let log = format!("{R}/log");
    let mut stream = Stream::open(&server.daemon, &log, &[]).await;
    let first = stream.next().await.expect("what was");
    assert_eq!(
        (first.kind.as_str(), &first.data["provider"]),
        ("online", &json!("ana"))
    );
    assert_eq!(first.data["id"].to_string(), first.id);
    server.post("/providers/ana/deactivate").await;
    assert_eq!(stream.kinds(2).await, ["deactivated", "offline"], "what comes");
    drop(stream);
    server.post("/providers/ana/activate").await;
    let resume = [("last-event-id", first.id.as_str())];
    let mut stream = Stream::open(&server.daemon, &log, &resume).await;
    assert_eq!(stream.kinds(3).await, ["deactivated", "offline", "activated"]);
    let mut one = Stream::open(&server.daemon, &format!("{log}?provider=ben"), &[]).await;
    server.seat("ben", 1).await;
    let entry = one.next().await.expect("an entry");
    assert_eq!(
        (entry.kind.as_str(), &entry.data["provider"]),
        ("online", &json!("ben"))
    );

    assert_eq!(refused(&server, &format!("{log}?limit=3")).await, 422);
    assert_eq!(refused(&server, "/v1/rosters/suport/log").await, 404);
}

#[tokio::test]
async fn activation_is_in_the_feed_of_the_group() {
    let server = RosterServer::open().await;
    server.put("ana", 1).await;
    let feed = "/v1/groups/roster.support/events?types=provider_activated,provider_deactivated";
    let mut stream = Stream::open(&server.daemon, feed, &[]).await;
    for what in ["deactivate", "deactivate", "activate"] {
        server.post(&format!("/providers/ana/{what}")).await;
    }
    for kind in ["provider_deactivated", "provider_activated"] {
        let event = stream.next().await.expect("an event");
        assert_eq!((event.kind.as_str(), &event.data["to"]), (kind, &json!("ana")));
    }
}
