//! Cursors and the cutting of pages.
//!
//! A cursor names its listing and the last item shown, so that one of another listing is refused.

use tenure_core::store::{Page, PageRequest, bad_cursor};
use tenure_core::{LeaseName, MemberId, TenureId};

use crate::error::Cause;

/// A listing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Listing {
    /// Members by name.
    Members,
    /// Claims of a registry by key.
    Claims,
    /// Claims of one owner by tenure and key.
    Owned,
    /// Leases by name.
    Leases,
    /// Leases of one holder by tenure and name.
    Leased,
    /// Leases of one tenure by name.
    Held,
    /// Targets by name.
    Targets,
    /// Sessions by name.
    Sessions,
    /// Sessions without connections by when to look at them, and name.
    Away,
    /// Providers of a roster by name.
    Providers,
}

impl Listing {
    fn prefix(self) -> &'static str {
        match self {
            Self::Members => "members/",
            Self::Claims => "claims/",
            Self::Owned => "owned/",
            Self::Leases => "leases/",
            Self::Leased => "leased/",
            Self::Held => "held/",
            Self::Targets => "targets/",
            Self::Sessions => "sessions/",
            Self::Away => "away/",
            Self::Providers => "providers/",
        }
    }
}

/// The cursor after an item.
pub(crate) fn cursor(listing: Listing, item: &str) -> String {
    format!("{}{item}", listing.prefix())
}

/// The item that a cursor of this listing names. It is still to be checked.
pub(crate) fn place(listing: Listing, cursor: &str) -> Option<&str> {
    cursor.strip_prefix(listing.prefix())
}

/// The name after which a page begins, by a cursor of this listing of leases or targets.
pub(crate) fn name_after(listing: Listing, page: &PageRequest) -> tenure_core::Result<String> {
    match &page.after {
        None => Ok(String::new()),
        Some(text) => place(listing, text)
            .filter(|name| LeaseName::new(name).is_ok())
            .map(str::to_owned)
            .ok_or_else(|| bad_cursor(text)),
    }
}

/// The tenure and the name of a cursor among what one member holds. The name is still to be checked.
pub(crate) fn place_of<'a>(listing: Listing, cursor: &'a str, member: &MemberId) -> Option<(TenureId, &'a str)> {
    let (tenure, name) = place(listing, cursor)?.split_once('/')?;
    let tenure: TenureId = tenure.parse().ok()?;
    (tenure.member() == member).then_some((tenure, name))
}

/// Walks from tenure to tenure of a member, and within each from item to item, so that only rows of the page are read.
///
/// `next` finds the first tenure that has items between two texts, both of them left out; `items` reads a tenure's items
/// after a name, at most so many.
pub(crate) fn walk<T>(
    member: &MemberId,
    after: Option<(TenureId, String)>,
    limit: u32,
    next: impl Fn(&str, &str) -> Result<Option<TenureId>, Cause>,
    items: impl Fn(&TenureId, &str, u32) -> Result<Vec<T>, Cause>,
) -> Result<Vec<T>, Cause> {
    // All tenures of a member lie between `member@` and `memberA`: `A` follows `@`.
    let end = format!("{member}A");
    let mut all: Vec<T> = Vec::new();
    let mut place = match after {
        Some(place) => Some(place),
        None => next(&format!("{member}@"), &end)?.map(|tenure| (tenure, String::new())),
    };
    while let Some((tenure, name)) = place {
        let left = limit.saturating_sub(u32::try_from(all.len()).unwrap_or(limit));
        all.extend(items(&tenure, &name, left)?);
        if all.len() >= limit as usize {
            break;
        }
        place = next(&tenure.to_string(), &end)?.map(|tenure| (tenure, String::new()));
    }
    Ok(all)
}

/// Makes a page of items of which one more than the limit was read.
pub(crate) fn cut<T>(mut items: Vec<T>, limit: u32, cursor: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = items.last().filter(|_| more).map(cursor);
    Page { items, next }
}
