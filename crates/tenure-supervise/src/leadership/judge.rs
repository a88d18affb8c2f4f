//! What looks at the mount and words of the event stream amount to. Pure.
//!
//! An absent `.primary` means "primary", or "a replica that is not connected right now", or "there is no primary": LiteFS
//! shows the file only while it follows one. So absence is necessary and not enough. It has to last for a window in
//! which nobody has looked away, in a mount that is really there; and the event stream, once it was heard, has to agree.

use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::supervise::Evidence;

use super::mount::Sight;

/// What the event stream has said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// Nothing, as far as anybody remembers: not reachable.
    Never,
    /// It is connected, and says whether this node is the primary.
    Says(bool),
    /// It said so, and is not connected any more since then.
    Lost(bool, Mono),
}

/// How evidence is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// For how long the file must have been absent.
    pub(crate) window: Duration,
    /// Between two looks that count as one stretch at most this passes.
    pub(crate) blink: Duration,
    /// For how long the last word of the stream holds while it reconnects.
    pub(crate) grace: Duration,
    /// Whether the file alone is never enough.
    pub(crate) needs_events: bool,
}

/// The judge, with what it remembers of earlier looks.
#[derive(Debug)]
pub(crate) struct Judge {
    rules: Rules,
    /// The stretch of absence: in which mount, since when, and until the last look that saw it.
    absence: Option<(u64, Mono, Mono)>,
    /// Whether the stream was heard in the life of this mount: from then on the file alone is not enough.
    heard: bool,
}

impl Judge {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            absence: None,
            heard: false,
        }
    }

    /// Judges a look that was begun at `asked` and answered at `now`, with the word of the stream then.
    pub(crate) fn judge(&mut self, sight: &Sight, word: Word, asked: Mono, now: Mono) -> Evidence {
        self.heard |= matches!(word, Word::Says(_));
        match sight {
            Sight::Present => {
                self.absence = None;
                Evidence::Replica
            }
            Sight::Absent { mount } => {
                let lasting = self.absent(*mount, asked, now, matches!(word, Word::Says(_)));
                self.weigh(lasting, word, now)
            }
            Sight::NoMount(why) => {
                // A LiteFS that was started again may be one without a stream.
                (self.absence, self.heard) = (None, false);
                Evidence::Uncertain(why.clone())
            }
            Sight::Unclear(why) => {
                self.absence = None;
                Evidence::Uncertain(why.clone())
            }
        }
    }

    /// Counts a look that saw nothing; answers whether that has lasted. The stretch begins when its first look was
    /// answered and lasts until its last was begun, so that slow looks never make it longer than it was.
    fn absent(&mut self, mount: u64, asked: Mono, now: Mono, heard: bool) -> bool {
        let since = match self.absence {
            Some((last, since, seen)) if last == mount && asked.since(seen) <= self.rules.blink => since,
            Some((last, ..)) if last != mount => {
                self.heard = heard;
                now
            }
            _ => now,
        };
        self.absence = Some((mount, since, now));
        asked.since(since) >= self.rules.window
    }

    fn weigh(&self, lasting: bool, word: Word, now: Mono) -> Evidence {
        let unclear = |why: &str| Evidence::Uncertain(why.to_owned());
        let held = match word {
            Word::Says(primary) => Some(primary),
            Word::Lost(primary, at) if now.since(at) <= self.rules.grace => Some(primary),
            Word::Lost(..) | Word::Never => None,
        };
        match (word, held) {
            // LiteFS itself: this node is not the primary.
            (Word::Says(_), Some(false)) => Evidence::Replica,
            (_, Some(false)) => unclear("the event stream of LiteFS said replica, and is away"),
            _ if !lasting => unclear(".primary is absent, but not for long enough"),
            (_, Some(true)) => Evidence::primary(),
            (_, None) if self.heard => unclear("the event stream of LiteFS is away"),
            (_, None) if self.rules.needs_events => unclear("the event stream of LiteFS was not heard yet"),
            (_, None) => Evidence::primary(),
        }
    }
}

#[cfg(test)]
mod tests;
