//! The reaper's steps and what it goes by, on one group.

use std::collections::BTreeMap;
use std::time::Duration;

use super::decide::Decide;
use super::group::GroupModel;
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{ConnectionId, SessionId, TenureId};
use crate::session::{CountSessions, ListOrphans, Orphan, Orphans, SessionStats};
use crate::store::{Call, bad_cursor};
use crate::sweep::{Reap, Reaped, ReapedBatch, Reconcile, Reconciled, drift};
use crate::time::StoreTime;

impl GroupModel {
    /// Removes up to `room` connections of an ended tenure. Answers how many were still its own, how many it looked at,
    /// and those that were the last of their session.
    pub(super) fn release_connections_of(
        &mut self,
        tenure: &TenureId,
        room: usize,
        now: StoreTime,
    ) -> (u64, usize, Vec<(SessionId, ConnectionId)>) {
        let connected = self.connected.get(tenure).into_iter().flatten();
        let holdings: Vec<_> = connected.take(room).cloned().collect();
        let (mut removed, mut last) = (0, Vec::new());
        for holding in &holdings {
            let held = self.sessions.get(&holding.0);
            let held = held.and_then(|record| record.connections.get(&holding.1));
            if held.is_some_and(|(holder, _)| holder == tenure) {
                removed += 1;
                last.extend(self.disconnect(holding, now).map(|_| holding.clone()));
            }
            self.drop_connection(tenure, holding);
        }
        (removed, holdings.len(), last)
    }
}

impl Decide<Reap> for GroupModel {
    /// Step 3.
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
        let due = self.away.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<_> = due.take(request.limit as usize).cloned().collect();
        let mut batch = ReapedBatch::default();
        for (at, session) in due {
            let Some(record) = self.sessions.get_mut(&session) else {
                continue;
            };
            let Some(away) = record.away.as_mut() else { continue };
            let over_at = away.over_at(self.resumed_at, now);
            if now < over_at {
                away.due = over_at;
                self.away.remove(&(at, session.clone()));
                self.away.insert((over_at, session));
                continue;
            }
            let epoch = record.epoch;
            self.remove_session(&session, EventKind::SessionReaped, Some(&request.pass), now);
            batch.reaped.push(Reaped { session, epoch });
        }
        batch.more = self.away.first().is_some_and(|(at, _)| *at <= now);
        Ok(batch)
    }
}

impl Decide<Reconcile> for GroupModel {
    /// A part of a reconcile. Nothing can drift here, so all there is to find are connections that are too old.
    fn step(&mut self, Reconcile(request): &Reconcile, call: Call, now: StoreTime) -> Result<Reconciled> {
        let after = request
            .after
            .as_deref()
            .map(|text| SessionId::new(text).map_err(|_| bad_cursor(text)))
            .transpose()?;
        self.open(now, call)?;
        let names = self.sessions.keys();
        let mut names = names.filter(|name| after.as_ref().is_none_or(|after| *name > after));
        let page: Vec<_> = names.by_ref().take(request.limit as usize).cloned().collect();
        let more = names.next().is_some();
        let mut aged = 0;
        let may_take = self.brake_in_force(now).is_none() && self.unsettled.is_none();
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
    /// Drops the connections of a session that were attached too long ago. The epoch tells when: it is made from the
    /// store's clock.
    fn drop_aged(&mut self, session: &SessionId, max_age: Duration, now: StoreTime) -> u64 {
        let connections = self.sessions.get(session).map(|record| record.connections.clone());
        let mut aged = 0;
        for (connection, (tenure, epoch)) in connections.unwrap_or_default() {
            if StoreTime::from_micros(epoch.get()) + max_age > now {
                continue;
            }
            let holding = (session.clone(), connection);
            self.drop_connection(&tenure, &holding);
            if self.disconnect(&holding, now).is_some() {
                self.tell_disconnected(&holding, &tenure, "max_age", None, now);
            }
            aged += 1;
        }
        aged
    }
}

impl Decide<ListOrphans> for GroupModel {
    /// Sessions whose grace is over.
    fn read(&self, &ListOrphans { overdue, limit }: &ListOrphans, now: StoreTime) -> Result<Orphans> {
        let resumed_at = self.resumed_for_reading(now);
        let due = self.away.iter().take_while(|(at, _)| *at + overdue <= now);
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
    /// Counts sessions.
    fn read(&self, _: &CountSessions, now: StoreTime) -> Result<SessionStats> {
        let orphans = match self.resumed_for_reading(now) == now && self.resumed_at != now {
            // A gap that nobody has noticed yet: everyone has the whole grace anew.
            true => 0,
            false => self.away.iter().take_while(|(at, _)| *at <= now).count() as u64,
        };
        let away = self.away.len() as u64;
        Ok(SessionStats {
            active: self.sessions.len() as u64 - away,
            disconnected: away - orphans,
            orphans,
        })
    }
}
