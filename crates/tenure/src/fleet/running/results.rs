//! Handling of call results: they update the view, start work, and schedule the next call.

use std::time::Duration;

use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::LeaseName;
use tenure_core::lease::ReleaseOutcome;

use super::Running;
use crate::fleet::calls::{CallResult, EventBatch, ReleaseResult};
use crate::fleet::schedule::Schedule;
use crate::fleet::work::Work;
use crate::lease::Acquire;

/// Leases are listed this many times less often than members while events are available.
const LISTING_EVERY: u32 = 6;
/// When a lease that is used as a semaphore is tried again.
const RETRY: Duration = Duration::from_secs(10);

impl Running<'_> {
    /// Handles the result of a call.
    pub(super) fn handle_result(&mut self, done: CallResult) {
        let now = self.now();
        match done {
            CallResult::Nodes(seen) => {
                if let Some(seen) = self.settle(seen, now, |this| &mut this.nodes, "listing the nodes") {
                    self.view.set_nodes(seen, &self.fixed.settings.nodes, now);
                }
            }
            CallResult::Targets(targets) => {
                if let Some(targets) = self.settle(targets, now, |this| &mut this.targets, "reading the targets") {
                    self.view.targets = Some(targets);
                }
            }
            CallResult::Leases { begun, listed } => {
                if let Some(listed) = self.settle(listed, now, |this| &mut this.leases, "listing the leases") {
                    self.view.merge_leases(listed, begun, now);
                }
            }
            CallResult::Events(heard) => self.events_read(heard, now),
            CallResult::Acquired { asked, answers } => self.acquired(&asked, answers, now),
            CallResult::Released(given_up) => self.given_up(given_up, now),
            CallResult::Marked { draining, outcome } => {
                if self
                    .settle(outcome, now, |this| &mut this.marking, "marking this node as draining")
                    .is_some()
                {
                    self.marked = draining;
                }
            }
        }
        self.planning.want(now);
    }

    /// Handles the result of a periodic call.
    fn settle<T>(
        &mut self,
        answer: Result<T>,
        now: Mono,
        schedule: impl FnOnce(&mut Self) -> &mut Schedule,
        what: &str,
    ) -> Option<T> {
        let discovery = self.fixed.settings.discovery;
        let is_deaf = self.is_deaf();
        let shared = &self.fixed.shared;
        let schedule = schedule(self);
        match answer {
            Ok(answer) => {
                let is_listing = what == "listing the leases";
                let interval = if is_listing && !is_deaf {
                    discovery * LISTING_EVERY
                } else {
                    discovery
                };
                schedule.done(now, jitter(&*shared.context.clock, interval, 10));
                Some(answer)
            }
            Err(error) => {
                if schedule.failed(now, &*shared.context.clock) {
                    let group = &shared.group;
                    tracing::warn!(%group, error = %error.chain(), "{what} failed; retrying");
                }
                self.note_error(&error);
                None
            }
        }
    }

    fn events_read(&mut self, heard: Result<EventBatch>, now: Mono) {
        let Some(heard) = self.settle(heard, now, |this| &mut this.events, "reading events") else {
            // Fall back to polling.
            let within = if self.view.is_complete() {
                self.fixed.settings.discovery
            } else {
                Duration::ZERO
            };
            self.leases.want_at(now + within);
            // That a grace is over is found by another try as well.
            self.view.all_free_from(now + self.fixed.settings.discovery);
            return;
        };
        for event in &heard.events {
            let hint = self.view.apply_event(event, now);
            if hint.nodes_changed {
                self.nodes.want(now);
            }
            if hint.targets_changed {
                self.targets.want(now);
            }
            if hint.is_settled {
                self.settled(now);
            }
        }
        if heard.missed {
            self.settled(now);
            self.nodes.want(now);
            self.targets.want(now);
            self.leases.want(now);
        }
        self.heard = Some(heard.last);
        self.events.want(now);
    }

    /// The group's grace is over, or may be: refused leases are asked for again.
    fn settled(&mut self, now: Mono) {
        self.settled_at = Some(now);
        self.view.all_free_from(now);
    }

    /// When a lease is asked for again that was refused by a group in its grace. An operator may end the grace, which
    /// only an event tells: it may overtake the refusal, and without events only another try finds out.
    fn asks_again_in(&self, retry_in: Duration) -> Duration {
        if self.settled_at.is_some_and(|settled| settled >= self.asked_at) {
            Duration::ZERO
        } else if self.is_deaf() {
            retry_in.min(self.fixed.settings.discovery)
        } else {
            retry_in
        }
    }

    /// Whether no events arrive.
    fn is_deaf(&self) -> bool {
        self.events.is_failing() || self.heard.is_none()
    }

    fn acquired(&mut self, asked: &[LeaseName], answers: Result<Vec<Acquire>>, now: Mono) {
        for lease in asked {
            self.asking.remove(lease);
        }
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                let clock = &*self.fixed.shared.context.clock;
                self.ask_after = now + jitter(clock, error.retry_after().unwrap_or(Duration::from_millis(250)), 25);
                self.note_error(&error);
                return;
            }
        };
        for (lease, answer) in asked.iter().zip(answers) {
            match answer {
                Acquire::Granted(guard) => {
                    self.is_unsettled = false;
                    self.view.held_here(lease, guard.token(), guard.tenure().clone(), now);
                    if self.is_wanted(lease) {
                        let work = Work::begin(guard, now, &self.fixed.starter);
                        self.works.insert(lease.clone(), work);
                    } else {
                        self.give_up(guard, None);
                    }
                }
                Acquire::Held { by, free_in } => self.view.held_elsewhere(lease, by, free_in, now),
                Acquire::Reserved { to, free_in } => self.view.reserved(lease, to, free_in, now),
                Acquire::Unsettled { retry_in, cause } => {
                    self.log_unsettled(&cause.why_no_lease(retry_in));
                    let again = now + self.asks_again_in(retry_in);
                    self.view.free_from(lease, again, now);
                }
                // Acquired by hand as a semaphore; the fleet asks again when that is over.
                Acquire::HoldersDiffer { .. } | Acquire::QueueFull { .. } => {
                    self.view.free_from(lease, now + RETRY, now);
                }
            }
        }
    }

    fn log_unsettled(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_unsettled, true) {
            let group = &self.fixed.shared.group;
            tracing::info!(%group, why, "the group grants no leases yet");
        }
    }

    /// Whether a granted lease is still needed.
    fn is_wanted(&self, lease: &LeaseName) -> bool {
        let targets = self.view.targets.as_ref();
        let spec = targets.and_then(|targets| targets.get(lease));
        !self.is_draining() && spec.is_some_and(|spec| !spec.paused)
    }

    fn given_up(&mut self, given_up: ReleaseResult, now: Mono) {
        let ReleaseResult {
            lease,
            token,
            to,
            outcome,
        } = given_up;
        self.giving.remove(&lease);
        match outcome {
            Ok(ReleaseOutcome::Reserved) => {
                if let (Some(to), false) = (&to, self.is_draining()) {
                    self.view.handed(&lease, to.clone(), now);
                }
                self.view.freed(&lease, Some(token), to, now);
            }
            Ok(ReleaseOutcome::Released) => self.view.freed(&lease, Some(token), None, now),
            Ok(ReleaseOutcome::NotHolder { by }) => self.view.held_elsewhere(&lease, by, Duration::ZERO, now),
            Err(error) => {
                // The lease layer retries the release in the background, or it ended with the tenure.
                self.view.free_from(&lease, now, now);
                self.note_error(&error);
            }
        }
    }

    fn note_error(&self, error: &Error) {
        if !matches!(error.kind(), ErrorKind::Ended(_)) {
            let error = error.chain();
            self.fixed.status.send_modify(|status| status.last_error = Some(error));
        }
    }
}
