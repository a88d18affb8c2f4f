//! Explains what happened to a member, a tenure, a key, a lease or a session, when, and why.
//!
//! The explanation combines the current state with the events of the group, which are written in the same step as the
//! change they record. A group keeps a bounded number of events (100,000 by default); an explanation says when older
//! ones are gone.

mod history;
mod session;
mod subject;

use std::fmt;

use serde::Serialize;
use tenure_core::error::Result;
use tenure_core::escape::escaped;
use tenure_core::event::{Event, EventId, EventQuery};
use tenure_core::id::Group;
use tenure_core::store::{MAX_PAGE, Store};
use tenure_core::time::StoreTime;

pub use subject::Subject;

/// The most pages of events that one explanation reads: slightly more than a group keeps by default.
const MAX_PAGES: usize = 110;
/// The most lines of history in an explanation; the newest are kept.
pub const MAX_LINES: usize = 200;

/// A past event, or a part of the current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplanationLine {
    /// When it happened, by the store's clock; `None` for the current state.
    pub at: Option<StoreTime>,
    /// The event that records it; `None` for the current state.
    pub event: Option<EventId>,
    /// A sentence.
    pub text: String,
}

/// The history and the current state of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The subject and its group.
    pub subject: String,
    /// What happened, oldest first.
    pub history: Vec<ExplanationLine>,
    /// The current state.
    pub now: Vec<ExplanationLine>,
    /// The time of the oldest event that is kept.
    pub events_since: Option<StoreTime>,
    /// Part of the history is gone, or did not fit.
    pub truncated: bool,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", escaped(&self.subject))?;
        let since = self
            .events_since
            .map(|at| format!(" (events go back to {at})"))
            .unwrap_or_default();
        if self.truncated {
            writeln!(f, "  older events are gone{since}")?;
        } else if self.history.is_empty() {
            writeln!(f, "  nothing is recorded about it{since}")?;
        }
        for line in &self.history {
            let at = line.at.map(|at| at.to_string()).unwrap_or_default();
            writeln!(f, "  {at}  {}", escaped(&line.text))?;
        }
        for line in &self.now {
            writeln!(f, "  now: {}", escaped(&line.text))?;
        }
        Ok(())
    }
}

/// Explains what happened to a subject. Reads all events of the group, page by page: O(events).
///
/// # Errors
/// `Unavailable`.
pub async fn why(store: &dyn Store, group: &Group, subject: &Subject) -> Result<Explanation> {
    let current = history::CurrentState::read(store, group, subject).await?;
    let mut history = history::HistoryBuilder::new(group, subject, &current);
    let mut query = EventQuery {
        after: None,
        limit: MAX_PAGE,
        ..EventQuery::default()
    };
    let mut whole = false;
    for _ in 0..MAX_PAGES {
        let page = store.events(group, &query).await?;
        if page.missed {
            history.missed();
        }
        page.events.iter().for_each(|event: &Event| history.add(event));
        if Some(page.last) == query.after || (page.events.is_empty() && query.after.is_none()) {
            whole = true;
            break;
        }
        query.after = Some(page.last);
    }
    if !whole {
        history.missed();
    }
    Ok(history.finish(current.lines()))
}

#[cfg(test)]
mod tests;
