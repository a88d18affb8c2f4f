//! The loop that keeps a tenure alive: beat, notice its end, join again.
//!
//! It is one state machine with at most one call under way, and it never waits for that call alone: the local deadline
//! passes whether or not the store answers. Errors change its pace, never its existence.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::membership::{Beat, BeatReply, EndReason, Joined, Member, Revision};
use tenure_core::timeout::Timeout;
use tenure_core::verdict::Verdict;

use super::Phase;
use super::shared::Shared;
use crate::batch::Beated;
use crate::lease::{Compared, Sent};
use crate::loops::FLOOR;

/// What the loop is about to do, or is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Extend the tenure.
    Beat,
    /// The tenure ended: see whether another process of the same name has taken over.
    Look(EndReason),
    /// It has not: begin a new tenure.
    Join(EndReason),
}

enum Answer {
    /// With what was known of our holdings when it was sent.
    Beat(Sent, Result<Beated>),
    Look(Result<Option<Member>>),
    Join(Result<Joined>),
}

struct Flight {
    sent_at: Mono,
    answer: BoxFuture<'static, Answer>,
}

pub(super) struct Beating {
    shared: Arc<Shared>,
    step: Step,
    flight: Option<Flight>,
    next_at: Mono,
    sent_at: Mono,
    failed: u32,
    failing_since: Option<Mono>,
    doubted_at: Option<Mono>,
    paused: bool,
    /// A join whose outcome is unknown may have made the tenure that a look would find.
    may_have_joined: bool,
}

impl Beating {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let now = shared.now();
        // Processes that were started together must not beat together for ever.
        let first = jitter(&*shared.context.clock, shared.timing.interval * 3 / 4, 33);
        Self {
            shared,
            step: Step::Beat,
            flight: None,
            next_at: now + first,
            sent_at: now,
            failed: 0,
            failing_since: None,
            doubted_at: None,
            paused: false,
            may_have_joined: false,
        }
    }

    /// Beats until the membership is to leave (`None`) or must not go on (`Some` reason).
    pub(super) async fn run(&mut self) -> Option<EndReason> {
        loop {
            let now = self.shared.now();
            if self.flight.is_none() && now >= self.next_at {
                self.depart(now);
            }
            self.publish();
            let wait = self.wait(now);
            let shared = Arc::clone(&self.shared);
            let sleep = shared.context.clock.sleep(wait);
            let answer = tokio::select! {
                biased;
                () = shared.stop.cancelled() => break,
                answer = arrival(&mut self.flight) => Some(answer),
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

    /// After a panic: what was under way is gone, everything else is still true.
    pub(super) fn recover(&mut self) {
        self.flight = None;
        self.next_at = self.shared.now() + self.pause();
    }

    /// A join that is under way when we are to leave may succeed: then its tenure is the one to end.
    async fn finish_join(&mut self) {
        if !matches!(self.step, Step::Join(_)) || self.flight.is_none() {
            return;
        }
        if let (sent_at, Answer::Join(Ok(joined))) = arrival(&mut self.flight).await {
            self.shared.begin(&joined, sent_at);
        }
    }

    fn wait(&self, now: Mono) -> Duration {
        let interval = self.shared.timing.interval;
        let next = if self.flight.is_some() {
            interval
        } else {
            self.next_at.since(now).min(interval)
        };
        let change = self.shared.changes_in(now);
        if change.is_zero() { next } else { next.min(change) }
    }

    fn depart(&mut self, now: Mono) {
        if self.shared.stands_still(now) {
            if !self.paused {
                let (group, tenure) = (&self.shared.group, self.shared.tenure());
                tracing::warn!(%group, %tenure, within = ?self.shared.progress_within, "paused: no progress, no beats");
            }
            self.paused = true;
            self.next_at = now + self.shared.timing.interval;
            return;
        }
        if std::mem::take(&mut self.paused) {
            tracing::warn!(group = %self.shared.group, tenure = %self.shared.tenure(), "resumed: progress was made");
        }
        self.sent_at = now;
        self.flight = Some(Flight {
            sent_at: now,
            answer: send(Arc::clone(&self.shared), self.step),
        });
    }

    /// Takes an answer. `Some` reason when the membership must not go on.
    fn arrived(&mut self, sent_at: Mono, answer: Answer) -> Option<EndReason> {
        match answer {
            Answer::Beat(sent, Ok(Beated { reply, as_of, .. })) => {
                self.shared.learn_store_time(as_of, sent_at);
                self.well_again();
                match reply {
                    BeatReply::Renewed { revision, .. } => {
                        // Before it confirms anything: what does not fit is in doubt from this answer on.
                        self.compare(sent, revision);
                        self.renewed(sent_at);
                    }
                    BeatReply::Ended(reason) => return self.ended(reason),
                    BeatReply::Unknown => return self.ended(EndReason::Unknown),
                }
            }
            Answer::Look(Ok(found)) => {
                let ours = self.shared.tenure();
                if found.is_some_and(|member| member.alive && member.tenure.term() > ours.term()) {
                    return self.ended(EndReason::Superseded);
                }
                if let Step::Look(reason) = self.step {
                    self.step = Step::Join(reason);
                }
                self.next_at = self.shared.now();
            }
            Answer::Join(Ok(joined)) => self.joined(sent_at, &joined),
            Answer::Join(Err(error)) => {
                self.may_have_joined |= error.outcome() == Outcome::Unknown;
                if let (Step::Join(reason), false) = (self.step, self.may_have_joined) {
                    // Somebody may take over before the next try.
                    self.step = Step::Look(reason);
                }
                if error.kind() == ErrorKind::TooLate {
                    self.shared.store_clock.forget();
                }
                self.failed(&error);
            }
            Answer::Beat(_, Err(error)) | Answer::Look(Err(error)) => self.failed(&error),
        }
        None
    }

    /// Compares what the store says that we hold with what we know.
    fn compare(&self, sent: Sent, seen: Revision) {
        let shared = &self.shared;
        let (group, tenure, told) = (&shared.group, shared.tenure(), sent.told);
        match shared.leases.compare(sent, seen) {
            Compared::Same => {}
            Compared::TailLost => shared.heed_lost_tail(),
            // What is behind that number may be a claim that nobody heard of, after a loss that nobody will hear of.
            // Claiming again what is owned changes nothing.
            Compared::Unheard => shared.doubt_claims(),
            Compared::ReplyLost => {
                shared.doubt_claims();
                let (told, seen) = (told.0, seen.0);
                tracing::warn!(%group, %tenure, told, seen, "the store knows more of our holdings than we were told; reading leases back");
            }
        }
    }

    fn renewed(&mut self, sent_at: Mono) {
        self.shared.confirm(sent_at, self.doubted_at);
        if self.doubted_at.is_some_and(|at| sent_at < at) {
            // The pause was noticed after this beat was sent: the next one is what counts.
            self.next_at = self.shared.now();
        } else {
            self.doubted_at = None;
            // Never later than the interval: the check that two beats may be missed counts on it.
            let interval = self.shared.timing.interval.mul_f64(0.95);
            self.next_at = sent_at + jitter(&*self.shared.context.clock, interval, 5);
        }
    }

    fn ended(&mut self, reason: EndReason) -> Option<EndReason> {
        let (group, tenure) = (&self.shared.group, self.shared.tenure());
        self.shared.end(reason);
        if reason.may_rejoin() {
            tracing::warn!(%group, %tenure, reason = reason.as_str(), "the tenure has ended; joining again");
            self.step = Step::Look(reason);
            self.next_at = self.shared.now();
            return None;
        }
        tracing::warn!(%group, %tenure, reason = reason.as_str(), "the tenure has ended; not joining again");
        Some(reason)
    }

    fn joined(&mut self, sent_at: Mono, joined: &Joined) {
        let shared = Arc::clone(&self.shared);
        shared.learn_store_time(joined.as_of, sent_at);
        shared.begin(joined, sent_at);
        self.well_again();
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
        // One line when it starts; the rest of an outage is counted, and told when it is over.
        if self.failed == 1 {
            tracing::warn!(%group, %tenure, error = %chain, "a beat failed; trying again");
        } else {
            tracing::debug!(%group, %tenure, error = %chain, failed = self.failed, "a beat failed again");
        }
        let asked = error.retry_after().unwrap_or_default().min(self.shared.timing.interval);
        self.next_at = now + self.pause().max(asked);
        self.shared.publish(|status| status.last_error = Some(chain));
    }

    fn well_again(&mut self) {
        if let Some(since) = self.failing_since.take() {
            let out_for = self.shared.now().since(since);
            tracing::warn!(group = %self.shared.group, failed = self.failed, ?out_for, "the store answers again");
        }
        self.failed = 0;
    }

    /// How long to wait after a failed call: a few quick tries within the ttl, then half the pace of beats.
    fn pause(&self) -> Duration {
        let interval = self.shared.timing.interval;
        let base = if self.failed <= 4 { interval / 4 } else { interval / 2 };
        jitter(&*self.shared.context.clock, base, 25).max(FLOOR)
    }

    /// Waking much later than wanted means that the process or the machine was paused, and that nothing that was true
    /// before can be relied on before the store has confirmed it.
    fn note_pause(&mut self, wanted: Mono) {
        let now = self.shared.now();
        let late = now.since(wanted);
        if late <= self.shared.timing.margin {
            return;
        }
        let (group, tenure) = (&self.shared.group, self.shared.tenure());
        tracing::warn!(%group, %tenure, ?late, "paused: woke late; doubting until confirmed");
        self.doubted_at = Some(now);
        self.shared.doubt();
        self.next_at = now;
        self.shared.publish(|status| status.pauses += 1);
    }

    fn publish(&self) {
        let phase = match self.step {
            Step::Beat if self.paused => Phase::Paused,
            Step::Beat => Phase::Beating,
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

/// The answer of the call under way; never, when there is none.
async fn arrival(flight: &mut Option<Flight>) -> (Mono, Answer) {
    let Some(Flight { sent_at, answer }) = flight else {
        return std::future::pending().await;
    };
    let (sent_at, answer) = (*sent_at, answer.await);
    *flight = None;
    (sent_at, answer)
}

fn send(shared: Arc<Shared>, step: Step) -> BoxFuture<'static, Answer> {
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
                    revision: sent.told,
                };
                let beated = shared.context.batcher.beat(group, beat);
                Answer::Beat(sent, bound.step(clock, &**store, beated).await)
            }
            Step::Look(_) => {
                let look = store.member(group, shared.member());
                Answer::Look(Timeout::read(patience).step(clock, &**store, look).await)
            }
            Step::Join(_) => {
                let join = store.join(group, &shared.join, shared.call(patience));
                Answer::Join(bound.call(clock, "the store", join).await)
            }
        }
    })
}
