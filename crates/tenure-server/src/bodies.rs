//! Bodies of requests on their way in. They are read before a request takes a place, so that a slow one takes none.
//!
//! A body has a limit, a time, and its part of a budget of memory, which is shared out like the places. While the budget is
//! used up, slow bodies of the same caller are cut, the oldest first; then the one that needs more is refused.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use tenure::wire::{Code, Problem};
use tenure_core::clock::{Clock, Mono, within};
use tenure_core::error::Outcome;
use tokio_util::sync::CancellationToken;

use crate::reply::Failure;
use crate::room::{Room, Share};

/// How many of the largest bodies one group of one caller may send at once.
const LARGEST: usize = 8;
/// A body that has been arriving for so long is slow. What arrives faster is never cut.
const SLOW: Duration = Duration::from_secs(1);
/// How much of a body is read for nothing, so that its connection can be used again after a refusal.
const SPILL: usize = 64 * 1024;
/// How long that may take.
const SPILL_TIME: Duration = Duration::from_millis(100);

/// What is arriving.
pub(crate) struct Bodies {
    memory: Room,
    timeout: Duration,
    reading: AtomicUsize,
    arriving: Mutex<Arriving>,
}

#[derive(Default)]
struct Arriving {
    last: u64,
    /// Those that came in more than one piece, in the order in which they began.
    pieces: BTreeMap<u64, Arrival>,
}

struct Arrival {
    share: Share,
    bytes: usize,
    began: Mono,
    cut: CancellationToken,
}

/// A body that is there. What it takes of the budget is given back when this is dropped.
pub(crate) struct Whole<'a> {
    pub(crate) bytes: Bytes,
    _held: Option<Held<'a>>,
}

/// Why a body was not read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLarge(usize),
    BrokeOff,
    TooSlow,
    /// It was cut for others, or found no room.
    NoRoom,
}

impl Bodies {
    /// Bodies of at most `largest` bytes.
    pub(crate) fn new(largest: usize, timeout: Duration) -> Self {
        Self {
            memory: Room::new(largest.saturating_mul(LARGEST)),
            timeout,
            reading: AtomicUsize::new(0),
            arriving: Mutex::default(),
        }
    }

    /// How many are arriving.
    pub(crate) fn reading(&self) -> usize {
        self.reading.load(Ordering::Relaxed)
    }

    /// Reads one to its end.
    ///
    /// # Errors
    /// Why it could not be.
    pub(crate) async fn read(
        &self,
        clock: &dyn Clock,
        share: Share,
        body: Body,
        limit: usize,
    ) -> Result<Whole<'_>, Unread> {
        if body.size_hint().lower() > limit as u64 {
            return Err(Unread::TooLarge(limit));
        }
        let _counted = Counted::new(&self.reading);
        let read = within(clock, self.timeout, self.collect(clock, share, body, limit)).await;
        read.unwrap_or(Err(Unread::TooSlow))
    }

    /// The usual body is one piece: it is neither counted nor copied.
    async fn collect(
        &self,
        clock: &dyn Clock,
        share: Share,
        mut body: Body,
        limit: usize,
    ) -> Result<Whole<'_>, Unread> {
        let first = next(&mut body).await?.unwrap_or_default();
        if first.len() > limit {
            return Err(Unread::TooLarge(limit));
        }
        if body.is_end_stream() {
            return Ok(Whole {
                bytes: first,
                _held: None,
            });
        }
        let mut held = self.begin(share, clock.mono());
        held.grow(first.len(), clock.mono())?;
        let mut all = Vec::from(first);
        loop {
            let piece = tokio::select! {
                biased;
                () = held.cut.cancelled() => return Err(Unread::NoRoom),
                piece = next(&mut body) => piece?,
            };
            let Some(piece) = piece else { break };
            if all.len() + piece.len() > limit {
                return Err(Unread::TooLarge(limit));
            }
            held.grow(piece.len(), clock.mono())?;
            all.extend_from_slice(&piece);
        }
        if !held.is_whole() {
            return Err(Unread::NoRoom);
        }
        Ok(Whole {
            bytes: all.into(),
            _held: Some(held),
        })
    }

    fn begin(&self, share: Share, now: Mono) -> Held<'_> {
        let cut = CancellationToken::new();
        let mut arriving = self.arriving();
        arriving.last += 1;
        let id = arriving.last;
        let arrival = Arrival {
            share,
            bytes: 0,
            began: now,
            cut: cut.clone(),
        };
        arriving.pieces.insert(id, arrival);
        Held {
            bodies: self,
            id,
            share,
            cut,
            whole: 0,
        }
    }

    fn arriving(&self) -> MutexGuard<'_, Arriving> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arriving {
    /// Cuts the oldest slow body of a caller, other than this one, and gives its bytes back; whether there was one.
    fn cut_one(&mut self, memory: &Room, not: u64, share: Share, now: Mono) -> bool {
        let mut slow = self.pieces.iter().take_while(|(_, one)| now.since(one.began) >= SLOW);
        let Some((&id, _)) = slow.find(|(id, one)| **id != not && one.share.is_of_caller(share)) else {
            return false;
        };
        if let Some(one) = self.pieces.remove(&id) {
            memory.leave(one.share, one.bytes);
            one.cut.cancel();
        }
        true
    }
}

/// A part of the budget that a body holds.
struct Held<'a> {
    bodies: &'a Bodies,
    id: u64,
    share: Share,
    cut: CancellationToken,
    /// Its bytes, once it is whole: it is cut no more then.
    whole: usize,
}

impl Held<'_> {
    /// Takes room for so many bytes more.
    fn grow(&self, bytes: usize, now: Mono) -> Result<(), Unread> {
        let memory = &self.bodies.memory;
        let mut arriving = self.bodies.arriving();
        while !memory.enter(self.share, bytes) {
            if !arriving.cut_one(memory, self.id, self.share, now) {
                return Err(Unread::NoRoom);
            }
        }
        match arriving.pieces.get_mut(&self.id) {
            Some(one) => one.bytes += bytes,
            None => {
                memory.leave(self.share, bytes);
                return Err(Unread::NoRoom);
            }
        }
        Ok(())
    }

    /// It is there whole, unless it was cut just before.
    fn is_whole(&mut self) -> bool {
        let taken = self.bodies.arriving().pieces.remove(&self.id);
        let Some(one) = taken else { return false };
        self.whole = one.bytes;
        true
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let arriving = self.bodies.arriving().pieces.remove(&self.id).map(|one| one.bytes);
        self.bodies.memory.leave(self.share, arriving.unwrap_or(self.whole));
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge(limit) => Self::new(
                Code::BodyTooLarge,
                format!("the body is longer than {limit} bytes; send less at a time"),
            ),
            Unread::BrokeOff => Self::new(Code::BadRequest, "the connection closed before the body ended"),
            Unread::TooSlow => Self::new(Code::RequestTimeout, "the body took too long to arrive"),
            Unread::NoRoom => {
                let detail = "this caller sends too many large or slow bodies at the same time; nothing was done";
                let problem = Problem::new(Code::Overloaded, detail).with_outcome(Outcome::Unchanged);
                problem.with_retry_after(Duration::from_millis(100)).into()
            }
        }
    }
}

/// Reads the rest of a small body and drops it; whether its connection can be used again.
pub(crate) async fn spill(clock: &dyn Clock, mut body: Body) -> bool {
    let mut rest = SPILL;
    let read = async {
        while rest > 0 {
            match next(&mut body).await {
                Ok(Some(piece)) => rest = rest.saturating_sub(piece.len()),
                ended => return ended.is_ok(),
            }
        }
        false
    };
    within(clock, SPILL_TIME, read).await == Some(true)
}

/// The next piece of data; `None` at the end.
async fn next(body: &mut Body) -> Result<Option<Bytes>, Unread> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(Unread::BrokeOff),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
