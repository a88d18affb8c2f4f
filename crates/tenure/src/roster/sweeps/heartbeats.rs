//! Records heartbeats in the ledger, in batches and at intervals, so that losing the hot store loses only the
//! latest. While another process cannot reach the hot store, it records them every few seconds: that process knows
//! only what the ledger has.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::id::ProviderId;
use tenure_core::ledger::provider::MAX_BATCH;
use tenure_core::roster::{Rows, Standing, Task, Turn};
use tenure_core::store::{MAX_PAGE, PageRequest};
use tenure_core::time::StoreTime;

use super::super::freshness::PASS;
use super::super::state::RosterState;
use super::super::status::Sweep;
use super::Visit;
use super::sweep_loop::RosterSweep;

/// The heartbeat sweep.
pub(super) struct RecordHeartbeats;

#[async_trait]
impl RosterSweep for RecordHeartbeats {
    const SWEEP: Sweep = Sweep::Heartbeats;

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        let is_wanted = visit.state.is_wanted();
        let interval = match is_wanted {
            true => visit.interval.min(PASS),
            false => visit.interval,
        };
        match visit.take_turn(Task::Heartbeats, interval).await? {
            Turn::Mine(_) => {}
            Turn::Others(at) => return visit.until(at).await,
            Turn::DoneUntil(at) => {
                visit.state.swept(Sweep::Heartbeats, visit.inner.clock().mono());
                return visit.until(at).await;
            }
        }
        let begun = visit.inner.clock().mono();
        let done = visit.write_down(is_wanted).await;
        let took = visit.inner.clock().mono().since(begun);
        visit.end_turn(Task::Heartbeats, done.is_ok()).await;
        done?;
        visit.state.swept(Sweep::Heartbeats, visit.inner.clock().mono());
        // A roster so large that a pass takes long gets an equally long pause.
        Ok(interval.max(took))
    }

    fn is_early(&self, state: &RosterState) -> bool {
        state.is_wanted()
    }
}

impl Visit<'_> {
    /// Records heartbeats. If another process needs them, it records all of them, and at the end a pass: the time since
    /// which every living provider has sent a heartbeat. The pass is omitted if the mirror was not trusted throughout,
    /// because it may lack providers. Otherwise it records only what this process has not recorded yet, which is
    /// nothing for an idle roster.
    async fn write_down(&self, is_wanted: bool) -> Result<()> {
        let mirror = self.mirror();
        let (mut fresh_since, mut begun, mut is_believed) = (None, None, true);
        let mut written_before = self.state.written_before().filter(|_| !is_wanted);
        let mut page = PageRequest {
            after: None,
            limit: MAX_PAGE,
        };
        let mut heard: Vec<(ProviderId, StoreTime)> = Vec::new();
        loop {
            let rows = mirror.api()?.rows(mirror.group(), &page);
            let (rows, believed) = mirror.read(rows, |rows: &Rows| &rows.mirror).await?;
            let begun = *begun.get_or_insert(rows.mirror.as_of);
            // After a clock that stepped back, new heartbeats have old times.
            written_before = written_before.filter(|at| *at <= begun);
            is_believed &= believed;
            let since = oldest_heartbeat(&rows).min(fresh_since.unwrap_or(rows.mirror.as_of));
            fresh_since = Some(since);
            let rows_heard = rows.rows.into_iter();
            let rows_heard = rows_heard.filter_map(|seen| Some((seen.row.provider, seen.row.last_heartbeat_at?)));
            heard.extend(rows_heard.filter(|(_, at)| written_before.is_none_or(|before| *at >= before)));
            page.after = rows.next;
            let is_last = page.after.is_none();
            if heard.len() + MAX_PAGE as usize > MAX_BATCH || (is_last && !heard.is_empty()) {
                heard.sort();
                let batch = std::mem::take(&mut heard);
                let (ledger, roster) = (self.inner.ledger(), self.state.roster());
                ledger.record_heartbeats(roster, &batch).await?;
                if !is_last {
                    self.take_turn(Task::Heartbeats, Duration::ZERO).await?;
                }
            }
            if is_last {
                self.state.set_written_before(begun);
                return match is_wanted && is_believed {
                    true => self.note_pass(since).await,
                    false => Ok(()),
                };
            }
        }
    }

    async fn note_pass(&self, fresh_since: StoreTime) -> Result<()> {
        let (ledger, roster) = (self.inner.ledger(), self.state.roster());
        ledger.note_heartbeat_pass(roster, fresh_since).await
    }
}

/// The time since which all living providers of these rows have sent a heartbeat. A provider with a new tenure and no
/// heartbeat since is alive as well; then the earliest time is returned.
fn oldest_heartbeat(rows: &Rows) -> StoreTime {
    let alive = rows.rows.iter().filter(|seen| seen.standing == Standing::Alive);
    let heard = alive.map(|seen| seen.row.last_heartbeat_at.unwrap_or(StoreTime::ZERO));
    heard.min().unwrap_or(rows.mirror.as_of)
}
