//! Cursors and the cutting of pages.
//!
//! A cursor names its listing and the last item shown, so that one of another listing is refused.

use tenure_core::store::Page;

/// A listing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Listing {
    /// Members by name.
    Members,
    /// Claims of a registry by key.
    Claims,
    /// Claims of one owner by tenure and key.
    Owned,
}

impl Listing {
    fn prefix(self) -> &'static str {
        match self {
            Self::Members => "members/",
            Self::Claims => "claims/",
            Self::Owned => "owned/",
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

/// Makes a page of items of which one more than the limit was read.
pub(crate) fn cut<T>(mut items: Vec<T>, limit: u32, cursor: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = items.last().filter(|_| more).map(cursor);
    Page { items, next }
}
