//! Pages of the names of sessions: all of them by name, or the disconnected by when their grace ends. Both come from sorted
//! sets, so that a page costs the same wherever it begins; the cursor is the last one's place in the order.
//!
//! Another program may have put something into such a set that no session is called. It is left out, and a page may so be
//! shorter than asked for; reconcile removes and counts it.

use tenure_core::error::Result;
use tenure_core::id::{Group, SessionId};
use tenure_core::store::{PageRequest, bad_cursor};

use crate::store::ValkeyStore;

/// Names, and where to go on.
type Names = (Vec<String>, Option<String>);

/// The place of an entry: its name, or for what is no name `%` and its bytes in hexadecimal digits.
pub(super) fn show_place(entry: &[u8]) -> String {
    match name_of(entry) {
        Some(name) => name,
        None => entry
            .iter()
            .fold("%".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

/// The entry of a place.
pub(super) fn read_place(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = text.strip_prefix('%') else {
        return name_of(text.as_bytes()).map(String::into_bytes);
    };
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] if pair.iter().all(u8::is_ascii_hexdigit) => {
                u8::from_str_radix(std::str::from_utf8(&[*high, *low]).ok()?, 16).ok()
            }
            _ => None,
        })
        .collect()
}

/// What a session can be called.
fn name_of(entry: &[u8]) -> Option<String> {
    let name = SessionId::new(std::str::from_utf8(entry).ok()?).ok()?;
    Some(name.to_string())
}

/// A part of such a set, as it is.
struct Entries {
    names: Vec<Vec<u8>>,
    more: bool,
    /// When the last is due.
    due: u64,
}

impl Entries {
    /// The names in it, and where to continue.
    fn page(self, place: impl Fn(&Self, &[u8]) -> String) -> Names {
        let next = self.names.last().filter(|_| self.more).map(|last| place(&self, last));
        let names = self.names.iter().filter_map(|entry| name_of(entry)).collect();
        (names, next)
    }
}

impl ValkeyStore {
    /// By name.
    pub(super) async fn names_page(&self, group: &Group, page: &PageRequest) -> Result<Names> {
        let after = match &page.after {
            None => Vec::new(),
            Some(text) => read_place(text).ok_or_else(|| bad_cursor(text))?,
        };
        let entries = self.read_names(group, "all", (0, &after), page.limit).await?;
        Ok(entries.page(|_, last| show_place(last)))
    }

    /// By when their grace ends, as the lazy index has it: `due/name`.
    pub(super) async fn away_page(&self, group: &Group, page: &PageRequest) -> Result<Names> {
        let (due, after) = match &page.after {
            None => (0, Vec::new()),
            Some(text) => place(text).ok_or_else(|| bad_cursor(text))?,
        };
        let entries = self.read_names(group, "away", (due, &after), page.limit).await?;
        Ok(entries.page(|entries, last| format!("{}/{}", entries.due, show_place(last))))
    }

    async fn read_names(&self, group: &Group, which: &str, (due, entry): (u64, &[u8]), limit: u32) -> Result<Entries> {
        let invocation = Self::reading(group)
            .arg(which)
            .number(due)
            .arg(entry)
            .number(u64::from(limit));
        self.connection
            .call(&self.scripts.session_names, invocation, |reader, _| {
                Ok(Entries {
                    names: reader.array()?.all_bytes()?,
                    more: reader.number()? != 0,
                    due: reader.number()?,
                })
            })
            .await
    }
}

fn place(text: &str) -> Option<(u64, Vec<u8>)> {
    let (due, entry) = text.split_once('/')?;
    Some((due.parse().ok()?, read_place(entry)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_reads_back_what_it_shows() {
        for (entry, text) in [
            (&b"chat-1"[..], "chat-1"),
            (&b"\xff\x00a"[..], "%ff0061"),
            (&b"no name"[..], "%6e6f206e616d65"),
        ] {
            assert_eq!(show_place(entry), text);
            assert_eq!(read_place(text).as_deref(), Some(entry));
        }
        for text in ["", "no name", "%f", "%+f", "%zz", "a/b"] {
            assert_eq!(read_place(text), None, "{text:?}");
        }
    }
}
