//! Request bodies. A body is read before its request takes a permit, so that a slow client holds none.
//!
//! Each body has a size limit, a time limit and a share of a memory budget that is divided among callers like permits
//! ([`crate::room`]). When the budget is exhausted, slow bodies of the same caller are dropped, oldest first; after that the
//! body that needs more memory is refused.

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

/// The memory budget of one group of one caller, in bodies of the largest size.
const LARGEST: usize = 8;
/// A body that has been arriving this long is slow, and may be dropped.
const SLOW: Duration = Duration::from_secs(1);
/// How much of a refused body is read and discarded, so that its connection stays usable.
const DISCARD_LIMIT: usize = 64 * 1024;
/// The time limit for discarding.
const DISCARD_TIME: Duration = Duration::from_millis(100);

/// The bodies that are arriving, and their memory.
pub(crate) struct Bodies {
    memory: Room,
    timeout: Duration,
    reading: AtomicUsize,
    arriving: Mutex<PendingBodies>,
}

#[derive(Default)]
struct PendingBodies {
    last: u64,
    /// Bodies that arrive in more than one piece, in order of their start.
    pieces: BTreeMap<u64, PendingBody>,
}

struct PendingBody {
    share: Share,
    bytes: usize,
    began: Mono,
    cut: CancellationToken,
}

/// A complete body. Dropping it returns its memory to the budget.
pub(crate) struct ReadBody<'a> {
    pub(crate) bytes: Bytes,
    _held: Option<BodyMemory<'a>>,
}

/// Why a body was not read completely.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    TooLarge(usize),
    BrokeOff,
    TooSlow,
    /// The memory budget was exhausted.
    NoRoom,
}

impl Bodies {
    /// For bodies of at most `largest` bytes.
    pub(crate) fn new(largest: usize, timeout: Duration) -> Self {
        Self {
            memory: Room::new(largest.saturating_mul(LARGEST)),
            timeout,
            reading: AtomicUsize::new(0),
            arriving: Mutex::default(),
        }
    }

    /// The number of bodies that are arriving.
    pub(crate) fn reading(&self) -> usize {
        self.reading.load(Ordering::Relaxed)
    }

    /// Reads a body completely, within its limits.
    pub(crate) async fn read(
        &self,
        clock: &dyn Clock,
        share: Share,
        body: Body,
        limit: usize,
    ) -> Result<ReadBody<'_>, BodyError> {
        if body.size_hint().lower() > limit as u64 {
            return Err(BodyError::TooLarge(limit));
        }
        let _counted = CountGuard::new(&self.reading);
        let read = within(clock, self.timeout, self.collect(clock, share, body, limit)).await;
        read.unwrap_or(Err(BodyError::TooSlow))
    }

    /// Most bodies are one piece: these are neither charged to the budget nor copied.
    async fn collect(
        &self,
        clock: &dyn Clock,
        share: Share,
        mut body: Body,
        limit: usize,
    ) -> Result<ReadBody<'_>, BodyError> {
        let first = next(&mut body).await?.unwrap_or_default();
        if first.len() > limit {
            return Err(BodyError::TooLarge(limit));
        }
        if body.is_end_stream() {
            return Ok(ReadBody {
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
                () = held.cut.cancelled() => return Err(BodyError::NoRoom),
                piece = next(&mut body) => piece?,
            };
            let Some(piece) = piece else { break };
            if all.len() + piece.len() > limit {
                return Err(BodyError::TooLarge(limit));
            }
            held.grow(piece.len(), clock.mono())?;
            all.extend_from_slice(&piece);
        }
        if !held.is_whole() {
            return Err(BodyError::NoRoom);
        }
        Ok(ReadBody {
            bytes: all.into(),
            _held: Some(held),
        })
    }

    fn begin(&self, share: Share, now: Mono) -> BodyMemory<'_> {
        let cut = CancellationToken::new();
        let mut arriving = self.arriving();
        arriving.last += 1;
        let id = arriving.last;
        let arrival = PendingBody {
            share,
            bytes: 0,
            began: now,
            cut: cut.clone(),
        };
        arriving.pieces.insert(id, arrival);
        BodyMemory {
            bodies: self,
            id,
            share,
            cut,
            whole: 0,
        }
    }

    fn arriving(&self) -> MutexGuard<'_, PendingBodies> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingBodies {
    /// Drops the oldest slow body of a caller except `not`, and returns its memory; `false` if there is none.
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

/// The memory that a body holds.
struct BodyMemory<'a> {
    bodies: &'a Bodies,
    id: u64,
    share: Share,
    cut: CancellationToken,
    /// Its size once complete; from then on it is not dropped.
    whole: usize,
}

impl BodyMemory<'_> {
    /// Charges more bytes to the budget.
    fn grow(&self, bytes: usize, now: Mono) -> Result<(), BodyError> {
        let memory = &self.bodies.memory;
        let mut arriving = self.bodies.arriving();
        while !memory.enter(self.share, bytes) {
            if !arriving.cut_one(memory, self.id, self.share, now) {
                return Err(BodyError::NoRoom);
            }
        }
        match arriving.pieces.get_mut(&self.id) {
            Some(one) => one.bytes += bytes,
            None => {
                memory.leave(self.share, bytes);
                return Err(BodyError::NoRoom);
            }
        }
        Ok(())
    }

    /// Marks the body complete; `false` if it was dropped just before.
    fn is_whole(&mut self) -> bool {
        let taken = self.bodies.arriving().pieces.remove(&self.id);
        let Some(one) = taken else { return false };
        self.whole = one.bytes;
        true
    }
}

impl Drop for BodyMemory<'_> {
    fn drop(&mut self) {
        let arriving = self.bodies.arriving().pieces.remove(&self.id).map(|one| one.bytes);
        self.bodies.memory.leave(self.share, arriving.unwrap_or(self.whole));
    }
}

struct CountGuard<'a>(&'a AtomicUsize);

impl<'a> CountGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl From<BodyError> for Failure {
    fn from(unread: BodyError) -> Self {
        match unread {
            BodyError::TooLarge(limit) => Self::new(
                Code::BodyTooLarge,
                format!("the body is larger than {limit} bytes; send smaller batches"),
            ),
            BodyError::BrokeOff => Self::new(Code::BadRequest, "the connection closed before the body ended"),
            BodyError::TooSlow => Self::new(Code::RequestTimeout, "the body took too long to arrive"),
            BodyError::NoRoom => {
                let detail = "this caller sends too many large or slow bodies concurrently; nothing was done";
                let problem = Problem::new(Code::Overloaded, detail).with_outcome(Outcome::Unchanged);
                problem.with_retry_after(Duration::from_millis(100)).into()
            }
        }
    }
}

/// Reads and discards the rest of a small body; `false` when the connection has to close.
pub(crate) async fn discard_rest(clock: &dyn Clock, mut body: Body) -> bool {
    let mut rest = DISCARD_LIMIT;
    let read = async {
        while rest > 0 {
            match next(&mut body).await {
                Ok(Some(piece)) => rest = rest.saturating_sub(piece.len()),
                ended => return ended.is_ok(),
            }
        }
        false
    };
    within(clock, DISCARD_TIME, read).await == Some(true)
}

/// The next piece of data; `None` at the end of the body.
async fn next(body: &mut Body) -> Result<Option<Bytes>, BodyError> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(BodyError::BrokeOff),
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
