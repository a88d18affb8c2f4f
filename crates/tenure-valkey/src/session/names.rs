//! Pages of session names: all of them by name, or the disconnected ones by the end of their grace. Both come from
//! sorted sets, so a page costs the same at any offset. The cursor is the position of the last entry.
//!
//! Another program may have added invalid session names to such a set. They are skipped, so a page may be shorter than
//! asked for; reconcile removes and counts them.

use tenure_core::error::Result;
use tenure_core::id::{Group, SessionId};
use tenure_core::store::{PageRequest, bad_cursor};

use crate::store::ValkeyStore;

/// Names, and the cursor of the next page.
type NamePage = (Vec<String>, Option<String>);

/// The text of an entry in a cursor: its name, or for an invalid name `%` and its bytes in hexadecimal.
pub(super) fn show_entry(entry: &[u8]) -> String {
    match name_of(entry) {
        Some(name) => name,
        None => entry
            .iter()
            .fold("%".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

/// Parses an entry from a cursor.
pub(super) fn parse_entry(text: &str) -> Option<Vec<u8>> {
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

/// The session name of an entry, if it is valid.
fn name_of(entry: &[u8]) -> Option<String> {
    let name = SessionId::new(std::str::from_utf8(entry).ok()?).ok()?;
    Some(name.to_string())
}

/// A raw part of a sorted set.
struct EntryPage {
    names: Vec<Vec<u8>>,
    more: bool,
    /// When the last entry is due.
    due: u64,
}

impl EntryPage {
    /// The valid names, and the cursor of the next page.
    fn page(self, place: impl Fn(&Self, &[u8]) -> String) -> NamePage {
        let next = self.names.last().filter(|_| self.more).map(|last| place(&self, last));
        let names = self.names.iter().filter_map(|entry| name_of(entry)).collect();
        (names, next)
    }
}

impl ValkeyStore {
    /// A page in the order of names.
    pub(super) async fn names_page(&self, group: &Group, page: &PageRequest) -> Result<NamePage> {
        let after = match &page.after {
            None => Vec::new(),
            Some(text) => parse_entry(text).ok_or_else(|| bad_cursor(text))?,
        };
        let entries = self.read_names(group, "all", (0, &after), page.limit).await?;
        Ok(entries.page(|_, last| show_entry(last)))
    }

    /// A page in the order of the lazy index of grace ends, with cursors `due/name`.
    pub(super) async fn away_page(&self, group: &Group, page: &PageRequest) -> Result<NamePage> {
        let (due, after) = match &page.after {
            None => (0, Vec::new()),
            Some(text) => parse_cursor(text).ok_or_else(|| bad_cursor(text))?,
        };
        let entries = self.read_names(group, "away", (due, &after), page.limit).await?;
        Ok(entries.page(|entries, last| format!("{}/{}", entries.due, show_entry(last))))
    }

    async fn read_names(
        &self,
        group: &Group,
        which: &str,
        (due, entry): (u64, &[u8]),
        limit: u32,
    ) -> Result<EntryPage> {
        let invocation = Self::read_call(group)
            .arg(which)
            .number(due)
            .arg(entry)
            .number(u64::from(limit));
        self.connection
            .call(&self.scripts.session_names, invocation, |reader, _| {
                Ok(EntryPage {
                    names: reader.array()?.all_bytes()?,
                    more: reader.number()? != 0,
                    due: reader.number()?,
                })
            })
            .await
    }
}

fn parse_cursor(text: &str) -> Option<(u64, Vec<u8>)> {
    let (due, entry) = text.split_once('/')?;
    Some((due.parse().ok()?, parse_entry(entry)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_text_round_trips() {
        for (entry, text) in [
            (&b"chat-1"[..], "chat-1"),
            (&b"\xff\x00a"[..], "%ff0061"),
            (&b"no name"[..], "%6e6f206e616d65"),
        ] {
            assert_eq!(show_entry(entry), text);
            assert_eq!(parse_entry(text).as_deref(), Some(entry));
        }
        for text in ["", "no name", "%f", "%+f", "%zz", "a/b"] {
            assert_eq!(parse_entry(text), None, "{text:?}");
        }
    }
}
