//! What the answers of errands mean: they change what is seen, start work, and say when to go again.

use std::time::Duration;

use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::LeaseName;
use tenure_core::lease::ReleaseOutcome;

use super::Running;
use crate::fleet::chore::Chore;
use crate::fleet::errand::{Done, GivenUp, Heard};
use crate::fleet::work::Work;
use crate::lease::Acquire;

/// All leases are listed this many times less often than members, as long as events tell of changes.
const LISTING_EVERY: u32 = 6;

impl Running<'_> {
    /// Takes what an errand came to.
    pub(super) fn done(&mut self, done: Done) {
        let now = self.now();
        match done {
            Done::Nodes(seen) => {
                if let Some(seen) = self.settle(seen, now, |this| &mut this.nodes, "looking at the nodes") {
                    self.sight.saw_nodes(seen, &self.fixed.settings.nodes, now);
                }
            }
            Done::Targets(targets) => {
                if let Some(targets) = self.settle(targets, now, |this| &mut this.targets, "asking for the targets") {
                    self.sight.targets = Some(targets);
                }
            }
            Done::Leases { begun, listed } => {
                if let Some(listed) = self.settle(listed, now, |this| &mut this.leases, "listing the leases") {
                    self.sight.saw_leases(listed, begun, now);
                }
            }
            Done::Events(heard) => self.listened(heard, now),
            Done::Acquired { asked, answers } => self.acquired(&asked, answers, now),
            Done::GivenUp(given_up) => self.given_up(given_up, now),
            Done::Marked { draining, outcome } => {
                if self
                    .settle(outcome, now, |this| &mut this.marking, "telling who drains")
                    .is_some()
                {
                    self.marked = draining;
                }
            }
        }
        self.planning.want(now);
    }

    /// Takes the answer of a chore that repeats.
    fn settle<T>(
        &mut self,
        answer: Result<T>,
        now: Mono,
        chore: impl FnOnce(&mut Self) -> &mut Chore,
        what: &str,
    ) -> Option<T> {
        let discovery = self.fixed.settings.discovery;
        let is_deaf = self.events.is_failing() || self.heard.is_none();
        let shared = &self.fixed.shared;
        let chore = chore(self);
        match answer {
            Ok(answer) => {
                let is_listing = what == "listing the leases";
                let interval = if is_listing && !is_deaf {
                    discovery * LISTING_EVERY
                } else {
                    discovery
                };
                chore.done(now, jitter(&*shared.context.clock, interval, 10));
                Some(answer)
            }
            Err(error) => {
                if chore.failed(now, &*shared.context.clock) {
                    let group = &shared.group;
                    tracing::warn!(%group, error = %error.chain(), "{what} failed; it is tried again");
                }
                self.note_error(&error);
                None
            }
        }
    }

    fn listened(&mut self, heard: Result<Heard>, now: Mono) {
        let Some(heard) = self.settle(heard, now, |this| &mut this.events, "listening to events") else {
            // Looking has to do for now.
            let within = if self.sight.is_complete() {
                self.fixed.settings.discovery
            } else {
                Duration::ZERO
            };
            self.leases.want_at(now + within);
            return;
        };
        for event in &heard.events {
            let hint = self.sight.heard(event, now);
            if hint.nodes_changed {
                self.nodes.want(now);
            }
            if hint.targets_changed {
                self.targets.want(now);
            }
        }
        if heard.missed {
            self.nodes.want(now);
            self.targets.want(now);
            self.leases.want(now);
        }
        self.heard = Some(heard.last);
        self.events.want(now);
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
                    self.sight.ours(lease, guard.token(), guard.tenure().clone(), now);
                    if self.is_wanted(lease) {
                        let work = Work::begin(guard, now, &self.fixed.starter);
                        self.works.insert(lease.clone(), work);
                    } else {
                        self.give_up(guard, None);
                    }
                }
                Acquire::Held { by, free_in } => self.sight.refused(lease, by, free_in, now),
                Acquire::Reserved { to, free_in } => self.sight.reserved(lease, to, free_in, now),
                Acquire::Unsettled { retry_in, cause } => {
                    self.tell_unsettled(&cause.why_no_lease(retry_in));
                    self.sight.free_from(lease, now + retry_in, now);
                }
            }
        }
    }

    fn tell_unsettled(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_unsettled, true) {
            let group = &self.fixed.shared.group;
            tracing::info!(%group, why, "no lease is granted yet");
        }
    }

    /// Whether a lease that was asked for is still of use now that it is here.
    fn is_wanted(&self, lease: &LeaseName) -> bool {
        let targets = self.sight.targets.as_ref();
        let spec = targets.and_then(|targets| targets.get(lease));
        !self.is_draining() && spec.is_some_and(|spec| !spec.paused)
    }

    fn given_up(&mut self, given_up: GivenUp, now: Mono) {
        let GivenUp {
            lease,
            token,
            to,
            outcome,
        } = given_up;
        self.giving.remove(&lease);
        match outcome {
            Ok(ReleaseOutcome::Reserved) => {
                if let (Some(to), false) = (&to, self.is_draining()) {
                    self.sight.handed(&lease, to.clone(), now);
                }
                self.sight.freed(&lease, Some(token), to, now);
            }
            Ok(ReleaseOutcome::Released) => self.sight.freed(&lease, Some(token), None, now),
            Ok(ReleaseOutcome::NotHolder { by }) => self.sight.refused(&lease, by, Duration::ZERO, now),
            Err(error) => {
                // It is being tried again behind our back, or went with the tenure.
                self.sight.free_from(&lease, now, now);
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
