//! The beat loop: renews the tenure, notices its end, and joins again.
//!
//! It is a state machine with at most one call in flight. It never waits for that call alone: the local deadline passes
//! whether or not the store answers. Errors change its pace and never end it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::membership::{Beat, EndBy, EndReason, Joined, Member, Revision};
use tenure_core::timeout::Timeout;
use tenure_core::verdict::Verdict;

use super::Phase;
use super::shared::Shared;
use crate::batch::BeatOutcome;
use crate::lease::{BeatSnapshot, RevisionCheck};
use crate::loops::FLOOR;
use crate::meters;

/// The next or current call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Renew the tenure.
    Beat,
    /// The work makes no progress: end the tenure.
    Stall,
    /// The tenure ended: check whether another process of the same name has taken over. An inherited one: whether its
    /// wrapper has joined again.
    Look(EndReason),
    /// No process has taken over: start a new tenure.
    Join(EndReason),
}

enum CallReply {
    /// With the revision known when it was sent.
    Beat(BeatSnapshot, Result<BeatOutcome>),
    Stall(Result<EndReason>),
    Look(Result<Option<Member>>),
    Join(Result<Joined>),
}

struct InFlightCall {
    sent_at: Mono,
    answer: BoxFuture<'static, CallReply>,
}

pub(super) struct Beating {
    shared: Arc<Shared>,
    step: Step,
    in_flight: Option<InFlightCall>,
    next_at: Mono,
    sent_at: Mono,
    failed: u32,
    failing_since: Option<Mono>,
    doubted_at: Option<Mono>,
    paused: bool,
    /// A join with an unknown outcome may have created the tenure that the check finds.
    may_have_joined: bool,
}

impl Beating {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let now = shared.now();
        // Spreads the beats of processes that started at the same time.
        let first = jitter(&*shared.context.clock, shared.timing.interval * 3 / 4, 33);
        Self {
            shared,
            step: Step::Beat,
            in_flight: None,
            next_at: now + first,
            sent_at: now,
            failed: 0,
            failing_since: None,
            doubted_at: None,
            paused: false,
            may_have_joined: false,
        }
    }

    /// Beats until the membership should leave (`None`) or must stop (`Some` reason).
    pub(super) async fn run(&mut self) -> Option<EndReason> {
        loop {
            let now = self.shared.now();
            if self.in_flight.is_none() && now >= self.next_at {
                self.depart(now);
            }
            self.publish();
            let wait = self.wait(now);
            let shared = Arc::clone(&self.shared);
            let sleep = shared.context.clock.sleep(wait);
            let answer = tokio::select! {
                biased;
                () = shared.stop.cancelled() => break,
                answer = arrival(&mut self.in_flight) => Some(answer),
                () = shared.poke.notified() => {
                    self.next_at = self.next_at.min(self.sent_at + FLOOR);
                    None
                }
                () = sleep => None,
            };
            self.note_pause(now + wait);
            if let Some((sent_at, answer)) = answer
                && let Some(over) = self.arrived(sent_at, answer)
            {
                return Some(over);
            }
        }
        self.finish_join().await;
        None
    }

    /// After a panic: drops the call in flight. All other state stays valid.
    pub(super) fn recover(&mut self) {
        self.in_flight = None;
        self.next_at = self.shared.now() + self.pause();
    }

    /// Waits for a join in flight before leaving: if it succeeds, its tenure is the one to end.
    async fn finish_join(&mut self) {
        if !matches!(self.step, Step::Join(_)) || self.in_flight.is_none() {
            return;
        }
        if let (sent_at, CallReply::Join(Ok(joined))) = arrival(&mut self.in_flight).await {
            self.shared.begin(&joined, sent_at);
        }
    }

    fn wait(&self, now: Mono) -> Duration {
        let interval = self.shared.timing.interval;
        let next = if self.in_flight.is_some() {
            interval
        } else {
            self.next_at.since(now).min(interval)
        };
        let change = self.shared.changes_in(now);
        if change.is_zero() { next } else { next.min(change) }
    }

    fn depart(&mut self, now: Mono) {
        if self.shared.makes_no_progress(now) {
            if !self.paused {
                let (group, tenure) = (&self.shared.group, self.shared.tenure());
                tracing::warn!(%group, %tenure, within = ?self.shared.progress_within, "paused: no progress, no beats");
            }
            self.paused = true;
            match self.step {
                Step::Beat => self.call(now, Step::Stall),
                _ => self.next_at = now + self.shared.timing.interval,
            }
            return;
        }
        if std::mem::take(&mut self.paused) {
            tracing::warn!(group = %self.shared.group, tenure = %self.shared.tenure(), "resumed after progress");
        }
        self.call(now, self.step);
    }

    fn call(&mut self, now: Mono, step: Step) {
        self.sent_at = now;
        self.in_flight = Some(InFlightCall {
            sent_at: now,
            answer: send(Arc::clone(&self.shared), step),
        });
    }

    /// Handles an answer. Returns a reason when the membership must stop.
    fn arrived(&mut self, sent_at: Mono, answer: CallReply) -> Option<EndReason> {
        match answer {
            CallReply::Beat(sent, Ok(BeatOutcome { reply, as_of, .. })) => {
                self.shared.learn_store_time(as_of, sent_at);
                match reply.renewed(&self.shared.tenure()) {
                    Ok((_, revision)) => {
                        self.recovered();
                        // Compare before confirming, so that a mismatch is a doubt from this answer on.
                        self.compare(sent, revision);
                        self.renewed(sent_at);
                    }
                    Err(error) => match error.kind() {
                        ErrorKind::Ended(reason) => {
                            self.recovered();
                            return self.ended(reason);
                        }
                        _ => self.failed(&error),
                    },
                }
            }
            CallReply::Stall(Ok(reason)) => {
                self.recovered();
                if reason == EndReason::NoProgress {
                    meters::ended(&self.shared.group, reason, 1);
                }
                return self.ended(reason);
            }
            CallReply::Look(Ok(found)) => {
                let ours = self.shared.tenure();
                if found.is_some_and(|member| member.alive && member.tenure.term() > ours.term()) {
                    return self.ended(EndReason::Superseded);
                }
                if let Step::Look(reason) = self.step {
                    self.step = Step::Join(reason);
                }
                self.next_at = self.shared.now();
            }
            CallReply::Join(Ok(joined)) => self.joined(sent_at, &joined),
            CallReply::Join(Err(error)) => {
                self.may_have_joined |= error.outcome() == Outcome::Unknown;
                if let (Step::Join(reason), false) = (self.step, self.may_have_joined) {
                    // Another process may take over before the next attempt.
                    self.step = Step::Look(reason);
                }
                if error.kind() == ErrorKind::TooLate {
                    self.shared.store_clock.forget();
                }
                self.failed(&error);
            }
            CallReply::Stall(Err(error)) => {
                if error.kind() == ErrorKind::TooLate {
                    self.shared.store_clock.forget();
                }
                self.failed(&error);
            }
            CallReply::Beat(_, Err(error)) | CallReply::Look(Err(error)) => self.failed(&error),
        }
        None
    }

    /// Compares the store's revision of our holdings with ours.
    fn compare(&self, sent: BeatSnapshot, seen: Revision) {
        let shared = &self.shared;
        let (group, tenure, known) = (&shared.group, shared.tenure(), sent.known);
        match shared.leases.compare(sent, seen, shared.valid_until()) {
            RevisionCheck::Same => {}
            RevisionCheck::TailLost => shared.heed_lost_tail(),
            // The revision may stem from a claim whose reply was lost, after a loss that will not show. Repeating a
            // claim that exists changes nothing.
            RevisionCheck::Unheard => shared.doubt_claims(),
            RevisionCheck::ReplyLost => {
                shared.doubt_claims();
                let (known, seen) = (known.0, seen.0);
                tracing::warn!(%group, %tenure, known, seen, "the store's revision is newer than any reply; re-reading leases");
            }
        }
    }

    fn renewed(&mut self, sent_at: Mono) {
        self.shared.confirm(sent_at, self.doubted_at);
        if self.doubted_at.is_some_and(|at| sent_at < at) {
            // The pause was noticed after this beat was sent; only the next beat confirms.
            self.next_at = self.shared.now();
        } else {
            self.doubted_at = None;
            // Never later than the interval: the check for two missed beats relies on it.
            let interval = self.shared.timing.interval.mul_f64(0.95);
            self.next_at = sent_at + jitter(&*self.shared.context.clock, interval, 5);
        }
    }

    fn ended(&mut self, reason: EndReason) -> Option<EndReason> {
        let (group, tenure) = (&self.shared.group, self.shared.tenure());
        self.shared.end(reason);
        if reason.may_rejoin() && self.shared.rejoin {
            tracing::warn!(%group, %tenure, reason = reason.as_str(), "the tenure has ended; rejoining");
            self.step = Step::Look(reason);
            self.next_at = self.shared.now();
            return None;
        }
        tracing::warn!(%group, %tenure, reason = reason.as_str(), "the tenure has ended; not rejoining");
        Some(reason)
    }

    fn joined(&mut self, sent_at: Mono, joined: &Joined) {
        let shared = Arc::clone(&self.shared);
        shared.learn_store_time(joined.as_of, sent_at);
        shared.begin(joined, sent_at);
        self.recovered();
        self.step = Step::Beat;
        self.may_have_joined = false;
        self.doubted_at = None;
        self.next_at = sent_at + jitter(&*shared.context.clock, shared.timing.interval.mul_f64(0.95), 5);
        tracing::info!(group = %shared.group, tenure = %joined.tenure, "joined again");
        shared.publish(|status| status.rejoins += 1);
        shared.reassert();
        shared.connections.doubt();
    }

    fn failed(&mut self, error: &Error) {
        let now = self.shared.now();
        self.failed = self.failed.saturating_add(1);
        self.failing_since.get_or_insert(now);
        let (group, tenure, chain) = (&self.shared.group, self.shared.tenure(), error.chain());
        // Log the first failure. The rest of an outage is counted and logged at its end.
        if self.failed == 1 {
            tracing::warn!(%group, %tenure, error = %chain, "a beat failed; retrying");
        } else {
            tracing::debug!(%group, %tenure, error = %chain, failed = self.failed, "a beat failed again");
        }
        let asked = error.retry_after().unwrap_or_default().min(self.shared.timing.interval);
        self.next_at = now + self.pause().max(asked);
        self.shared.publish(|status| status.last_error = Some(chain));
    }

    fn recovered(&mut self) {
        if let Some(since) = self.failing_since.take() {
            let out_for = self.shared.now().since(since);
            tracing::warn!(group = %self.shared.group, failed = self.failed, ?out_for, "the store answers again");
        }
        self.failed = 0;
    }

    /// The pause after a failed call: a few quick retries within the ttl, then half the beat rate.
    fn pause(&self) -> Duration {
        let interval = self.shared.timing.interval;
        let base = if self.failed <= 4 { interval / 4 } else { interval / 2 };
        jitter(&*self.shared.context.clock, base, 25).max(FLOOR)
    }

    /// A wake-up much later than scheduled means that the process or the machine was paused. Earlier confirmations are
    /// then in doubt until the store confirms again.
    fn note_pause(&mut self, wanted: Mono) {
        let now = self.shared.now();
        let late = now.since(wanted);
        if late <= self.shared.timing.margin {
            return;
        }
        let (group, tenure) = (&self.shared.group, self.shared.tenure());
        tracing::warn!(%group, %tenure, ?late, "the process was paused; uncertain until confirmed");
        self.doubted_at = Some(now);
        self.shared.doubt();
        // The work was paused, too.
        self.shared.note_progress();
        self.next_at = now;
        self.shared.publish(|status| status.pauses += 1);
    }

    fn publish(&self) {
        let phase = match self.step {
            _ if self.paused => Phase::Paused,
            Step::Beat | Step::Stall => Phase::Beating,
            Step::Look(after) | Step::Join(after) => Phase::Rejoining { after },
        };
        self.shared.publish(|status| {
            status.phase = phase;
            status.failed_in_a_row = self.failed;
            if status.verdict == Verdict::Held && self.failed == 0 {
                status.last_error = None;
            }
        });
    }
}

/// The answer to the call in flight; pending forever if there is none.
async fn arrival(in_flight: &mut Option<InFlightCall>) -> (Mono, CallReply) {
    let Some(InFlightCall { sent_at, answer }) = in_flight else {
        return std::future::pending().await;
    };
    let (sent_at, answer) = (*sent_at, answer.await);
    *in_flight = None;
    (sent_at, answer)
}

fn send(shared: Arc<Shared>, step: Step) -> BoxFuture<'static, CallReply> {
    let sent = shared.leases.sent();
    Box::pin(async move {
        let patience = shared.timing.request_timeout;
        let bound = Timeout::change(patience);
        let (clock, store, group) = (&*shared.context.clock, &shared.context.store, &shared.group);
        match step {
            Step::Beat => {
                let beat = Beat {
                    tenure: shared.tenure(),
                    ttl: None,
                    revision: sent.named,
                    seen: sent.known,
                };
                let beated = shared.context.batcher.beat(group, beat);
                CallReply::Beat(sent, bound.step(clock, &**store, beated).await)
            }
            Step::Stall => {
                let by = EndBy::NoProgress { stopped: false };
                let tenure = shared.tenure();
                let end = store.end(group, &tenure, by, shared.call(patience));
                CallReply::Stall(bound.step(clock, &**store, end).await)
            }
            Step::Look(_) if shared.wrapper.is_some() => CallReply::Join(shared.inherit_again().await),
            Step::Look(_) => {
                let look = store.member(group, shared.member());
                CallReply::Look(Timeout::read(patience).step(clock, &**store, look).await)
            }
            Step::Join(_) => {
                let join = shared.next_join();
                let join = store.join(group, &join, shared.call(patience));
                CallReply::Join(bound.call(clock, "the store", join).await)
            }
        }
    })
}
