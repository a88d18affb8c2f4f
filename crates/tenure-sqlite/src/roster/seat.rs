//! Getting tenures for providers.

use std::time::Duration;

use tenure_core::membership::Labels;
use tenure_core::roster::Seated;
use tenure_core::{MemberId, ProviderId, TenureId};

use crate::error::Cause;
use crate::step::{Answer, Step};

impl Step<'_> {
    /// Gives tenures to those of a part who have none.
    pub(super) fn seat(&mut self, providers: &[ProviderId], stale_after: Duration, beat: bool) -> Answer<Vec<Seated>> {
        let settings = self.meta.roster.settings;
        let ttl = settings.map_or(stale_after, |settings| settings.ttl());
        let seated = providers
            .iter()
            .map(|provider| self.seat_one(&provider.member(), ttl, beat))
            .collect::<Result<_, Cause>>()?;
        self.engage_brake()?;
        Ok(Ok(seated))
    }

    fn seat_one(&mut self, member: &MemberId, ttl: Duration, beat: bool) -> Result<Seated, Cause> {
        let before = self.live.lock().head(member);
        let alone = self.is_alone(before);
        if let Some(entry) = before {
            let tenure = TenureId::new(member.clone(), entry.term);
            if !self.end_if_past(&tenure)? {
                if beat {
                    self.extend(member);
                }
                return Ok(Seated { tenure, new: false });
            }
        }
        Ok(Seated {
            tenure: self.begin_tenure(member, ttl, &Labels::default(), alone)?,
            new: true,
        })
    }

    /// Moves the deadline of a living member. Another beat may have come since this step was opened; the later one
    /// counts.
    pub(super) fn extend(&self, member: &MemberId) {
        if let Some(entry) = self.live.lock().head_mut(member) {
            entry.deadline = entry.deadline.max(self.now + entry.ttl);
        }
    }
}
