//! A reader of server-sent events that understands as much as these tests need.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use serde_json::Value;

use super::{Daemon, PATIENCE};

/// One dispatched event: id, type, data.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: String,
    pub kind: String,
    pub data: Value,
}

pub struct Stream {
    bytes: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<axum::body::Bytes>> + Send>>,
    text: String,
    pub last_id: String,
    pub comments: Vec<String>,
}

impl Stream {
    pub async fn open(daemon: &Daemon, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut request = daemon
            .request("GET", path)
            .header("accept", "text/event-stream")
            .timeout(PATIENCE * 10);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.expect("a stream");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            bytes: Box::pin(response.bytes_stream()),
            text: String::new(),
            last_id: String::new(),
            comments: Vec::new(),
        }
    }

    /// The next event; `None` when the stream ended.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            if let Some(event) = self.dispatch(&block) {
                return Some(event);
            }
        }
    }

    /// Reads up to a comment that says this; events on the way are a failure.
    pub async fn comment(&mut self, wanted: &str) {
        self.comments.clear();
        while !self.comments.iter().any(|comment| comment == wanted) {
            let block = self.block().await.expect("another event");
            assert_eq!(self.dispatch(&block), None);
        }
    }

    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            match tokio::time::timeout(PATIENCE, self.bytes.next())
                .await
                .expect("something of the stream")
            {
                Some(Ok(bytes)) => self.text.push_str(std::str::from_utf8(&bytes).expect("text")),
                Some(Err(_)) | None => return None,
            }
        }
    }

    pub async fn kinds(&mut self, count: usize) -> Vec<String> {
        let mut kinds = Vec::new();
        for _ in 0..count {
            kinds.push(self.next().await.expect("an event").kind);
        }
        kinds
    }

    fn dispatch(&mut self, block: &str) -> Option<Event> {
        let mut fields = BTreeMap::new();
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("", comment)) => self.comments.push(comment.to_owned()),
                Some((name, value)) => drop(fields.insert(name.to_owned(), value.to_owned())),
                None => panic!("{line:?} is not a line of an event stream"),
            }
        }
        if let Some(id) = fields.get("id") {
            self.last_id.clone_from(id);
        }
        let data = serde_json::from_str(fields.get("data")?).expect("JSON");
        Some(Event {
            id: self.last_id.clone(),
            kind: fields.get("event").cloned().unwrap_or_default(),
            data,
        })
    }
}
