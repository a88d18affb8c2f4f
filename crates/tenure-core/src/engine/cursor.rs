//! Cursors that name their listing, so that one of another listing is refused.
//!
//! The model's cursor is the key of the last item. A file of names could take any of them for its own.

use crate::call::{Op, Reply};
use crate::error::Result;
use crate::id::{MemberId, TenureId};
use crate::session::SessionState;
use crate::store::{PageRequest, bad_cursor};

/// Takes the name of the listing off the cursor of a read.
///
/// # Errors
/// `Invalid` for a cursor of another listing, or of what another member holds.
pub(super) fn unwrap(op: &mut Op) -> Result<Option<&'static str>> {
    let Some((listing, of)) = listing_of(op) else {
        return Ok(None);
    };
    if let Some(after) = page_of(op).and_then(|page| page.after.as_mut()) {
        let place = after.strip_prefix(listing).filter(|place| is_of(of.as_ref(), place));
        *after = place.ok_or_else(|| bad_cursor(after))?.to_owned();
    }
    Ok(Some(listing))
}

/// Puts the name of the listing before the cursor of a page.
pub(super) fn wrap(listing: &'static str, reply: &mut Reply) {
    let next = match reply {
        Reply::Members(page) => &mut page.next,
        Reply::Claims(page) => &mut page.next,
        Reply::Leases(page) => &mut page.next,
        Reply::HeldLeases(held) => &mut held.page.next,
        Reply::Targets(page) => &mut page.next,
        Reply::Sessions(page) => &mut page.next,
        Reply::Rows(rows) => &mut rows.next,
        _ => return,
    };
    if let Some(next) = next {
        next.insert_str(0, listing);
    }
}

/// What a listing is called in its cursors, and the member whose holdings it lists.
fn listing_of(op: &Op) -> Option<(&'static str, Option<MemberId>)> {
    Some(match op {
        Op::Members(_) => ("members/", None),
        Op::Claims(ask) => match &ask.owner {
            None => ("claims/", None),
            Some(owner) => ("owned/", Some(owner.clone())),
        },
        Op::Leases(ask) => match &ask.holder {
            None => ("leases/", None),
            Some(holder) => ("leased/", Some(holder.clone())),
        },
        Op::HeldLeases(_) => ("held/", None),
        Op::Targets(_) => ("targets/", None),
        Op::Sessions(ask) => match ask.state {
            None | Some(SessionState::Active) => ("sessions/", None),
            Some(_) => ("away/", None),
        },
        Op::Rows(_) => ("providers/", None),
        _ => return None,
    })
}

fn page_of(op: &mut Op) -> Option<&mut PageRequest> {
    Some(match op {
        Op::Members(ask) => &mut ask.page,
        Op::Claims(ask) => &mut ask.page,
        Op::Leases(ask) => &mut ask.page,
        Op::HeldLeases(ask) => &mut ask.page,
        Op::Targets(ask) => &mut ask.page,
        Op::Sessions(ask) => &mut ask.page,
        Op::Rows(ask) => &mut ask.page,
        _ => return None,
    })
}

/// Whether a place among the holdings of tenures is one of this member's.
fn is_of(member: Option<&MemberId>, place: &str) -> bool {
    let Some(member) = member else { return true };
    let tenure = place
        .split_once('/')
        .and_then(|(tenure, _)| tenure.parse::<TenureId>().ok());
    tenure.is_some_and(|tenure| tenure.member() == member)
}
