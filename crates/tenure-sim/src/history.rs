//! The history of a run: a digest that identifies it, and optionally its lines as text.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::time::At;

/// How much of a history is kept as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HistoryMode {
    /// Only the digest. Fast.
    #[default]
    Digest,
    /// The last lines, for a failing seed.
    Tail(usize),
    /// Every line is printed as it happens.
    Print,
}

/// A history.
#[derive(Debug, Default)]
pub struct History {
    keep: HistoryMode,
    digest: u64,
    steps: u64,
    lines: VecDeque<String>,
}

impl History {
    /// Creates an empty history.
    #[must_use]
    pub fn new(keep: HistoryMode) -> Self {
        Self {
            keep,
            digest: 0xcbf2_9ce4_8422_2325,
            ..Self::default()
        }
    }

    /// Records an event. The numbers distinguish it from any other event at that time; the text is built only if it is
    /// kept.
    pub fn note(&mut self, at: At, numbers: &[u64], text: impl FnOnce() -> String) {
        self.steps += 1;
        self.mix(at.0);
        for number in numbers {
            self.mix(*number);
        }
        if self.keep == HistoryMode::Digest {
            return;
        }
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = write!(line, "{at}  {}", text());
        self.keep_line(line);
    }

    /// Adds a line that is not part of the digest, such as a log line of the library.
    pub fn aside(&mut self, at: At, text: &str) {
        if self.keep != HistoryMode::Digest {
            self.keep_line(format!("{at}  {text}"));
        }
    }

    /// Whether lines are kept.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.keep != HistoryMode::Digest
    }

    /// The digest of all events.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The number of events.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The last lines.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }

    #[expect(clippy::print_stdout, reason = "`--trace` prints")]
    fn keep_line(&mut self, line: String) {
        match self.keep {
            HistoryMode::Digest => {}
            HistoryMode::Print => println!("{line}"),
            HistoryMode::Tail(most) => {
                if self.lines.len() >= most {
                    self.lines.pop_front();
                }
                self.lines.push_back(line);
            }
        }
    }

    /// FNV-1a over the bytes of the number.
    fn mix(&mut self, number: u64) {
        for byte in number.to_le_bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
