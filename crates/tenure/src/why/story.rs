//! Turning events into sentences.

use std::collections::VecDeque;

use tenure_core::error::Result;
use tenure_core::event::{Event, EventKind};
use tenure_core::id::{Group, TenureId};
use tenure_core::lease::Lease;
use tenure_core::membership::Member;
use tenure_core::registry::Claim;
use tenure_core::session::Session;
use tenure_core::store::Store;
use tenure_core::time::{StoreTime, show_duration};

use super::{Explanation, Line, MAX_LINES, Subject, session};

/// How things are now.
pub(super) enum Present {
    Member(Option<Member>),
    /// A tenure, and the current tenure of its member.
    Tenure(TenureId, Option<Member>),
    Key(Option<Claim>),
    Lease(Option<Lease>),
    Session(Option<Box<Session>>),
}

impl Present {
    pub(super) async fn look(store: &dyn Store, group: &Group, subject: &Subject) -> Result<Self> {
        Ok(match subject {
            Subject::Member(member) => Self::Member(store.member(group, member).await?),
            Subject::Tenure(tenure) => Self::Tenure(tenure.clone(), store.member(group, tenure.member()).await?),
            Subject::Key(registry, key) => Self::Key(store.claim_of(group, registry, key).await?),
            Subject::Lease(lease) => Self::Lease(store.lease_of(group, lease).await?),
            Subject::Session(session) => Self::Session(store.session(group, session).await?.map(Box::new)),
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
            Self::Lease(None) => "held by nobody".to_owned(),
            Self::Lease(Some(lease)) => of_lease(lease),
            Self::Session(found) => session::now(found.as_deref()),
        };
        vec![Line {
            at: None,
            event: None,
            text,
        }]
    }
}

fn of_lease(lease: &Lease) -> String {
    let (tenure, token) = (&lease.tenure, lease.token);
    let left = show_duration(lease.expires_in);
    if lease.alive {
        format!("held by {tenure}, which is alive, with token {token}")
    } else if lease.expires_in.is_zero() {
        format!("still listed for {tenure}, which is dead; whoever asks for it gets it")
    } else {
        format!("kept for {tenure} for another {left}: it was ended by others, and its process may still run")
    }
}

/// A number of things, in words.
pub(super) fn number(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

fn of_member(member: &Member) -> String {
    let held = &member.holdings;
    let others = [(held.leases, "lease"), (held.connections, "connection")];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    let held = others.fold(number(held.claims, "claim"), |held, (count, one)| {
        format!("{held} and {}", number(count, one))
    });
    if member.alive {
        let left = show_duration(member.expires_in);
        format!(
            "alive as {}, for another {left} without a beat (ttl {}), with {held}",
            member.tenure,
            ttl(member)
        )
    } else {
        format!(
            "past its end as {} (last beat {}), with {held}",
            member.tenure, member.last_beat_at
        )
    }
}

fn ttl(member: &Member) -> String {
    show_duration(member.ttl)
}

/// Hears events and keeps what belongs to the subject.
pub(super) struct Story<'a> {
    group: &'a Group,
    subject: &'a Subject,
    /// The tenure whose life explains the state now: the one asked about, the member's current one, a key's owner.
    present: Option<TenureId>,
    lines: VecDeque<Line>,
    events_since: Option<StoreTime>,
    truncated: bool,
}

impl<'a> Story<'a> {
    pub(super) fn new(group: &'a Group, subject: &'a Subject, present: &Present) -> Self {
        let present = match present {
            Present::Key(claim) => claim.as_ref().map(|claim| claim.tenure.clone()),
            Present::Member(member) => member.as_ref().map(|member| member.tenure.clone()),
            Present::Tenure(tenure, _) => Some(tenure.clone()),
            Present::Lease(lease) => lease.as_ref().map(|lease| lease.tenure.clone()),
            // A session may be served by many.
            Present::Session(_) => None,
        };
        Self {
            group,
            subject,
            present,
            lines: VecDeque::new(),
            events_since: None,
            truncated: false,
        }
    }

    pub(super) fn missed(&mut self) {
        self.truncated = true;
    }

    pub(super) fn hear(&mut self, event: &Event) {
        self.events_since.get_or_insert(event.at);
        if !self.concerns(event) {
            return;
        }
        self.note_beginning(event.tenure.as_ref());
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

    /// A term tells when its tenure began: when that is before the oldest event, its beginning is gone.
    fn note_beginning(&mut self, tenure: Option<&TenureId>) {
        let began = tenure.map(|tenure| StoreTime::from_micros(tenure.term().get()));
        self.truncated |= began.zip(self.events_since).is_some_and(|(began, since)| began < since);
    }

    pub(super) fn end(mut self, now: Vec<Line>) -> Explanation {
        let present = self.present.take();
        self.note_beginning(present.as_ref());
        Explanation {
            subject: format!("{} in group {}", self.subject, self.group),
            history: self.lines.into(),
            now,
            events_since: self.events_since,
            truncated: self.truncated,
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        use EventKind as Kind;
        let group_wide = matches!(
            event.kind,
            Kind::GroupUnsettled | Kind::GroupSettled | Kind::SweepBraked | Kind::SweepUnbraked
        );
        // What happened to the whole group explains why nobody lapsed, or nothing was removed, for a while.
        if group_wide {
            return true;
        }
        // A front-end has thousands of sessions; their stories are told with each of them.
        if event.session.is_some() && !matches!(self.subject, Subject::Session(_)) {
            return false;
        }
        let about = |tenure: &Option<TenureId>, asked: &dyn Fn(&TenureId) -> bool| tenure.as_ref().is_some_and(asked);
        match self.subject {
            Subject::Member(member) => {
                about(&event.tenure, &|tenure| tenure.member() == member)
                    || about(&event.from, &|tenure| tenure.member() == member)
                    || event.to.as_ref() == Some(member)
            }
            Subject::Tenure(asked) => {
                about(&event.tenure, &|tenure| tenure == asked) || about(&event.from, &|tenure| tenure == asked)
            }
            Subject::Key(registry, key) => {
                self.is_life_of_present(event)
                    || event.keys.iter().any(|removed| removed == &format!("{registry}/{key}"))
            }
            Subject::Lease(lease) => event.lease.as_ref() == Some(lease) || self.is_life_of_present(event),
            Subject::Session(session) => {
                event.session.as_ref() == Some(session) || event.kind == Kind::SessionsRepaired
            }
        }
    }

    /// Whether it tells how the present owner or holder came and went, and not what else it had.
    fn is_life_of_present(&self, event: &Event) -> bool {
        event.lease.is_none() && event.tenure.is_some() && event.tenure == self.present
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
            EventKind::LeaseGranted | EventKind::LeaseReleased | EventKind::LeaseTakenOver => {
                tell_lease(event, &who, reason)
            }
            EventKind::TargetChanged => {
                let target = event.lease.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("the target {target} was {reason}")
            }
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
            EventKind::ProviderActivated | EventKind::ProviderDeactivated => {
                let provider = event.to.as_ref().map(ToString::to_string).unwrap_or_default();
                let what = event.kind.as_str().trim_start_matches("provider_");
                format!("the provider {provider} was {what}")
            }
            _ if session::is_about(event.kind) => session::tell(event, &who, reason),
            other => format!("{who} {}", other.as_str()),
        }
    }

    fn tell_eviction(&self, event: &Event, who: &str, reason: &str) -> String {
        let pass = event.pass.as_deref().unwrap_or("unknown");
        if let (Subject::Key(..), false) = (self.subject, self.present.as_ref() == event.tenure.as_ref()) {
            return format!("removed from {who}, which had ended ({reason}); pass {pass}");
        }
        let total: u64 = event.counts.values().sum();
        let by: Vec<_> = event
            .counts
            .iter()
            .map(|(registry, count)| format!("{registry} {count}"))
            .collect();
        let entries = format!("{total} entries of {who} were removed ({})", by.join(", "));
        let connections = number(event.connections, "connection");
        let what = match (total, event.connections) {
            (_, 0) => entries,
            (0, _) => format!("{connections} of {who} removed from sessions"),
            _ => format!("{entries} and {connections} removed from sessions"),
        };
        format!("{what} because it had ended ({reason}); pass {pass}")
    }
}

fn tell_lease(event: &Event, who: &str, reason: &str) -> String {
    let lease = event.lease.as_ref().map(ToString::to_string).unwrap_or_default();
    let token = event.token.map(|token| token.to_string()).unwrap_or_default();
    match (event.kind, reason, &event.from, &event.to) {
        (EventKind::LeaseTakenOver, _, Some(from), _) => {
            format!("{who} took the lease {lease} over from {from}, which had ended ({reason}), with token {token}")
        }
        (EventKind::LeaseReleased, "released", ..) => format!("{who} released the lease {lease} (token {token})"),
        (EventKind::LeaseReleased, "handed_off", _, Some(to)) => {
            format!("{who} handed the lease {lease} off to {to} (token {token})")
        }
        (EventKind::LeaseReleased, ..) => {
            let pass = event.pass.as_deref().unwrap_or("unknown");
            format!("the lease {lease} (token {token}) was removed from {who}, which had ended ({reason}); pass {pass}")
        }
        _ => format!("{who} was granted the lease {lease} with token {token}"),
    }
}
