//! The reaper's steps and indexes, for one group.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use super::decide::Decide;
use super::group::GroupModel;
use super::holdings::Link;
use super::pages::behind;
use super::rows::{Away, SessionRow};
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{SessionId, TenureId};
use crate::session::{CountSessions, ListOrphans, Orphan, Orphans, SessionStats};
use crate::store::{Call, bad_cursor};
use crate::sweep::{Reap, Reaped, ReapedBatch, Reconcile, Reconciled, drift};
use crate::time::StoreTime;

impl GroupModel {
    /// Removes up to `room` connections of an ended tenure. Returns how many, and those that were the last of their
    /// session.
    pub(super) fn release_connections_of(
        &mut self,
        tenure: &TenureId,
        room: usize,
        now: StoreTime,
    ) -> (usize, Vec<Link>) {
        let links: Vec<_> = self.held.connections(tenure).take(room).collect();
        let mut last = Vec::new();
        for link in &links {
            last.extend(self.disconnect(link, now).map(|_| link.clone()));
        }
        (links.len(), last)
    }
}

impl Decide<Reap> for GroupModel {
    /// Step 3 of a sweep.
    fn step(&mut self, Reap(request): &Reap, call: Call, now: StoreTime) -> Result<ReapedBatch> {
        self.open(now, call)?;
        self.lift_brake(now, request.force);
        let braked = self.brake_in_force(now);
        if braked.is_some() {
            return Ok(ReapedBatch {
                braked,
                ..ReapedBatch::default()
            });
        }
        let due = self.sessions.away_by(now).take(request.limit as usize);
        let due: Vec<_> = due.map(|(_, session)| session.clone()).collect();
        let mut batch = ReapedBatch::default();
        for session in due {
            let Some(row) = self.sessions.get(&session) else {
                continue;
            };
            let Some(away) = row.away else { continue };
            let over_at = away.over_at(self.head().resumed_at, now);
            if now < over_at {
                let away = Some(Away { due: over_at, ..away });
                let row = SessionRow { away, ..row.clone() };
                self.sessions.set(&session, Some(row));
                continue;
            }
            let epoch = row.epoch;
            self.remove_session(&session, EventKind::SessionReaped, Some(&request.pass), now);
            batch.reaped.push(Reaped { session, epoch });
        }
        batch.more = self.sessions.away_by(now).next().is_some();
        Ok(batch)
    }
}

impl Decide<Reconcile> for GroupModel {
    /// A part of a reconcile. Nothing can drift here, so it only finds connections above the maximum age.
    fn step(&mut self, Reconcile(request): &Reconcile, call: Call, now: StoreTime) -> Result<Reconciled> {
        let after = request
            .after
            .as_deref()
            .map(|text| SessionId::new(text).map_err(|_| bad_cursor(text)))
            .transpose()?;
        self.open(now, call)?;
        let mut names = self.sessions.names(false, behind(after));
        let page: Vec<_> = names.by_ref().take(request.limit as usize).cloned().collect();
        let more = names.next().is_some();
        drop(names);
        let mut aged = 0;
        let may_take = self.brake_in_force(now).is_none() && self.head().unsettled.is_none();
        for session in &page {
            if let Some(max_age) = self.options.sessions.max_age.filter(|_| may_take) {
                aged += self.drop_aged(session, max_age, now);
            }
        }
        let mut done = Reconciled {
            looked_at: page.len() as u64,
            repaired: BTreeMap::new(),
            next: page.last().filter(|_| more).map(ToString::to_string),
        };
        if aged > 0 {
            done.repaired.insert(drift::AGED_CONNECTION.to_owned(), aged);
            self.emit(now, EventKind::SessionsRepaired)
                .counts
                .clone_from(&done.repaired);
        }
        Ok(done)
    }
}

impl GroupModel {
    /// Drops the connections of a session above the maximum age. The age follows from the epoch, which contains the
    /// store time of the attach.
    fn drop_aged(&mut self, session: &SessionId, max_age: Duration, now: StoreTime) -> u64 {
        let connections = self.sessions.connections_of(session);
        let connections: Vec<_> = connections.map(|(link, row)| (link.clone(), row.clone())).collect();
        let mut aged = 0;
        for (link, row) in connections {
            if StoreTime::from_micros(row.epoch.get()) + max_age > now {
                continue;
            }
            if self.disconnect(&link, now).is_some() {
                self.tell_disconnected(&link, &row.tenure, "max_age", None, now);
            }
            aged += 1;
        }
        aged
    }
}

impl Decide<ListOrphans> for GroupModel {
    /// Lists sessions whose grace is over.
    fn read(&self, &ListOrphans { overdue, limit }: &ListOrphans, now: StoreTime) -> Result<Orphans> {
        let resumed_at = self.resumed_for_reading(now);
        let away = self.sessions.away_after(Bound::Unbounded);
        let due = away.take_while(|(at, _)| *at + overdue <= now);
        let orphan = |(_, session): &(StoreTime, SessionId)| {
            let record = self.sessions.get(session)?;
            let away = record.away?;
            let over_at = away.over_at(resumed_at, now);
            (over_at + overdue <= now).then(|| Orphan {
                session: session.clone(),
                epoch: record.epoch,
                disconnected_at: away.reap_at.minus(away.granted),
                overdue: now.since(over_at),
            })
        };
        Ok(Orphans {
            orphans: due.take(limit as usize).filter_map(orphan).collect(),
            skipped: 0,
        })
    }
}

impl Decide<CountSessions> for GroupModel {
    fn read(&self, _: &CountSessions, now: StoreTime) -> Result<SessionStats> {
        let orphans = match self.resumed_for_reading(now) != self.head().resumed_at {
            // After an unnoticed gap, every session has its full grace again.
            true => 0,
            false => self.sessions.away_by(now).count() as u64,
        };
        let away = self.sessions.disconnected();
        Ok(SessionStats {
            active: self.sessions.table.len() as u64 - away,
            disconnected: away - orphans,
            orphans,
        })
    }
}
