//! Providers of a roster: their tenures are those of members, which the calls of the mirror begin and extend.

use std::time::Duration;

use tenure::{ProviderId, TenureId};
use tenure_core::call::{Op, Reply};
use tenure_core::roster::HeartbeatReply;

use super::{Checked, Checker, must};
use crate::step::Step;

impl Checker {
    /// The ttl of a tenure that begins in this step, if the call begins one of this member.
    pub(super) fn ttl_of_new(&self, step: &Step, tenure: &TenureId) -> Option<Duration> {
        match &step.op {
            Op::Join(join) => (join.member == *tenure.member()).then_some(join.ttl),
            Op::EnsureTenures(ask) => {
                let named = ask
                    .providers
                    .iter()
                    .any(|provider| provider.member() == *tenure.member());
                named.then(|| self.shadow.provider_ttl.unwrap_or(ask.stale_after))
            }
            _ => None,
        }
    }

    pub(super) fn provider_replies(&mut self, step: &Step) -> Checked {
        match (&step.op, &step.reply) {
            (Op::PutRosterSettings(ask), Ok(Reply::PutRosterSettings(true))) => {
                self.shadow.provider_ttl = Some(ask.settings.ttl());
                Ok(())
            }
            (Op::Retime(_), Ok(Reply::Retime(_))) => {
                if let Some(ttl) = self.shadow.provider_ttl {
                    self.shadow.current.values_mut().for_each(|current| current.ttl = ttl);
                }
                Ok(())
            }
            (Op::EnsureTenures(ask), Ok(Reply::EnsureTenures(ensured))) => {
                for ensured in ensured {
                    let alive = self.shadow.is_alive(&ensured.tenure, step.resumed_at, step.now);
                    must(alive, "a provider gets a living tenure", || format!("{ensured:?}"))?;
                    if ask.beat {
                        self.renewed(step, &ensured.tenure);
                    }
                }
                Ok(())
            }
            (Op::Heartbeat(ask), Ok(Reply::Heartbeat(heard))) => {
                for (heartbeat, reply) in ask.heartbeats.iter().zip(&heard.replies) {
                    if *reply == HeartbeatReply::Recorded {
                        self.heard(step, &heartbeat.provider)?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn heard(&mut self, step: &Step, provider: &ProviderId) -> Checked {
        let current = self
            .shadow
            .current
            .get(&provider.member())
            .map(|current| current.tenure.clone());
        let alive = current.filter(|tenure| self.shadow.is_alive(tenure, step.resumed_at, step.now));
        must(alive.is_some(), "a heartbeat revives no provider", || {
            provider.to_string()
        })?;
        if let Some(tenure) = alive {
            self.renewed(step, &tenure);
        }
        Ok(())
    }
}
