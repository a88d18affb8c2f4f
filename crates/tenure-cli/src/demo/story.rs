//! What the demo tells: for people as text, for programs one JSON object a line.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::ms;

use crate::output::{brief, json_line, line};
use crate::style::{Tone, paint};

/// The teller. It also counts what was promised and not seen.
pub(super) struct Story {
    json: bool,
    acts: u32,
    missing: u32,
}

impl Story {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            acts: 0,
            missing: 0,
        }
    }

    /// How much was promised and not seen so far.
    pub(super) fn missing(&self) -> u32 {
        self.missing
    }

    /// Something for people, and the same for programs.
    pub(super) fn tell(&self, text: &str, document: &Value) -> anyhow::Result<()> {
        if self.json { json_line(document) } else { line(text) }
    }

    /// An act begins: what is done now, and what is to be expected of it.
    pub(super) fn act(&mut self, title: &str, done: &str, expect: &str) -> anyhow::Result<()> {
        self.acts += 1;
        let act = self.acts;
        let heading = paint(Some(Tone::Title), format!("{act}. {title}"));
        let text = format!("\n{heading}\n   done    {done}\n   expect  {expect}");
        let document = json!({ "type": "act", "act": act, "title": title, "done": done, "expect": expect });
        self.tell(&text, &document)
    }

    /// What came of it, and how long after what was done.
    pub(super) fn saw(&mut self, ok: bool, what: &str, took: Option<Duration>) -> anyhow::Result<()> {
        if !ok {
            self.missing += 1;
        }
        let word = if ok {
            paint(Some(Tone::Good), "seen   ")
        } else {
            paint(Some(Tone::Bad), "MISSING")
        };
        let after = took.map_or_else(String::new, |took| format!(", after {}", brief(took)));
        let text = format!("   {word} {what}{after}");
        let document = json!({
            "type": "seen", "act": self.acts, "ok": ok, "what": what, "took_ms": took.map(ms),
        });
        self.tell(&text, &document)
    }

    /// What was waited for in vain.
    pub(super) fn missed(&mut self, what: &str) -> anyhow::Result<()> {
        self.saw(
            false,
            &format!("{what}: not within the time that was waited for it"),
            None,
        )
    }
}
