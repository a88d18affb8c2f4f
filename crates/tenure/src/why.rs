//! What happened to a member, a tenure, a key, a lease or a session, when, and why.
//!
//! The answer comes from the events of the group, which were written in the same step as the change they tell of, and
//! from the state now. Events are kept for a while only (100,000 per group by default): an answer says when older ones
//! are gone.

mod session;
mod story;
mod subject;

use std::fmt;

use serde::Serialize;
use tenure_core::error::Result;
use tenure_core::event::{Event, EventId, EventQuery};
use tenure_core::id::Group;
use tenure_core::store::{MAX_PAGE, Store};
use tenure_core::time::StoreTime;

pub use subject::Subject;

/// The most pages of events that one question reads: a little more than a group keeps by default.
const MAX_PAGES: usize = 110;
/// The most lines of an answer; the newest are kept.
pub const MAX_LINES: usize = 200;

/// One thing that happened, or that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// When, by the store's clock; `None` for the state now.
    pub at: Option<StoreTime>,
    /// The event that tells it; `None` for the state now.
    pub event: Option<EventId>,
    /// In words.
    pub text: String,
}

/// The answer to a `why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What was asked about.
    pub subject: String,
    /// What happened, oldest first.
    pub history: Vec<Line>,
    /// How it is now.
    pub now: Vec<Line>,
    /// The oldest event that is still there; what happened before it nobody can tell.
    pub events_since: Option<StoreTime>,
    /// Something that belongs to the history is gone, or there was more than an answer holds.
    pub truncated: bool,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
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
            writeln!(f, "  {at}  {}", line.text)?;
        }
        for line in &self.now {
            writeln!(f, "  now: {}", line.text)?;
        }
        Ok(())
    }
}

/// Tells what happened to a subject. Reads all events of the group, page by page: O(events).
///
/// # Errors
/// `Unavailable`.
pub async fn why(store: &dyn Store, group: &Group, subject: &Subject) -> Result<Explanation> {
    let present = story::Present::look(store, group, subject).await?;
    let mut story = story::Story::new(group, subject, &present);
    let mut query = EventQuery {
        after: None,
        limit: MAX_PAGE,
        ..EventQuery::default()
    };
    let mut whole = false;
    for _ in 0..MAX_PAGES {
        let page = store.events(group, &query).await?;
        if page.missed {
            story.missed();
        }
        page.events.iter().for_each(|event: &Event| story.hear(event));
        if Some(page.last) == query.after || (page.events.is_empty() && query.after.is_none()) {
            whole = true;
            break;
        }
        query.after = Some(page.last);
    }
    if !whole {
        story.missed();
    }
    Ok(story.end(present.lines()))
}

#[cfg(test)]
mod tests;
