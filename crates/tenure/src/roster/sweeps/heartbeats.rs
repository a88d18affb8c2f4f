//! Heartbeats are written down in the ledger, now and then and all together, so that the loss of the hot store costs no
//! more than the last of them.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::id::ProviderId;
use tenure_core::ledger::provider::MAX_BATCH;
use tenure_core::roster::{Rows, Task, Turn};
use tenure_core::store::{Call, MAX_PAGE, PageRequest};
use tenure_core::time::StoreTime;

use super::super::one::One;
use super::super::status::Sweep;
use super::Visit;
use super::round::Sweeping;

/// The sweep.
pub(super) struct WriteDown;

#[async_trait]
impl Sweeping for WriteDown {
    const SWEEP: Sweep = Sweep::Heartbeats;

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        match visit.take_turn(Task::Heartbeats, visit.interval).await? {
            Turn::Mine(_) => {}
            Turn::Others(at) => return visit.until(at).await,
            Turn::DoneUntil(at) => {
                visit.one.swept(Sweep::Heartbeats, visit.inner.clock().mono());
                return visit.until(at).await;
            }
        }
        let done = visit.write_down().await;
        visit.end_turn(Task::Heartbeats, done.is_ok()).await;
        done?;
        visit.one.swept(Sweep::Heartbeats, visit.inner.clock().mono());
        Ok(visit.interval)
    }

    fn is_early(&self, _: &One) -> bool {
        false
    }
}

impl Visit<'_> {
    /// The ledger passes over what is no news to it.
    async fn write_down(&self) -> Result<()> {
        let line = self.line();
        let mut page = PageRequest {
            after: None,
            limit: MAX_PAGE,
        };
        let mut heard: Vec<(ProviderId, StoreTime)> = Vec::new();
        loop {
            let rows = line.mirror()?.rows(line.group(), &page);
            let (rows, _) = line.read(rows, |rows: &Rows| &rows.stamp).await?;
            let alive = rows.rows.into_iter();
            heard.extend(alive.filter_map(|seen| Some((seen.row.provider, seen.row.last_heartbeat_at?))));
            page.after = rows.next;
            if heard.len() + MAX_PAGE as usize > MAX_BATCH || page.after.is_none() {
                heard.sort();
                self.inner
                    .ledger()
                    .record_heartbeats(self.one.roster(), &std::mem::take(&mut heard), Call::default())
                    .await?;
                if page.after.is_none() {
                    return Ok(());
                }
                self.take_turn(Task::Heartbeats, Duration::ZERO).await?;
            }
        }
    }
}
