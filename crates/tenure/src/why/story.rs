//! Turning events into sentences.

use std::collections::VecDeque;

use tenure_core::error::Result;
use tenure_core::event::{Event, EventKind};
use tenure_core::id::{Group, TenureId};
use tenure_core::membership::Member;
use tenure_core::registry::Claim;
use tenure_core::store::Store;
use tenure_core::time::show_duration;

use super::{Line, MAX_LINES, Subject};

/// How things are now.
pub(super) enum Present {
    Member(Option<Member>),
    /// A tenure, and the current tenure of its member.
    Tenure(TenureId, Option<Member>),
    Key(Option<Claim>),
}

impl Present {
    pub(super) async fn look(store: &dyn Store, group: &Group, subject: &Subject) -> Result<Self> {
        Ok(match subject {
            Subject::Member(member) => Self::Member(store.member(group, member).await?),
            Subject::Tenure(tenure) => Self::Tenure(tenure.clone(), store.member(group, tenure.member()).await?),
            Subject::Key(registry, key) => Self::Key(store.claim_of(group, registry, key).await?),
        })
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        let text = match self {
            Self::Member(None) => "not a member".to_owned(),
            Self::Member(Some(member)) => of_member(member),
            Self::Tenure(tenure, Some(member)) if member.tenure == *tenure => of_member(member),
            Self::Tenure(_, Some(member)) => {
                format!("over; the member is here under a later tenure: {}", of_member(member))
            }
            Self::Tenure(_, None) => "over; the member has no current tenure".to_owned(),
            Self::Key(None) => "owned by nobody".to_owned(),
            Self::Key(Some(claim)) if claim.alive => format!("owned by {}, which is alive", claim.tenure),
            Self::Key(Some(claim)) => {
                format!(
                    "still listed for {}, which is dead; the janitor will remove it",
                    claim.tenure
                )
            }
        };
        vec![Line {
            at: None,
            event: None,
            text,
        }]
    }
}

fn of_member(member: &Member) -> String {
    let claims = member.holdings.claims;
    let claims = if claims == 1 {
        "1 claim".to_owned()
    } else {
        format!("{claims} claims")
    };
    if member.alive {
        let left = show_duration(member.expires_in);
        format!(
            "alive as {}, for another {left} without a beat (ttl {}), with {claims}",
            member.tenure,
            ttl(member)
        )
    } else {
        format!(
            "past its end as {} (last beat {}), with {claims}",
            member.tenure, member.last_beat_at
        )
    }
}

fn ttl(member: &Member) -> String {
    show_duration(member.ttl)
}

/// Hears events and keeps what belongs to the subject.
pub(super) struct Story<'a> {
    subject: &'a Subject,
    /// For a key: its owner now, whose life explains the state.
    owner: Option<TenureId>,
    lines: VecDeque<Line>,
    truncated: bool,
}

impl<'a> Story<'a> {
    pub(super) fn new(subject: &'a Subject, present: &Present) -> Self {
        let owner = match present {
            Present::Key(Some(claim)) => Some(claim.tenure.clone()),
            _ => None,
        };
        Self {
            subject,
            owner,
            lines: VecDeque::new(),
            truncated: false,
        }
    }

    pub(super) fn missed(&mut self) {
        self.truncated = true;
    }

    pub(super) fn hear(&mut self, event: &Event) {
        if !self.concerns(event) {
            return;
        }
        if self.lines.len() >= MAX_LINES {
            self.lines.pop_front();
            self.truncated = true;
        }
        self.lines.push_back(Line {
            at: Some(event.at),
            event: Some(event.id),
            text: self.tell(event),
        });
    }

    pub(super) fn end(self) -> (Vec<Line>, bool) {
        (self.lines.into(), self.truncated)
    }

    fn concerns(&self, event: &Event) -> bool {
        match (self.subject, &event.tenure) {
            // What happened to the whole group explains why nobody lapsed, or nothing was removed, for a while.
            (_, None) => {
                matches!(
                    event.kind,
                    EventKind::GroupUnsettled
                        | EventKind::GroupSettled
                        | EventKind::SweepBraked
                        | EventKind::SweepUnbraked
                )
            }
            (Subject::Member(member), Some(tenure)) => tenure.member() == member,
            (Subject::Tenure(asked), Some(tenure)) => tenure == asked,
            (Subject::Key(registry, key), Some(tenure)) => {
                self.owner.as_ref() == Some(tenure)
                    || event.keys.iter().any(|removed| removed == &format!("{registry}/{key}"))
            }
        }
    }

    fn tell(&self, event: &Event) -> String {
        let who = event.tenure.as_ref().map(TenureId::to_string).unwrap_or_default();
        let reason = event.reason.as_deref().unwrap_or("unknown");
        let count = |name: &str| event.counts.get(name).copied().unwrap_or(0);
        match event.kind {
            EventKind::Joined => format!("{who} joined"),
            EventKind::Left => format!("{who} left"),
            EventKind::Lapsed => format!("{who} lapsed: its end time passed without a beat"),
            EventKind::Superseded => format!("{who} was superseded: the same member joined again"),
            EventKind::Expelled => format!("{who} was expelled by an operator"),
            EventKind::Evicted => self.tell_eviction(event, &who, reason),
            EventKind::SweepBraked => format!(
                "removal was paused: {} lapsed at once, {} were present",
                count("lapsed"),
                count("present")
            ),
            EventKind::SweepUnbraked => format!("removal went on ({reason})"),
            EventKind::GroupUnsettled => {
                let silent = event.counts.get("silent_ms").filter(|ms| **ms > 0);
                let silent = silent.map(|ms| format!(", {ms} ms")).unwrap_or_default();
                format!("the store did not serve ({reason}{silent}): everyone got one full ttl")
            }
            EventKind::GroupSettled => "the grace after that was over".to_owned(),
            other => format!("{who} {}", other.as_str()),
        }
    }

    fn tell_eviction(&self, event: &Event, who: &str, reason: &str) -> String {
        let pass = event.pass.as_deref().unwrap_or("unknown");
        if let (Subject::Key(..), false) = (self.subject, self.owner.as_ref() == event.tenure.as_ref()) {
            return format!("removed from {who}, which had ended ({reason}); pass {pass}");
        }
        let total: u64 = event.counts.values().sum();
        let by: Vec<_> = event
            .counts
            .iter()
            .map(|(registry, count)| format!("{registry} {count}"))
            .collect();
        format!(
            "{total} entries of {who} were removed ({}) because it had ended ({reason}); pass {pass}",
            by.join(", ")
        )
    }
}
