//! Combines the state of the mount and of the event stream into evidence. Pure.
//!
//! An absent `.primary` can mean "primary", "a replica that is disconnected right now" or "there is no primary": LiteFS
//! shows the file only while it follows a primary. So absence is necessary but not sufficient. It must last for a
//! window without gaps in the observation, in a mount that exists, and the event stream must agree once it was
//! connected.

use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::supervise::Evidence;

use super::mount::MountState;

/// The last state of the event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// Never connected.
    Never,
    /// Connected; whether this node is the primary.
    Connected(bool),
    /// Disconnected since then, with the last state.
    Disconnected(bool, Mono),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// How long the file must have been absent.
    pub(crate) window: Duration,
    /// The longest pause between two observations of one stretch.
    pub(crate) max_gap: Duration,
    /// How long the last state of the stream counts while it reconnects.
    pub(crate) grace: Duration,
    /// Whether the stream is required: the file alone never suffices.
    pub(crate) needs_events: bool,
}

/// Evaluates observations and remembers the earlier ones it needs.
#[derive(Debug)]
pub(crate) struct Evaluator {
    rules: Rules,
    /// The stretch of absence: its mount, its start, and the last observation.
    absence: Option<(u64, Mono, Mono)>,
    /// Whether the stream was connected during the life of this mount. From then on the file alone does not suffice.
    heard: bool,
}

impl Evaluator {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            absence: None,
            heard: false,
        }
    }

    /// Evaluates an observation that started at `asked` and ended at `now`, with the state of the stream.
    pub(crate) fn evaluate(&mut self, state: &MountState, stream: StreamState, asked: Mono, now: Mono) -> Evidence {
        self.heard |= matches!(stream, StreamState::Connected(_));
        match state {
            MountState::Present => {
                self.absence = None;
                Evidence::Replica
            }
            MountState::Absent { mount } => {
                let lasting = self.absent(*mount, asked, now, matches!(stream, StreamState::Connected(_)));
                self.decide(lasting, stream, now)
            }
            MountState::NoMount(why) => {
                // A restarted LiteFS may run without a stream.
                (self.absence, self.heard) = (None, false);
                Evidence::Uncertain(why.clone())
            }
            MountState::Unclear(why) => {
                self.absence = None;
                Evidence::Uncertain(why.clone())
            }
        }
    }

    /// Records an observation of absence and returns whether it lasted for the window. The stretch starts when its
    /// first observation ended and ends when its last one started, so slow observations never lengthen it.
    fn absent(&mut self, mount: u64, asked: Mono, now: Mono, heard: bool) -> bool {
        let since = match self.absence {
            Some((last, since, seen)) if last == mount && asked.since(seen) <= self.rules.max_gap => since,
            Some((last, ..)) if last != mount => {
                self.heard = heard;
                now
            }
            _ => now,
        };
        self.absence = Some((mount, since, now));
        asked.since(since) >= self.rules.window
    }

    fn decide(&self, lasting: bool, stream: StreamState, now: Mono) -> Evidence {
        let unclear = |why: &str| Evidence::Uncertain(why.to_owned());
        let held = match stream {
            StreamState::Connected(primary) => Some(primary),
            StreamState::Disconnected(primary, at) if now.since(at) <= self.rules.grace => Some(primary),
            StreamState::Disconnected(..) | StreamState::Never => None,
        };
        match (stream, held) {
            // LiteFS itself reports that this node is not the primary.
            (StreamState::Connected(_), Some(false)) => Evidence::Replica,
            (_, Some(false)) => unclear("the event stream of LiteFS last said replica and is disconnected"),
            _ if !lasting => unclear(".primary is absent, but not for long enough"),
            (_, Some(true)) => Evidence::primary(),
            (_, None) if self.heard => unclear("the event stream of LiteFS is disconnected"),
            (_, None) if self.rules.needs_events => unclear("the event stream of LiteFS has not connected yet"),
            (_, None) => Evidence::primary(),
        }
    }
}

#[cfg(test)]
mod tests;
