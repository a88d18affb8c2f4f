//! Renews all old keys of a process: one task on the thread of the beats, so that busy user code cannot starve it.
//!
//! One step acquires, renews or releases many keys. A failure only changes the time of the next attempt: the clock
//! alone decides whether a key is certainly ours ([`super::record`]), not this loop.

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
use super::keys::TakeOutcome;
use super::record::{KeyAction, KeyRecord};
use crate::PAGE;

/// The most steps in flight.
const STEPS: usize = 16;
/// The longest sleep, even if nothing is due.
const IDLE: Duration = Duration::from_secs(1);

const SHORT: &str = "the store of the old leases did not return one result per lease";

/// The reply to one step.
struct StepReply {
    action: KeyAction,
    records: Vec<(Arc<KeyRecord>, bool)>,
    sent: Mono,
    answer: StepResult,
}

enum StepResult {
    Taken(Result<Vec<TakeOutcome>>),
    Done(Result<Vec<bool>>),
}

/// Runs until stopped; restarts after a panic.
pub(super) async fn run(inner: Arc<Inner>, stop: CancellationToken) {
    loop {
        let keeping = AssertUnwindSafe(renew_loop(&inner)).catch_unwind();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _panic = keeping => {}
        }
        tracing::error!("the renewer of the old leases panicked; restarting it");
        inner.records().values().for_each(|record| record.clear_in_flight());
        inner.clock.sleep(FIRST_BACKOFF).await;
    }
}

async fn renew_loop(inner: &Inner) {
    let mut steps: FuturesUnordered<BoxFuture<'static, StepReply>> = FuturesUnordered::new();
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

/// Starts the due steps. Returns the time until the next one.
fn begin(inner: &Inner, steps: &mut FuturesUnordered<BoxFuture<'static, StepReply>>, now: Mono) -> Duration {
    let soon = inner.timing.interval / 8;
    let (mut takes, mut renewals, mut releases) = (Vec::new(), Vec::new(), Vec::new());
    let (mut next, mut renews) = (now + IDLE, false);
    for record in inner.records().values() {
        let (action, at) = record.due(now, soon);
        if action.is_none() {
            next = at.map_or(next, |at| next.min(at));
        }
        match action {
            Some(KeyAction::Take) => takes.push(Arc::clone(record)),
            Some(KeyAction::Renew) => {
                renews |= at.is_some_and(|at| at <= now);
                next = at.map_or(next, |at| next.min(at));
                renewals.push(Arc::clone(record));
            }
            Some(KeyAction::Release) => releases.push(Arc::clone(record)),
            _ => {}
        }
    }
    if !renews {
        renewals.clear();
    }
    // Releases first because others wait for them, then renewals.
    for (action, records) in [
        (KeyAction::Release, releases),
        (KeyAction::Renew, renewals),
        (KeyAction::Take, takes),
    ] {
        for some in records.chunks(PAGE) {
            if steps.len() >= STEPS {
                // The next reply leads back here.
                return IDLE;
            }
            steps.push(step(inner, action, some, now));
        }
    }
    next.since(now).clamp(FLOOR / 4, IDLE)
}

fn step(inner: &Inner, action: KeyAction, records: &[Arc<KeyRecord>], sent: Mono) -> BoxFuture<'static, StepReply> {
    let records: Vec<(Arc<KeyRecord>, bool)> = records
        .iter()
        .map(|record| {
            let before = record.may_be_ours();
            record.send(action);
            (Arc::clone(record), before)
        })
        .collect();
    let keys = Arc::clone(&inner.keys);
    async move {
        let named: Vec<(LeaseName, String)> = records
            .iter()
            .map(|(record, _)| (record.target.clone(), record.value.clone()))
            .collect();
        let answer = match action {
            KeyAction::Take => StepResult::Taken(keys.take(&named).await),
            KeyAction::Release => StepResult::Done(keys.release(&named).await),
            _ => StepResult::Done(keys.renew(&named).await),
        };
        StepReply {
            action,
            records,
            sent,
            answer,
        }
    }
    .boxed()
}

fn apply(inner: &Inner, step: StepReply, is_failing: &mut bool) {
    let StepReply {
        action,
        records,
        sent,
        answer,
    } = step;
    let now = inner.clock.mono();
    let failed = match answer {
        StepResult::Taken(Ok(answers)) if answers.len() == records.len() => {
            for ((record, _), taken) in records.iter().zip(answers) {
                let next_look = now + jitter(&*inner.clock, inner.look_every, 25);
                record.taken(taken, sent, next_look, now);
            }
            None
        }
        StepResult::Done(Ok(answers)) if answers.len() == records.len() => {
            for ((record, _), ours) in records.iter().zip(answers) {
                match action {
                    KeyAction::Release => record.released(),
                    _ => record.renewed(ours, sent),
                }
            }
            None
        }
        StepResult::Taken(Err(error)) | StepResult::Done(Err(error)) => Some(error),
        StepResult::Taken(Ok(_)) | StepResult::Done(Ok(_)) => Some(Error::unavailable(SHORT, Outcome::Unknown)),
    };
    if let Some(error) = &failed {
        let rest = (inner.timing.interval / 8).min(inner.look_every);
        for (record, before) in &records {
            let again = now + jitter(&*inner.clock, rest, 25);
            record.failed(action, error, *before, again, now);
        }
    }
    tell(failed.as_ref(), is_failing);
}

/// Logs the start of a failure once.
fn tell(failed: Option<&Error>, is_failing: &mut bool) {
    if let (Some(error), false) = (failed, *is_failing) {
        let error = error.chain();
        tracing::warn!(error, "the store of the old leases does not respond; retrying");
    }
    *is_failing = failed.is_some();
}
