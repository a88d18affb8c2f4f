//! The keeper of all old keys of a process: one task beside the beats, so that busy user code cannot starve it.
//!
//! It takes, renews and gives back many keys in one step. What fails changes only when it is tried again: whether a key
//! is certainly ours is decided by the clock alone ([`super::record`]), not by this loop.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure::loops::{FIRST_BACKOFF, FLOOR};
use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::LeaseName;
use tokio_util::sync::CancellationToken;

use super::Inner;
use super::keys::Taken;
use super::record::{Record, Wish};
use crate::PAGE;

/// The most steps under way at once.
const STEPS: usize = 16;
/// It looks around this often, even if nothing is due.
const IDLE: Duration = Duration::from_secs(1);

const SHORT: &str = "the store of the old leases did not answer for each of them";

/// One step that came back.
struct Step {
    wish: Wish,
    records: Vec<(Arc<Record>, bool)>,
    sent: Mono,
    answer: Answer,
}

enum Answer {
    Taken(Result<Vec<Taken>>),
    Done(Result<Vec<bool>>),
}

/// Keeps old keys until told to stop, whatever goes wrong.
pub(super) async fn keep(inner: Arc<Inner>, stop: CancellationToken) {
    loop {
        let keeping = AssertUnwindSafe(run(&inner)).catch_unwind();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _panic = keeping => {}
        }
        tracing::error!("the keeper of the old leases panicked; it is started afresh");
        inner.book().values().for_each(|record| record.land());
        inner.clock.sleep(FIRST_BACKOFF).await;
    }
}

async fn run(inner: &Inner) {
    let mut steps: FuturesUnordered<BoxFuture<'static, Step>> = FuturesUnordered::new();
    let mut is_failing = false;
    loop {
        let now = inner.clock.mono();
        let wait = begin(inner, &mut steps, now);
        let sleep = inner.clock.sleep(wait);
        tokio::select! {
            biased;
            Some(step) = steps.next() => apply(inner, step, &mut is_failing),
            () = inner.wake.notified() => {}
            () = sleep => {}
        }
    }
}

/// Begins what is due, and answers how long there is nothing more to do.
fn begin(inner: &Inner, steps: &mut FuturesUnordered<BoxFuture<'static, Step>>, now: Mono) -> Duration {
    let soon = inner.timing.interval / 8;
    let (mut takes, mut renewals, mut releases) = (Vec::new(), Vec::new(), Vec::new());
    let (mut next, mut renews) = (now + IDLE, false);
    for record in inner.book().values() {
        let (wish, at) = record.due(now, soon);
        if wish.is_none() {
            next = at.map_or(next, |at| next.min(at));
        }
        match wish {
            Some(Wish::Take) => takes.push(Arc::clone(record)),
            Some(Wish::Keep) => {
                renews |= at.is_some_and(|at| at <= now);
                next = at.map_or(next, |at| next.min(at));
                renewals.push(Arc::clone(record));
            }
            Some(Wish::Release) => releases.push(Arc::clone(record)),
            _ => {}
        }
    }
    if !renews {
        renewals.clear();
    }
    // What others wait for comes first, then what must not be lost.
    for (wish, records) in [(Wish::Release, releases), (Wish::Keep, renewals), (Wish::Take, takes)] {
        for some in records.chunks(PAGE) {
            if steps.len() >= STEPS {
                // The next one to come back brings us here again.
                return IDLE;
            }
            steps.push(step(inner, wish, some, now));
        }
    }
    next.since(now).clamp(FLOOR / 4, IDLE)
}

fn step(inner: &Inner, wish: Wish, records: &[Arc<Record>], sent: Mono) -> BoxFuture<'static, Step> {
    let records: Vec<(Arc<Record>, bool)> = records
        .iter()
        .map(|record| {
            let before = record.may_be_ours();
            record.send(wish);
            (Arc::clone(record), before)
        })
        .collect();
    let keys = Arc::clone(&inner.keys);
    async move {
        let named: Vec<(LeaseName, String)> = records
            .iter()
            .map(|(record, _)| (record.target.clone(), record.value.clone()))
            .collect();
        let answer = match wish {
            Wish::Take => Answer::Taken(keys.take(&named).await),
            Wish::Release => Answer::Done(keys.release(&named).await),
            _ => Answer::Done(keys.renew(&named).await),
        };
        Step {
            wish,
            records,
            sent,
            answer,
        }
    }
    .boxed()
}

fn apply(inner: &Inner, step: Step, is_failing: &mut bool) {
    let Step {
        wish,
        records,
        sent,
        answer,
    } = step;
    let now = inner.clock.mono();
    let failed = match answer {
        Answer::Taken(Ok(answers)) if answers.len() == records.len() => {
            for ((record, _), taken) in records.iter().zip(answers) {
                let next_look = now + jitter(&*inner.clock, inner.look_every, 25);
                record.taken(taken, sent, next_look, now);
            }
            None
        }
        Answer::Done(Ok(answers)) if answers.len() == records.len() => {
            for ((record, _), ours) in records.iter().zip(answers) {
                match wish {
                    Wish::Release => record.released(),
                    _ => record.renewed(ours, sent),
                }
            }
            None
        }
        Answer::Taken(Err(error)) | Answer::Done(Err(error)) => Some(error),
        Answer::Taken(Ok(_)) | Answer::Done(Ok(_)) => Some(Error::unavailable(SHORT, Outcome::Unknown)),
    };
    if let Some(error) = &failed {
        let rest = (inner.timing.interval / 8).min(inner.look_every);
        for (record, before) in &records {
            let again = now + jitter(&*inner.clock, rest, 25);
            record.failed(wish, error, *before, again, now);
        }
    }
    tell(failed.as_ref(), is_failing);
}

/// Tells once that something begins to fail.
fn tell(failed: Option<&Error>, is_failing: &mut bool) {
    if let (Some(error), false) = (failed, *is_failing) {
        let error = error.chain();
        tracing::warn!(error, "the store of the old leases does not answer; it is tried again");
    }
    *is_failing = failed.is_some();
}
