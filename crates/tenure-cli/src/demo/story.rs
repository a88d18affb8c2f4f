//! The output of the demo: text for people, one JSON object per line for programs.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::ms;

use crate::output::{brief, json_line, line};
use crate::style::{Tone, paint};

/// The printer. It also counts expectations that were not met.
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

    /// How many expectations were not met so far.
    pub(super) fn missing(&self) -> u32 {
        self.missing
    }

    /// Prints text for people or the same document for programs.
    pub(super) fn tell(&self, text: &str, document: &Value) -> anyhow::Result<()> {
        if self.json { json_line(document) } else { line(text) }
    }

    /// Prints the start of an act: what is done, and what to expect.
    pub(super) fn act(&mut self, title: &str, done: &str, expect: &str) -> anyhow::Result<()> {
        self.acts += 1;
        let act = self.acts;
        let heading = paint(Some(Tone::Title), format!("{act}. {title}"));
        let text = format!("\n{heading}\n   done    {done}\n   expect  {expect}");
        let document = json!({ "type": "act", "act": act, "title": title, "done": done, "expect": expect });
        self.tell(&text, &document)
    }

    /// Prints what was seen, and how long after the act.
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

    /// Prints what did not happen in time.
    pub(super) fn missed(&mut self, what: &str) -> anyhow::Result<()> {
        self.saw(false, &format!("{what}: not seen in time"), None)
    }
}
