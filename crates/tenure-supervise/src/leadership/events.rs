//! The event stream of LiteFS: `GET /events` answers one JSON object per line, the first one at once.
//!
//! `{"type":"init","data":{"isPrimary":true}}` begins every stream, and a `primaryChange` of the same shape follows every
//! change; other types are none of our business. <https://fly.io/docs/litefs/events/>

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Response, Url};
use serde::Deserialize;
use tenure_core::clock::{Clock, jitter, within};
use tokio::sync::watch;

use super::judge::Word;
use crate::http::shown;

/// How long the stream may take to begin: the connection, the head, and the first line, each.
const BEGIN: Duration = Duration::from_secs(2);
/// The waits between two tries to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// No line that concerns us is longer; one that is longer is not of LiteFS.
const LONGEST_LINE: usize = 64 * 1024;

#[derive(Deserialize)]
struct Line {
    r#type: String,
    #[serde(default)]
    data: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Change {
    #[serde(rename = "isPrimary")]
    is_primary: bool,
}

/// Listens for ever, and says what it hears.
pub(super) async fn listen(client: Client, url: Url, clock: Arc<dyn Clock>, tell: watch::Sender<Word>) {
    let (mut wait, shown) = (RETRY.0, shown(url.as_str()));
    loop {
        let before = *tell.borrow();
        let ended = follow(&client, &url, &*clock, &tell).await;
        let heard = *tell.borrow();
        if let Word::Says(primary) = heard {
            tracing::warn!(url = shown, reason = ended, "the event stream of LiteFS has ended");
            say(&tell, Word::Lost(primary, clock.mono()));
            wait = RETRY.0;
        } else {
            tracing::debug!(
                url = shown,
                reason = ended,
                ?before,
                "the event stream of LiteFS is not to be had"
            );
        }
        clock.sleep(jitter(&*clock, wait, 25)).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

/// Follows one stream to its end, and answers why it ended.
async fn follow(client: &Client, url: &Url, clock: &dyn Clock, tell: &watch::Sender<Word>) -> String {
    let mut stream = match within(clock, BEGIN, client.get(url.clone()).send()).await {
        None => return "no answer".to_owned(),
        Some(Err(error)) => return error.without_url().to_string(),
        Some(Ok(answer)) if !answer.status().is_success() => return format!("answered {}", answer.status()),
        Some(Ok(answer)) => answer,
    };
    let mut buffer = Vec::new();
    match within(clock, BEGIN, next_line(&mut stream, &mut buffer)).await {
        None => return "no first line".to_owned(),
        Some(Err(why)) => return why,
        Some(Ok(line)) => match read(&line) {
            Ok(Some(primary)) => say(tell, Word::Says(primary)),
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
            Ok(Some(primary)) => say(tell, Word::Says(primary)),
            Ok(None) => {}
            Err(why) => return why,
        }
    }
}

/// The next line, without its end. What has come of the one after it stays in the buffer.
async fn next_line(stream: &mut Response, buffer: &mut Vec<u8>) -> Result<Vec<u8>, String> {
    loop {
        if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let rest = buffer.split_off(end + 1);
            let mut line = std::mem::replace(buffer, rest);
            line.pop();
            return Ok(line);
        }
        if buffer.len() > LONGEST_LINE {
            return Err("a line that is too long".to_owned());
        }
        match stream.chunk().await {
            Ok(Some(chunk)) => buffer.extend_from_slice(&chunk),
            Ok(None) => return Err("closed".to_owned()),
            Err(error) => return Err(error.without_url().to_string()),
        }
    }
}

/// Whether this node is the primary by this line; `None` when the line is about something else.
fn read(line: &[u8]) -> Result<Option<bool>, String> {
    let bad = |error: serde_json::Error| format!("a line that is not of LiteFS: {error}");
    let line: Line = serde_json::from_slice(line).map_err(bad)?;
    if line.r#type != "init" && line.r#type != "primaryChange" {
        return Ok(None);
    }
    let change = Change::deserialize(line.data.unwrap_or_default()).map_err(bad)?;
    Ok(Some(change.is_primary))
}

fn say(tell: &watch::Sender<Word>, word: Word) {
    tell.send_if_modified(|last| std::mem::replace(last, word) != word);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_litefs_documents_them() {
        let read = |line: &str| read(line.as_bytes());
        assert_eq!(read(r#"{"type":"init","data":{"isPrimary":true}}"#), Ok(Some(true)));
        let replica = r#"{"type":"primaryChange","data":{"isPrimary":false,"hostname":"b:20202"}}"#;
        assert_eq!(read(replica), Ok(Some(false)));
        assert_eq!(
            read(r#"{"type":"tx","db":"db","data":{"txID":"27","commit":2}}"#),
            Ok(None)
        );
        assert_eq!(read(r#"{"type":"something new"}"#), Ok(None));
        // Anything unclear about what concerns us ends the stream rather than be guessed.
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
