//! Heartbeats by name. Whoever is alive under the tenure of its row is served from memory, like any beat.

use tenure_core::roster::{Heartbeat, HeartbeatReply, Heartbeats, Stamp, Standing};
use tenure_core::{StoreTime, TenureId};

use super::table::Head;
use crate::clock::StoreClock;
use crate::error::Cause;
use crate::live::{Live, Table};
use crate::step::{Answer, Step};

/// What a row says of a heartbeat: an answer, or the tenure that has to be looked at.
fn by_row(head: Option<&Head>, heartbeat: &Heartbeat) -> Result<TenureId, HeartbeatReply> {
    let head = head.ok_or(HeartbeatReply::Absent)?;
    if !head.active {
        return Err(HeartbeatReply::Deactivated);
    }
    let revoked = heartbeat.issued_at.zip(head.revoked_before);
    if revoked.is_some_and(|(issued, revoked)| issued < revoked) {
        return Err(HeartbeatReply::Revoked);
    }
    head.online.clone().ok_or(HeartbeatReply::Offline)
}

impl Live {
    /// Serves heartbeats from memory. Leaves `None` for those that a step has to answer: whose tenure is not current or
    /// past its end, or whom a transaction has met that is not committed yet. All of them, when there is a gap to record.
    pub(super) fn heartbeat(
        &self,
        clock: &StoreClock,
        heartbeats: &[Heartbeat],
    ) -> (Stamp, Vec<Option<HeartbeatReply>>) {
        let mut table = self.lock();
        let now = clock.now();
        let stamp = table.stamp(now);
        if table.observe(now).is_some() {
            return (stamp, vec![None; heartbeats.len()]);
        }
        table.tick = now;
        let resumed_at = table.resumed_at;
        let replies = heartbeats
            .iter()
            .map(|heartbeat| table.heard(heartbeat, resumed_at, now));
        (stamp, replies.collect())
    }
}

impl Table {
    fn heard(&mut self, heartbeat: &Heartbeat, resumed_at: StoreTime, now: StoreTime) -> Option<HeartbeatReply> {
        if self.roster.is_pending(&heartbeat.provider) {
            return None;
        }
        let tenure = match by_row(self.roster.committed(&heartbeat.provider), heartbeat) {
            Ok(tenure) => tenure,
            Err(reply) => return Some(reply),
        };
        if !self.pending.is_empty() && self.pending.contains_key(tenure.member()) {
            return None;
        }
        let entry = self.members.get_mut(tenure.member())?;
        if entry.term != tenure.term() || now >= entry.end(resumed_at, now) {
            return None;
        }
        entry.deadline = now + entry.ttl;
        Some(HeartbeatReply::Recorded)
    }
}

impl Step<'_> {
    /// Answers the heartbeats of a part that memory alone could not.
    pub(super) fn heartbeat(&mut self, heartbeats: &[Heartbeat]) -> Answer<Heartbeats> {
        let replies = heartbeats
            .iter()
            .map(|heartbeat| self.heartbeat_of(heartbeat))
            .collect::<Result<_, Cause>>()?;
        self.engage_brake()?;
        Ok(Ok(Heartbeats {
            replies,
            stamp: self.stamp(),
        }))
    }

    fn heartbeat_of(&mut self, heartbeat: &Heartbeat) -> Result<HeartbeatReply, Cause> {
        let head = self.head_of(&heartbeat.provider);
        let tenure = match by_row(head.as_ref(), heartbeat) {
            Ok(tenure) => tenure,
            Err(reply) => return Ok(reply),
        };
        Ok(match self.stand(&tenure)? {
            Standing::Alive => {
                self.extend(tenure.member());
                HeartbeatReply::Recorded
            }
            Standing::Unknown => HeartbeatReply::Unknown,
            Standing::Offline | Standing::Ended => HeartbeatReply::Offline,
        })
    }
}
