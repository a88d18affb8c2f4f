//! What clients have been told, for calls that mean something.

use crate::call::{Op, Reply};
use crate::id::{LeaseName, TenureId};
use crate::lease::Token;
use crate::membership::Revision;
use crate::session::{AttachOutcome, Detach};
use crate::time::StoreTime;

/// What clients have been told.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) tenures: Vec<TenureId>,
    pub(super) granted: Vec<(TenureId, LeaseName, Token)>,
    pub(super) revisions: Vec<Revision>,
    pub(super) attached: Vec<(TenureId, Detach)>,
    pub(super) pending: Vec<TenureId>,
    pub(super) resumed_at: StoreTime,
    pub(super) passes: u32,
}

impl Known {
    pub(super) fn learn(&mut self, op: &Op, reply: &Reply) {
        match (op, reply) {
            (_, Reply::Join(joined)) => self.tenures.push(joined.tenure.clone()),
            (_, Reply::EnsureTenures(seated)) => {
                let new = seated.iter().filter(|seated| seated.new);
                self.tenures.extend(new.map(|seated| seated.tenure.clone()));
            }
            (Op::Acquire(asked), Reply::Acquire(acquired)) => {
                self.revisions.push(acquired.revision);
                for (lease, outcome) in asked.leases.iter().zip(&acquired.outcomes) {
                    let grant = outcome
                        .token()
                        .map(|token| (asked.tenure.clone(), lease.clone(), token));
                    self.granted.extend(grant);
                }
            }
            (Op::Attach(asked), Reply::Attach(attached)) => {
                for (attach, outcome) in asked.attaches.iter().zip(&attached.outcomes) {
                    if let AttachOutcome::Attached { session, .. } = outcome {
                        let detach = Detach {
                            session: attach.session.clone(),
                            connection: attach.connection.clone(),
                            epoch: Some(session.epoch),
                        };
                        self.attached.push((asked.tenure.clone(), detach));
                    }
                }
            }
            (_, Reply::PendingOffline(pending)) => {
                self.pending = pending.items.iter().map(|item| item.tenure.clone()).collect();
            }
            (_, Reply::MirrorStatus(stamp)) => self.resumed_at = stamp.resumed_at,
            _ => {}
        }
    }
}
