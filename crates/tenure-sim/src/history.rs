//! What happened, as one number that tells two histories apart, and as lines when somebody wants to read them.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::time::At;

/// How much of a history is kept as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// Only the number. Fast.
    #[default]
    Digest,
    /// The last lines, for a failing seed.
    Tail(usize),
    /// Every line goes to standard output as it happens.
    Print,
}

/// A history.
#[derive(Debug, Default)]
pub struct History {
    keep: Keep,
    digest: u64,
    steps: u64,
    lines: VecDeque<String>,
}

impl History {
    /// An empty one.
    #[must_use]
    pub fn new(keep: Keep) -> Self {
        Self {
            keep,
            digest: 0xcbf2_9ce4_8422_2325,
            ..Self::default()
        }
    }

    /// Something happened. The numbers are what makes it different from anything else at that time; the text is only
    /// made when somebody reads it.
    pub fn note(&mut self, at: At, numbers: &[u64], text: impl FnOnce() -> String) {
        self.steps += 1;
        self.mix(at.0);
        for number in numbers {
            self.mix(*number);
        }
        if self.keep == Keep::Digest {
            return;
        }
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = write!(line, "{at}  {}", text());
        self.keep_line(line);
    }

    /// A line for readers alone, such as a log line of the library.
    pub fn aside(&mut self, at: At, text: &str) {
        if self.keep != Keep::Digest {
            self.keep_line(format!("{at}  {text}"));
        }
    }

    /// Whether anybody reads the lines.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.keep != Keep::Digest
    }

    /// The number.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many things happened.
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
            Keep::Digest => {}
            Keep::Print => println!("{line}"),
            Keep::Tail(most) => {
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
