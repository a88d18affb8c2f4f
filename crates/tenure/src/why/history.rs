//! Describes events and the current state in sentences.

use std::collections::VecDeque;

use tenure_core::error::Result;
use tenure_core::event::{Event, EventKind};
use tenure_core::id::{Group, TenureId};
use tenure_core::lease::{Lease, LeaseHolder};
use tenure_core::membership::Member;
use tenure_core::registry::Claim;
use tenure_core::session::Session;
use tenure_core::settling::GapCause;
use tenure_core::store::Store;
use tenure_core::time::{StoreTime, show_duration};

use super::{Explanation, ExplanationLine, MAX_LINES, Subject, session};

/// The current state of a subject.
pub(super) enum CurrentState {
    Member(Option<Member>),
    /// A tenure, and the current tenure of its member.
    Tenure(TenureId, Option<Member>),
    Key(Option<Claim>),
    Lease(Option<Lease>),
    Session(Option<Box<Session>>),
}

impl CurrentState {
    pub(super) async fn read(store: &dyn Store, group: &Group, subject: &Subject) -> Result<Self> {
        Ok(match subject {
            Subject::Member(member) => Self::Member(store.member(group, member).await?),
            Subject::Tenure(tenure) => Self::Tenure(tenure.clone(), store.member(group, tenure.member()).await?),
            Subject::Key(registry, key) => Self::Key(store.claim_of(group, registry, key).await?),
            Subject::Lease(lease) => Self::Lease(store.lease_of(group, lease).await?),
            Subject::Session(session) => Self::Session(store.session(group, session).await?.map(Box::new)),
        })
    }

    pub(super) fn lines(&self) -> Vec<ExplanationLine> {
        let text = match self {
            Self::Member(None) => "not a member".to_owned(),
            Self::Member(Some(member)) => describe_current_member(member),
            Self::Tenure(tenure, Some(member)) if member.tenure == *tenure => describe_current_member(member),
            Self::Tenure(_, Some(member)) => {
                format!(
                    "ended; the member has a later tenure: {}",
                    describe_current_member(member)
                )
            }
            Self::Tenure(_, None) => "ended; the member has no current tenure".to_owned(),
            Self::Key(None) => "not owned".to_owned(),
            Self::Key(Some(claim)) if claim.alive => format!("owned by {}, which is alive", claim.tenure),
            Self::Key(Some(claim)) => {
                format!(
                    "still listed for {}, which is dead; the janitor will remove it",
                    claim.tenure
                )
            }
            Self::Lease(None) => "not held".to_owned(),
            Self::Lease(Some(lease)) => describe_current_lease(lease),
            Self::Session(found) => session::now(found.as_deref()),
        };
        vec![ExplanationLine {
            at: None,
            event: None,
            text,
        }]
    }
}

fn describe_current_lease(lease: &Lease) -> String {
    let shared = !lease.places.is_one();
    let holders = lease.holders.iter().map(|one| {
        let place = if shared {
            format!("place {} ", one.place)
        } else {
            String::new()
        };
        format!("{place}{}", describe_holder(one))
    });
    let mut text = holders.collect::<Vec<_>>().join("; ");
    if shared {
        text = format!("{text} ({} of {} places free)", lease.free, lease.places);
    }
    match lease.waiting {
        0 => text,
        1 => format!("{text}; 1 request waits, and is served when a place is free"),
        waiting => format!("{text}; {waiting} requests wait, and are served in the order in which they came"),
    }
}

fn describe_holder(holder: &LeaseHolder) -> String {
    let (tenure, token) = (&holder.tenure, holder.token);
    let left = show_duration(holder.expires_in);
    if holder.revoked && holder.alive {
        format!(
            "taken by {tenure} (token {token}), which is alive: an operator released it, and it is free when its holder has \
             noticed, or its tenure has ended"
        )
    } else if holder.alive {
        format!("held by {tenure}, which is alive, with token {token}")
    } else if holder.expires_in.is_zero() {
        format!("still listed for {tenure}, which is dead; the next acquire takes it over")
    } else {
        format!(
            "blocked for another {left}: {tenure} was superseded, expelled or without progress, and its process may still run"
        )
    }
}

/// A count with its noun.
pub(super) fn number(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

fn describe_current_member(member: &Member) -> String {
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

/// Collects the events that concern the subject.
pub(super) struct HistoryBuilder<'a> {
    group: &'a Group,
    subject: &'a Subject,
    /// The tenure that explains the current state: the one asked about, the member's current one, or the owner's or
    /// holder's.
    current_tenure: Option<TenureId>,
    lines: VecDeque<ExplanationLine>,
    events_since: Option<StoreTime>,
    truncated: bool,
}

impl<'a> HistoryBuilder<'a> {
    pub(super) fn new(group: &'a Group, subject: &'a Subject, current: &CurrentState) -> Self {
        let current_tenure = match current {
            CurrentState::Key(claim) => claim.as_ref().map(|claim| claim.tenure.clone()),
            CurrentState::Member(member) => member.as_ref().map(|member| member.tenure.clone()),
            CurrentState::Tenure(tenure, _) => Some(tenure.clone()),
            CurrentState::Lease(lease) => lease.as_ref().map(|lease| lease.tenure.clone()),
            // A session may be served by many members.
            CurrentState::Session(_) => None,
        };
        Self {
            group,
            subject,
            current_tenure,
            lines: VecDeque::new(),
            events_since: None,
            truncated: false,
        }
    }

    pub(super) fn missed(&mut self) {
        self.truncated = true;
    }

    pub(super) fn add(&mut self, event: &Event) {
        self.events_since.get_or_insert(event.at);
        if !self.concerns(event) {
            return;
        }
        self.check_beginning(event.tenure.as_ref());
        if self.lines.len() >= MAX_LINES {
            self.lines.pop_front();
            self.truncated = true;
        }
        self.lines.push_back(ExplanationLine {
            at: Some(event.at),
            event: Some(event.id),
            text: self.describe(event),
        });
    }

    /// A term contains the time of its join. A tenure that began before the oldest kept event has an incomplete
    /// history.
    fn check_beginning(&mut self, tenure: Option<&TenureId>) {
        let began = tenure.map(|tenure| StoreTime::from_micros(tenure.term().get()));
        self.truncated |= began.zip(self.events_since).is_some_and(|(began, since)| began < since);
    }

    pub(super) fn finish(mut self, now: Vec<ExplanationLine>) -> Explanation {
        let current_tenure = self.current_tenure.take();
        self.check_beginning(current_tenure.as_ref());
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
        // A gap or a brake explains why no member lapsed, or nothing was removed, for a while.
        if group_wide {
            return true;
        }
        // A front-end has thousands of sessions; each session's own history has these events.
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
                self.is_about_current_tenure(event)
                    || event.keys.iter().any(|removed| removed == &format!("{registry}/{key}"))
            }
            Subject::Lease(lease) => event.lease.as_ref() == Some(lease) || self.is_about_current_tenure(event),
            Subject::Session(session) => {
                event.session.as_ref() == Some(session) || event.kind == Kind::SessionsRepaired
            }
        }
    }

    /// Whether the event belongs to the life of the current owner or holder, and not to its other leases.
    fn is_about_current_tenure(&self, event: &Event) -> bool {
        event.lease.is_none() && event.tenure.is_some() && event.tenure == self.current_tenure
    }

    fn describe(&self, event: &Event) -> String {
        let who = event.tenure.as_ref().map(TenureId::to_string).unwrap_or_default();
        let reason = event.reason.as_deref().unwrap_or("unknown");
        let count = |name: &str| event.counts.get(name).copied().unwrap_or(0);
        match event.kind {
            EventKind::Joined => format!("{who} joined"),
            EventKind::Left => match &event.reason {
                Some(text) => format!("{who} left ({text:?})"),
                None => format!("{who} left"),
            },
            EventKind::Lapsed => format!("{who} lapsed: its end time passed without a beat"),
            EventKind::Superseded => format!("{who} was superseded: the same member joined again"),
            EventKind::Expelled => format!("{who} was expelled by an operator"),
            EventKind::NoProgress => format!("{who} was ended by its own process: it made no progress (no_progress)"),
            EventKind::LabelsChanged => format!("the labels of {who} were changed"),
            EventKind::Evicted => self.describe_eviction(event, &who, reason),
            EventKind::LeaseGranted
            | EventKind::LeaseReleased
            | EventKind::LeaseTakenOver
            | EventKind::LeaseRevoked => describe_lease(event, &who, reason),
            EventKind::TargetChanged => {
                let target = event.lease.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("the target {target} was {reason}")
            }
            EventKind::SweepBraked => format!(
                "removal was paused: {} lapsed at once, {} were present",
                count("lapsed"),
                count("present")
            ),
            EventKind::SweepUnbraked => format!("removal resumed ({reason})"),
            EventKind::GroupUnsettled if reason == GapCause::New.as_str() => {
                "the group began in a new or emptied store: no lease was granted for one max ttl".to_owned()
            }
            EventKind::GroupUnsettled => {
                let silent = event.counts.get("silent_ms").filter(|ms| **ms > 0);
                let silent = silent.map(|ms| format!(", {ms} ms")).unwrap_or_default();
                format!("the store did not serve ({reason}{silent}): every ttl restarted")
            }
            EventKind::GroupSettled => "the grace after the gap ended".to_owned(),
            EventKind::ProviderActivated | EventKind::ProviderDeactivated => {
                let provider = event.to.as_ref().map(ToString::to_string).unwrap_or_default();
                let what = event.kind.as_str().trim_start_matches("provider_");
                format!("the provider {provider} was {what}")
            }
            _ if session::is_about(event.kind) => session::describe(event, &who, reason),
            other => format!("{who} {}", other.as_str()),
        }
    }

    fn describe_eviction(&self, event: &Event, who: &str, reason: &str) -> String {
        let pass = event.pass.as_deref().unwrap_or("unknown");
        if let (Subject::Key(..), false) = (self.subject, self.current_tenure.as_ref() == event.tenure.as_ref()) {
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

fn describe_lease(event: &Event, who: &str, reason: &str) -> String {
    let lease = event.lease.as_ref().map(ToString::to_string).unwrap_or_default();
    let token = event.token.map(|token| token.to_string()).unwrap_or_default();
    let lease = match event.place {
        Some(place) => format!("{lease} in place {place}"),
        None => lease,
    };
    let waited = if event.request.is_some() { " after a wait" } else { "" };
    match (event.kind, reason, &event.from, &event.to) {
        (EventKind::LeaseTakenOver, _, Some(from), _) => {
            format!(
                "{who} took the lease {lease} over from {from}{waited}, which had ended ({reason}), with token {token}"
            )
        }
        (EventKind::LeaseRevoked, ..) => {
            format!(
                "an operator released the lease {lease} of {who} (token {token}); it is free when its holder has noticed"
            )
        }
        (EventKind::LeaseReleased, "revoked", ..) => {
            format!("the lease {lease} (token {token}) of {who} is free: an operator had released it")
        }
        (EventKind::LeaseReleased, "released", ..) => format!("{who} released the lease {lease} (token {token})"),
        (EventKind::LeaseReleased, "handed_off", _, Some(to)) => {
            format!("{who} handed the lease {lease} off to {to} (token {token})")
        }
        (EventKind::LeaseReleased, ..) => {
            let pass = event.pass.as_deref().unwrap_or("unknown");
            format!("the lease {lease} (token {token}) was removed from {who}, which had ended ({reason}); pass {pass}")
        }
        _ => format!("{who} was granted the lease {lease}{waited} with token {token}"),
    }
}
