//! Events over HTTP.

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::event::{EventId, EventKind, EventPage, EventQuery, WaitForEvents};
use tenure_core::id::Group;
use tenure_core::store::Call;

use super::HttpStore;
use crate::wire::{EventsPage, MAX_EVENT_WAIT, ms_up};

#[async_trait]
impl Serve<EventQuery> for HttpStore {
    async fn serve(&self, group: &Group, ask: EventQuery, _: Call) -> Result<EventPage> {
        let query = ask;
        let text = |id: Option<EventId>| id.map(|id| id.to_string());
        let (limit, after, before) = (query.limit.to_string(), text(query.after), text(query.before));
        let kinds: Vec<_> = query.kinds.iter().copied().map(EventKind::as_str).collect();
        let kinds = kinds.join(",");
        let mut pairs = vec![("limit", limit.as_str())];
        pairs.extend(after.as_deref().map(|after| ("after", after)));
        pairs.extend(before.as_deref().map(|before| ("before", before)));
        pairs.extend((!kinds.is_empty()).then_some(("types", kinds.as_str())));
        let request = self.read(&["v1", "groups", group.as_str(), "events"]).query(&pairs);
        self.send(request).await?.json::<EventsPage>()?.page()
    }
}

#[async_trait]
impl Serve<WaitForEvents> for HttpStore {
    async fn serve(&self, group: &Group, ask: WaitForEvents, _: Call) -> Result<()> {
        let WaitForEvents { after, patience } = ask;
        let patience = patience.min(MAX_EVENT_WAIT);
        let (after, wait) = (after.to_string(), ms_up(patience).to_string());
        let request = self
            .read(&["v1", "groups", group.as_str(), "events"])
            .query(&[("after", after.as_str()), ("limit", "1"), ("wait_ms", wait.as_str())])
            .patience(patience + self.inner.settings.request_timeout);
        let begun = self.inner.clock.mono();
        match self.send(request).await {
            // The wait is over. The next read shows whether the daemon is down.
            Err(error) if error.is_unavailable() && self.inner.clock.mono().since(begun) >= patience => Ok(()),
            answer => answer.map(drop),
        }
    }
}
