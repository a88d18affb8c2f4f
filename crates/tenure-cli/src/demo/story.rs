//! The output of the demo: text for people, one JSON object per line for programs.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::ms;

use crate::output::{brief, coloured, json_line, line, lines};
use crate::style::{Line, Tone};

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

    /// Prints lines for people or the same document for programs.
    pub(super) fn tell(&self, text: &str, document: &Value) -> anyhow::Result<()> {
        if self.json { json_line(document) } else { lines(text) }
    }

    /// Prints the start of an act: what is done, and what to expect.
    pub(super) fn act(&mut self, title: &str, done: &str, expect: &str) -> anyhow::Result<()> {
        self.acts += 1;
        let act = self.acts;
        if self.json {
            return json_line(&json!({ "type": "act", "act": act, "title": title, "done": done, "expect": expect }));
        }
        line("")?;
        coloured(&Line::on_stdout().toned(Some(Tone::Title), format_args!("{act}. {title}")))?;
        line(format_args!("   done    {done}"))?;
        line(format_args!("   expect  {expect}"))
    }

    /// Prints what was seen, and how long after the act.
    pub(super) fn saw(&mut self, ok: bool, what: &str, took: Option<Duration>) -> anyhow::Result<()> {
        if !ok {
            self.missing += 1;
        }
        if self.json {
            return json_line(&json!({
                "type": "seen", "act": self.acts, "ok": ok, "what": what, "took_ms": took.map(ms),
            }));
        }
        let (tone, word) = if ok {
            (Tone::Good, "seen   ")
        } else {
            (Tone::Bad, "MISSING")
        };
        let after = took.map_or_else(String::new, |took| format!(", after {}", brief(took)));
        let shown = Line::on_stdout().text("   ").toned(Some(tone), word);
        coloured(&shown.text(format_args!(" {what}{after}")))
    }

    /// Prints what did not happen in time.
    pub(super) fn missed(&mut self, what: &str) -> anyhow::Result<()> {
        self.saw(false, &format!("{what}: not seen in time"), None)
    }
}
