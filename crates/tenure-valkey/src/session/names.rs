//! Pages of the names of sessions: all of them by name, or the disconnected by when their grace ends. Both come from sorted
//! sets, so that a page costs the same wherever it begins; the cursor is the last one's place in the order.

use tenure_core::error::Result;
use tenure_core::id::{Group, SessionId};
use tenure_core::store::{PageRequest, bad_cursor};

use crate::store::ValkeyStore;

/// Names, and where to go on.
type Names = (Vec<String>, Option<String>);

impl ValkeyStore {
    /// By name.
    pub(super) async fn names_page(&self, group: &Group, page: &PageRequest) -> Result<Names> {
        if let Some(text) = &page.after {
            SessionId::new(text).map_err(|_| bad_cursor(text))?;
        }
        let after = page.after.as_deref().unwrap_or_default();
        let (names, more, _) = self.read_names(group, "all", (0, after), page.limit).await?;
        let next = names.last().filter(|_| more).cloned();
        Ok((names, next))
    }

    /// By when their grace ends, as the lazy index has it: `due/name`.
    pub(super) async fn away_page(&self, group: &Group, page: &PageRequest) -> Result<Names> {
        let after = match &page.after {
            None => (0, ""),
            Some(text) => place(text).ok_or_else(|| bad_cursor(text))?,
        };
        let (names, more, due) = self.read_names(group, "away", after, page.limit).await?;
        let next = names.last().filter(|_| more).map(|name| format!("{due}/{name}"));
        Ok((names, next))
    }

    async fn read_names(
        &self,
        group: &Group,
        which: &str,
        (due, name): (u64, &str),
        limit: u32,
    ) -> Result<(Vec<String>, bool, u64)> {
        let invocation = Self::reading(group)
            .arg(which)
            .number(due)
            .arg(name)
            .number(u64::from(limit));
        self.connection
            .call(&self.scripts.session_names, invocation, |reader, _| {
                Ok((reader.array()?.texts()?, reader.number()? != 0, reader.number()?))
            })
            .await
    }
}

fn place(text: &str) -> Option<(u64, &str)> {
    let (due, name) = text.split_once('/')?;
    SessionId::new(name).ok()?;
    Some((due.parse().ok()?, name))
}
