//! Normalizes replies for comparison: sorts pages by name and rounds durations to the resolution of the store under
//! test.

use std::cmp::Ordering;
use std::time::Duration;

use crate::call::Reply;
use crate::lease::{AcquireOutcome, HeldLeases, Lease};
use crate::membership::BeatReply;
use crate::session::{AttachOutcome, DetachOutcome, PatchOutcome};
use crate::store::Page;
use crate::time::micros;

/// A reply in comparable form.
pub(super) fn comparable(mut reply: Reply, resolution: Duration) -> Reply {
    sort(&mut reply);
    // Replies in milliseconds are those of a daemon, which do not carry it.
    if resolution > Duration::from_micros(1) {
        match &mut reply {
            Reply::Acquire(acquired) => acquired.ttl = None,
            Reply::Status(status) => status.has_pulse = false,
            _ => {}
        }
    }
    for left in spans(&mut reply) {
        *left = down(*left, resolution);
    }
    for wait in waits(&mut reply) {
        *wait = up(*wait, resolution);
    }
    reply
}

fn down(span: Duration, resolution: Duration) -> Duration {
    let (span, step) = (micros(span), micros(resolution));
    Duration::from_micros(span - span % step)
}

fn up(span: Duration, resolution: Duration) -> Duration {
    let step = micros(resolution);
    Duration::from_micros(micros(span).next_multiple_of(step))
}

fn sort(reply: &mut Reply) {
    match reply {
        Reply::Members(page) => in_order(page, |a, b| a.member.cmp(&b.member)),
        Reply::Claims(page) => in_order(page, |a, b| (&a.key, &a.tenure).cmp(&(&b.key, &b.tenure))),
        Reply::Leases(page) | Reply::HeldLeases(HeldLeases { page, .. }) => {
            in_order(page, |a, b| (&a.lease, &a.tenure).cmp(&(&b.lease, &b.tenure)));
        }
        Reply::Sessions(page) => in_order(page, |a, b| a.session.cmp(&b.session)),
        Reply::Rows(rows) => rows.rows.sort_by(|a, b| a.row.provider.cmp(&b.row.provider)),
        _ => {}
    }
}

fn in_order<T>(page: &mut Page<T>, order: impl FnMut(&T, &T) -> Ordering) {
    page.items.sort_by(order);
    page.next = None;
}

/// Durations that say how long something lasts. They are rounded down: a client may stop too early, never too late.
fn spans(reply: &mut Reply) -> Vec<&mut Duration> {
    match reply {
        Reply::Join(joined) => vec![&mut joined.expires_in],
        Reply::Beat(beaten) => beaten.replies.iter_mut().filter_map(renewed_for).collect(),
        Reply::Member(found) => found.iter_mut().map(|member| &mut member.expires_in).collect(),
        Reply::Members(page) => page.items.iter_mut().map(|member| &mut member.expires_in).collect(),
        Reply::Acquire(acquired) => vec![&mut acquired.expires_in],
        Reply::LeaseOf(found) => found.iter_mut().flat_map(lease_spans).collect(),
        Reply::Leases(page) | Reply::HeldLeases(HeldLeases { page, .. }) => {
            page.items.iter_mut().flat_map(lease_spans).collect()
        }
        Reply::Attach(attached) => attached.outcomes.iter_mut().filter_map(attached_reap_in).collect(),
        Reply::Detach(outcomes) => outcomes.iter_mut().filter_map(detached_reap_in).collect(),
        Reply::PatchSession(PatchOutcome::Patched(session)) => session.reap_in.iter_mut().collect(),
        Reply::Session(found) | Reply::SessionByAlias(found) => {
            let sessions = found.iter_mut();
            sessions.filter_map(|session| session.reap_in.as_mut()).collect()
        }
        Reply::Sessions(page) => {
            let sessions = page.items.iter_mut();
            sessions.filter_map(|session| session.reap_in.as_mut()).collect()
        }
        Reply::Orphans(found) => found.orphans.iter_mut().map(|orphan| &mut orphan.overdue).collect(),
        Reply::Status(status) => vec![&mut status.gap],
        _ => Vec::new(),
    }
}

/// Durations that say how long to wait. They are rounded up, so that a retry is not too early.
fn waits(reply: &mut Reply) -> Vec<&mut Duration> {
    match reply {
        Reply::Acquire(acquired) => acquired.outcomes.iter_mut().filter_map(wait_of).collect(),
        Reply::RevokeLease(revoked) => vec![&mut revoked.free_in],
        _ => Vec::new(),
    }
}

fn lease_spans(lease: &mut Lease) -> impl Iterator<Item = &mut Duration> {
    let holders = lease.holders.iter_mut().map(|holder| &mut holder.expires_in);
    std::iter::once(&mut lease.expires_in).chain(holders)
}

fn renewed_for(reply: &mut BeatReply) -> Option<&mut Duration> {
    match reply {
        BeatReply::Renewed { expires_in, .. } => Some(expires_in),
        BeatReply::Ended(_) | BeatReply::Unknown | BeatReply::Refused => None,
    }
}

fn attached_reap_in(outcome: &mut AttachOutcome) -> Option<&mut Duration> {
    match outcome {
        AttachOutcome::Attached { session, .. } => session.reap_in.as_mut(),
        _ => None,
    }
}

fn detached_reap_in(outcome: &mut DetachOutcome) -> Option<&mut Duration> {
    match outcome {
        DetachOutcome::Detached { reap_in } => reap_in.as_mut(),
        _ => None,
    }
}

fn wait_of(outcome: &mut AcquireOutcome) -> Option<&mut Duration> {
    match outcome {
        AcquireOutcome::Held { free_in: wait, .. }
        | AcquireOutcome::Reserved { free_in: wait, .. }
        | AcquireOutcome::Unsettled { retry_in: wait, .. } => Some(wait),
        _ => None,
    }
}
