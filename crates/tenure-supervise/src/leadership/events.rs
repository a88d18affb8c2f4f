//! The event stream of LiteFS: `GET /events` returns one JSON object per line, the first one immediately.
//!
//! Each stream starts with `{"type":"init","data":{"isPrimary":true}}`. A `primaryChange` of the same shape follows
//! every change; other types are ignored. <https://fly.io/docs/litefs/events/>

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Response, Url};
use serde::Deserialize;
use tenure_core::clock::{Clock, jitter, within};
use tokio::sync::watch;

use super::evaluator::StreamState;
use crate::http::shown;

/// The timeout for the connection, the response head and the first line, each.
const START_TIMEOUT: Duration = Duration::from_secs(2);
/// The first and the longest wait between two attempts to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// A longer line is not from LiteFS.
const LONGEST_LINE: usize = 64 * 1024;

#[derive(Deserialize)]
struct StreamEvent {
    r#type: String,
    #[serde(default)]
    data: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct PrimaryChange {
    #[serde(rename = "isPrimary")]
    is_primary: bool,
}

/// Follows the stream forever and publishes its state.
pub(super) async fn listen(client: Client, url: Url, clock: Arc<dyn Clock>, tell: watch::Sender<StreamState>) {
    let (mut wait, shown) = (RETRY.0, shown(url.as_str()));
    loop {
        let before = *tell.borrow();
        let ended = follow(&client, &url, &*clock, &tell).await;
        let heard = *tell.borrow();
        if let StreamState::Connected(primary) = heard {
            tracing::warn!(url = shown, reason = ended, "the event stream of LiteFS has ended");
            publish(&tell, StreamState::Disconnected(primary, clock.mono()));
            wait = RETRY.0;
        } else {
            tracing::debug!(
                url = shown,
                reason = ended,
                ?before,
                "cannot connect to the event stream of LiteFS"
            );
        }
        clock.sleep(jitter(&*clock, wait, 25)).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

/// Follows one stream to its end. Returns why it ended.
async fn follow(client: &Client, url: &Url, clock: &dyn Clock, tell: &watch::Sender<StreamState>) -> String {
    let mut stream = match within(clock, START_TIMEOUT, client.get(url.clone()).send()).await {
        None => return "no answer".to_owned(),
        Some(Err(error)) => return error.without_url().to_string(),
        Some(Ok(answer)) if !answer.status().is_success() => return format!("answered {}", answer.status()),
        Some(Ok(answer)) => answer,
    };
    let mut buffer = Vec::new();
    match within(clock, START_TIMEOUT, next_line(&mut stream, &mut buffer)).await {
        None => return "no first line".to_owned(),
        Some(Err(why)) => return why,
        Some(Ok(line)) => match read(&line) {
            Ok(Some(primary)) => publish(tell, StreamState::Connected(primary)),
            Ok(None) => return "the first line is not an init".to_owned(),
            Err(why) => return why,
        },
    }
    loop {
        let line = match next_line(&mut stream, &mut buffer).await {
            Ok(line) => line,
            Err(why) => return why,
        };
        match read(&line) {
            Ok(Some(primary)) => publish(tell, StreamState::Connected(primary)),
            Ok(None) => {}
            Err(why) => return why,
        }
    }
}

/// The next line, without its line end. The rest stays in the buffer.
async fn next_line(stream: &mut Response, buffer: &mut Vec<u8>) -> Result<Vec<u8>, String> {
    loop {
        if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let rest = buffer.split_off(end + 1);
            let mut line = std::mem::replace(buffer, rest);
            line.pop();
            return Ok(line);
        }
        if buffer.len() > LONGEST_LINE {
            return Err("a line is too long".to_owned());
        }
        match stream.chunk().await {
            Ok(Some(chunk)) => buffer.extend_from_slice(&chunk),
            Ok(None) => return Err("closed".to_owned()),
            Err(error) => return Err(error.without_url().to_string()),
        }
    }
}

/// Whether this line makes the node the primary. `None` for other event types.
fn read(line: &[u8]) -> Result<Option<bool>, String> {
    let bad = |error: serde_json::Error| format!("not a LiteFS event: {error}");
    let line: StreamEvent = serde_json::from_slice(line).map_err(bad)?;
    if line.r#type != "init" && line.r#type != "primaryChange" {
        return Ok(None);
    }
    let change = PrimaryChange::deserialize(line.data.unwrap_or_default()).map_err(bad)?;
    Ok(Some(change.is_primary))
}

fn publish(tell: &watch::Sender<StreamState>, word: StreamState) {
    tell.send_if_modified(|last| std::mem::replace(last, word) != word);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_lines_parse_as_documented_by_litefs() {
        let read = |line: &str| read(line.as_bytes());
        assert_eq!(read(r#"{"type":"init","data":{"isPrimary":true}}"#), Ok(Some(true)));
        let replica = r#"{"type":"primaryChange","data":{"isPrimary":false,"hostname":"b:20202"}}"#;
        assert_eq!(read(replica), Ok(Some(false)));
        assert_eq!(
            read(r#"{"type":"tx","db":"db","data":{"txID":"27","commit":2}}"#),
            Ok(None)
        );
        assert_eq!(read(r#"{"type":"something new"}"#), Ok(None));
        // An unclear relevant event ends the stream.
        for bad in [
            "",
            "{}",
            "no",
            r#"{"type":"init"}"#,
            r#"{"type":"init","data":{"isPrimary":"yes"}}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
