//! Members: terms rise, an ended tenure stays ended, no member lapses too early or lives too long.

use tenure::{EndReason, Event, EventKind, Member};
use tenure_core::call::{Op, Reply};
use tenure_core::lease::{Acquire, ReleaseLeases};
use tenure_core::membership::{BeatReply, Beats, End, EndBy, SetLabels};
use tenure_core::registry::{ClaimKeys, ReleaseClaim};
use tenure_core::session::{Attaches, Detaches};

use super::{Checked, Checker, Current, Ended, Lapse, Shadow, Violation, must};
use crate::step::Step;

impl Checker {
    pub(super) fn joined(&mut self, step: &Step, event: &Event) -> Checked {
        let Some(tenure) = event.tenure.clone() else {
            return unnamed(event);
        };
        let term = tenure.term().get();
        // Two faults, which is more than is promised: all data lost, and a clock behind the lost numbers.
        let behind = self.wiped && step.now.micros() <= self.highest_term;
        must(
            term > self.highest_term || (behind && !self.begun.contains(&tenure)),
            "terms rise for ever",
            || format!("{tenure} after {}", self.highest_term),
        )?;
        self.highest_term = self.highest_term.max(term);
        let Some(ttl) = self.ttl_of_new(step, &tenure) else {
            return must(false, "a tenure begins by a call that names its member", || {
                format!("{tenure}: {:?}", step.op)
            });
        };
        self.begun.insert(tenure.clone());
        let current = Current {
            tenure: tenure.clone(),
            ttl,
            renewed_at: step.now,
            renewed_in_world: step.at,
            jumped: step.jumped,
        };
        let before = self.shadow.current.insert(tenure.member().clone(), current);
        must(before.is_none(), "a member has one current tenure", || {
            format!("{before:?}, {tenure}")
        })
    }

    pub(super) fn lapsed(&mut self, step: &Step, event: &Event) -> Result<Lapse, Violation> {
        let current = self.take_current(event)?;
        let now = step.now;
        let end = Shadow::end_of(&current, self.shadow.resumed_at, now);
        must(now >= end, "no member lapses before its end time", || {
            format!("{} lapsed at {now}, its end is {end}", current.tenure)
        })?;
        self.outages.check(&current, now)?;
        self.note_end(&current, EndReason::Lapsed, step);
        let excused = self.excuse(&current.tenure, step);
        Ok(Lapse { excused, now, current })
    }

    /// Left, superseded or expelled, as the call requests.
    pub(super) fn ended(&mut self, step: &Step, event: &Event) -> Checked {
        let current = self.take_current(event)?;
        let tenure = &current.tenure;
        let (reason, asked) = match (event.kind, &step.op) {
            (EventKind::Left, Op::End(End { tenure: named, by, .. })) => {
                (EndReason::Left, named == tenure && *by == EndBy::Leave)
            }
            (EventKind::Expelled | EventKind::NoProgress, Op::End(End { tenure: named, by, .. })) => (
                by.reason(),
                named == tenure && by.reason().as_str() == event.kind.as_str(),
            ),
            (EventKind::Superseded, Op::Join(join)) => (EndReason::Superseded, join.member == *tenure.member()),
            (EventKind::Left, _) => (EndReason::Left, self.unasked_ends),
            _ => (EndReason::Unknown, false),
        };
        must(asked, "a tenure ends only by a call that names it", || {
            format!("{tenure}: {:?}", step.op)
        })?;
        let alive = self.unasked_ends || step.now < Shadow::end_of(&current, self.shadow.resumed_at, step.now);
        must(alive, "a tenure past its end lapses and ends in no other way", || {
            format!("{tenure} {}", event.kind.as_str())
        })?;
        self.note_end(&current, reason, step);
        Ok(())
    }

    fn take_current(&mut self, event: &Event) -> Result<Current, Violation> {
        let tenure = event
            .tenure
            .as_ref()
            .filter(|tenure| self.shadow.current(tenure).is_some());
        let current = tenure.and_then(|tenure| self.shadow.current.remove(tenure.member()));
        current.ok_or_else(|| Violation {
            rule: "a tenure ends once",
            seen: format!("{} of {:?}, which is not current", event.kind.as_str(), event.tenure),
        })
    }

    fn note_end(&mut self, current: &Current, reason: EndReason, step: &Step) {
        let end = Shadow::end_of(current, self.shadow.resumed_at, step.now);
        let ended = Ended {
            current: current.clone(),
            reason,
            end,
            at: step.now,
        };
        self.shadow.ended.insert(current.tenure.clone(), ended);
    }

    pub(super) fn member_replies(&mut self, step: &Step) -> Checked {
        match (&step.op, &step.reply) {
            (Op::Beat(Beats { beats }), Ok(Reply::Beat(beaten))) => {
                must(beats.len() == beaten.replies.len(), "each beat has a reply", || {
                    format!("{} for {}", beaten.replies.len(), beats.len())
                })?;
                let pairs = beats.iter().zip(&beaten.replies);
                pairs
                    .into_iter()
                    .try_for_each(|(beat, reply)| self.beaten(step, &beat.tenure, *reply))
            }
            (Op::Join(_), Ok(Reply::Join(joined))) => must(
                self.shadow.current(&joined.tenure).is_some(),
                "a join begins a tenure",
                || joined.tenure.to_string(),
            ),
            (Op::End(End { tenure, .. }), Ok(Reply::End(reason))) => {
                let alive = self.shadow.current(tenure).is_some();
                must(
                    !alive && *reason == self.reason_of(tenure, step),
                    "an ended tenure stays ended",
                    || format!("{tenure}: {reason:?}"),
                )
            }
            (_, Err(error)) => {
                let tenure = acting(&step.op);
                let (tenure::ErrorKind::Ended(reason), Some(tenure)) = (error.kind(), tenure) else {
                    return Ok(());
                };
                let alive = self.shadow.current(tenure).is_some();
                must(
                    !alive && reason == self.reason_of(tenure, step),
                    "only ended tenures are refused",
                    || format!("{tenure}: {reason:?}"),
                )
            }
            _ => self.acted(step),
        }
    }

    fn beaten(&mut self, step: &Step, tenure: &tenure::TenureId, reply: BeatReply) -> Checked {
        match reply {
            BeatReply::Renewed { expires_in, .. } => {
                let alive = self.shadow.is_alive(tenure, step.resumed_at, step.now);
                must(alive, "an ended tenure never comes back", || {
                    format!("{tenure} was renewed")
                })?;
                self.renewed(step, tenure);
                let ttl = self.shadow.current(tenure).map(|current| current.ttl);
                must(Some(expires_in) == ttl, "a beat gives one full ttl", || {
                    format!("{expires_in:?}, {ttl:?}")
                })
            }
            BeatReply::Ended(reason) => {
                let alive = self.shadow.current(tenure).is_some();
                must(
                    !alive && reason == self.reason_of(tenure, step),
                    "an end has one reason",
                    || format!("{tenure}: {reason:?}, {:?}", self.shadow.ended.get(tenure)),
                )
            }
            BeatReply::Unknown => {
                let known = self.shadow.current(tenure).is_some();
                must(
                    !known && self.reason_of(tenure, step) == EndReason::Unknown,
                    "only an unknown tenure is reported as unknown",
                    || format!("{tenure} is unknown"),
                )
            }
            BeatReply::Refused => Ok(()),
        }
    }

    /// A beat or heartbeat has extended a current tenure.
    pub(super) fn renewed(&mut self, step: &Step, tenure: &tenure::TenureId) {
        if let Some(current) = self.shadow.current.get_mut(tenure.member()) {
            current.renewed_at = step.now;
            current.renewed_in_world = step.at;
            current.jumped = step.jumped;
            self.lost_beats.remove(tenure);
        }
    }

    /// The act was accepted, so its tenure is alive now.
    fn acted(&self, step: &Step) -> Checked {
        let Some(tenure) = acting(&step.op) else {
            return Ok(());
        };
        let alive = self.shadow.is_alive(tenure, step.resumed_at, step.now);
        must(alive, "an ended tenure never acts", || {
            format!("{:?} at {}; {:?}", step.op, step.now, self.shadow.ended.get(tenure))
        })
    }

    /// The reason that must be recorded. Reasons are forgotten after 2 × max ttl if the tenure holds nothing.
    fn reason_of(&self, tenure: &tenure::TenureId, step: &Step) -> EndReason {
        let Some(ended) = self.shadow.ended.get(tenure) else {
            return EndReason::Unknown;
        };
        // The clock may have been further ahead and fallen back.
        if self.shadow.latest.max(step.now).since(ended.at) < self.max_ttl * 2 {
            return ended.reason;
        }
        // Whether the reason is forgotten by now depends on the time of the last sweep, so both replies are correct.
        match &step.reply {
            Ok(Reply::End(reason)) => *reason,
            Ok(Reply::Beat(beaten)) => {
                let unknown = beaten.replies.contains(&BeatReply::Unknown);
                if unknown { EndReason::Unknown } else { ended.reason }
            }
            Err(error) => match error.kind() {
                tenure::ErrorKind::Ended(reason) => reason,
                _ => ended.reason,
            },
            Ok(_) => ended.reason,
        }
    }

    pub(super) fn member_reads(&self, step: &Step) -> Checked {
        match &step.reply {
            Ok(Reply::Member(Some(member))) => self.seen(step, member),
            Ok(Reply::Members(page)) => page.items.iter().try_for_each(|member| self.seen(step, member)),
            Ok(Reply::Status(status)) => {
                let members = self.shadow.current.len() as u64;
                must(status.members == members, "every current member is counted", || {
                    format!("{}, not {members}", status.members)
                })
            }
            _ => Ok(()),
        }
    }

    fn seen(&self, step: &Step, member: &Member) -> Checked {
        let resumed_at = self.shadow.resumed(step.now, step.gap);
        let alive = self.shadow.is_alive(&member.tenure, resumed_at, step.now);
        must(member.alive == alive, "reads never show a ghost", || {
            format!("{} reads alive: {}", member.tenure, member.alive)
        })
    }
}

/// The tenure that the call requires to be alive, if it requires one.
fn acting(op: &Op) -> Option<&tenure::TenureId> {
    match op {
        Op::Claim(ClaimKeys { tenure, .. })
        | Op::ReleaseClaim(ReleaseClaim { tenure, .. })
        | Op::Acquire(Acquire { tenure, .. })
        | Op::SetLabels(SetLabels { tenure, .. })
        | Op::Attach(Attaches { tenure, .. })
        | Op::Detach(Detaches { tenure, .. })
        | Op::ReleaseLeases(ReleaseLeases { tenure, .. }) => Some(tenure),
        _ => None,
    }
}

fn unnamed(event: &Event) -> Checked {
    must(false, "an event names its tenure", || event.kind.as_str().to_owned())
}
