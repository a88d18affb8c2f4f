//! Heartbeats are written down in the ledger, now and then and all together, so that the loss of the hot store costs no
//! more than the last of them. Every few seconds while another process cannot reach the hot store: it knows no more than
//! the ledger.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::id::ProviderId;
use tenure_core::ledger::provider::MAX_BATCH;
use tenure_core::roster::{Rows, Standing, Task, Turn};
use tenure_core::store::{MAX_PAGE, PageRequest};
use tenure_core::time::StoreTime;

use super::super::freshness::PASS;
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
        let is_wanted = visit.one.is_wanted();
        let interval = match is_wanted {
            true => visit.interval.min(PASS),
            false => visit.interval,
        };
        match visit.take_turn(Task::Heartbeats, interval).await? {
            Turn::Mine(_) => {}
            Turn::Others(at) => return visit.until(at).await,
            Turn::DoneUntil(at) => {
                visit.one.swept(Sweep::Heartbeats, visit.inner.clock().mono());
                return visit.until(at).await;
            }
        }
        let begun = visit.inner.clock().mono();
        let done = visit.write_down(is_wanted).await;
        let took = visit.inner.clock().mono().since(begun);
        visit.end_turn(Task::Heartbeats, done.is_ok()).await;
        done?;
        visit.one.swept(Sweep::Heartbeats, visit.inner.clock().mono());
        // A roster so large that a pass takes long has as much time between two.
        Ok(interval.max(took))
    }

    fn is_early(&self, one: &One) -> bool {
        one.is_wanted()
    }
}

impl Visit<'_> {
    /// Where another process waits for it, the ledger gets every heartbeat, and at the end the time since which every living
    /// provider was heard, if the mirror was believed all along: one that is not filled may lack any provider. Otherwise it gets
    /// what this process has not written yet: nothing, of a roster that is idle.
    async fn write_down(&self, is_wanted: bool) -> Result<()> {
        let line = self.line();
        let (mut fresh_since, mut begun, mut is_believed) = (None, None, true);
        let mut written_before = self.one.written_before().filter(|_| !is_wanted);
        let mut page = PageRequest {
            after: None,
            limit: MAX_PAGE,
        };
        let mut heard: Vec<(ProviderId, StoreTime)> = Vec::new();
        loop {
            let rows = line.mirror()?.rows(line.group(), &page);
            let (rows, believed) = line.read(rows, |rows: &Rows| &rows.stamp).await?;
            let begun = *begun.get_or_insert(rows.stamp.as_of);
            // A clock that fell back makes new heartbeats look old.
            written_before = written_before.filter(|at| *at <= begun);
            is_believed &= believed;
            let since = oldest_heartbeat(&rows).min(fresh_since.unwrap_or(rows.stamp.as_of));
            fresh_since = Some(since);
            let rows_heard = rows.rows.into_iter();
            let rows_heard = rows_heard.filter_map(|seen| Some((seen.row.provider, seen.row.last_heartbeat_at?)));
            heard.extend(rows_heard.filter(|(_, at)| written_before.is_none_or(|before| *at >= before)));
            page.after = rows.next;
            let is_last = page.after.is_none();
            if heard.len() + MAX_PAGE as usize > MAX_BATCH || (is_last && !heard.is_empty()) {
                heard.sort();
                let batch = std::mem::take(&mut heard);
                let (ledger, roster) = (self.inner.ledger(), self.one.roster());
                ledger.record_heartbeats(roster, &batch).await?;
                if !is_last {
                    self.take_turn(Task::Heartbeats, Duration::ZERO).await?;
                }
            }
            if is_last {
                self.one.set_written_before(begun);
                return match is_wanted && is_believed {
                    true => self.note_pass(since).await,
                    false => Ok(()),
                };
            }
        }
    }

    async fn note_pass(&self, fresh_since: StoreTime) -> Result<()> {
        let (ledger, roster) = (self.inner.ledger(), self.one.roster());
        ledger.note_heartbeat_pass(roster, fresh_since).await
    }
}

/// Since when all of these have been heard that are alive. One that got a new tenure and was not heard since then is alive
/// as well: then any time is early enough.
fn oldest_heartbeat(rows: &Rows) -> StoreTime {
    let alive = rows.rows.iter().filter(|seen| seen.standing == Standing::Alive);
    let heard = alive.map(|seen| seen.row.last_heartbeat_at.unwrap_or(StoreTime::ZERO));
    heard.min().unwrap_or(rows.stamp.as_of)
}
