//! Every call about a group, as the model decides it.

use super::group::GroupModel;
use crate::call::{Op, Reply};
use crate::error::{Error, ErrorKind, Result};
use crate::lease::HeldLeases;
use crate::membership::Beaten;
use crate::store::Call;
use crate::time::StoreTime;

impl GroupModel {
    /// Takes a step: nothing but the model and `now` decides.
    ///
    /// # Errors
    /// Those of the call; then it changed nothing but what time alone had decided. `Unsupported` for what is no step of a
    /// group.
    pub fn decide(&mut self, op: &Op, call: Call, now: StoreTime) -> Result<Reply> {
        Ok(match op {
            Op::Join(join) => Reply::Join(self.join(join, call, now)?),
            Op::Beat(ask) => Reply::Beat(Beaten {
                replies: self.beat(&ask.beats, now)?,
                as_of: now,
            }),
            Op::End(ask) => Reply::End(self.end(&ask.tenure, ask.by, call, now)?),

            Op::Claim(ask) => Reply::Claim(self.claim(&ask.registry, &ask.tenure, &ask.keys, ask.mode, call, now)?),
            Op::ReleaseClaim(ask) => {
                Reply::ReleaseClaim(self.release_claim(&ask.registry, &ask.key, &ask.tenure, call, now)?)
            }

            Op::Acquire(ask) => Reply::Acquire(self.acquire(&ask.tenure, &ask.leases, call, now)?),
            Op::ReleaseLeases(ask) => {
                Reply::ReleaseLeases(self.release_leases(&ask.tenure, &ask.leases, ask.to.as_ref(), call, now)?)
            }

            Op::PutTarget(ask) => Reply::PutTarget(self.put_target(&ask.target, ask.spec, call, now)?),
            Op::RemoveTarget(ask) => Reply::RemoveTarget(self.remove_target(&ask.target, call, now)?),

            Op::Attach(ask) => Reply::Attach(self.attach(&ask.tenure, &ask.attaches, call, now)?),
            Op::Detach(ask) => Reply::Detach(self.detach(&ask.tenure, &ask.detaches, call, now)?),
            Op::PatchSession(ask) => {
                let patched = self.patch_session(&ask.session, ask.tenure.as_ref(), &ask.data, call, now)?;
                Reply::PatchSession(patched)
            }
            Op::DeleteSession(ask) => Reply::DeleteSession(self.delete_session(&ask.session, call, now)?),

            Op::Tick(_) => Reply::Tick(self.tick(now)?),
            Op::EndLapsed(ask) => Reply::EndLapsed(self.end_lapsed(ask.limit, call, now)?),
            Op::Spare(ask) => Reply::Spare(self.spare(ask.limit, call, now)?),
            Op::Release(ask) => Reply::Release(self.release(&ask.0, call, now)?),
            Op::Reap(ask) => Reply::Reap(self.reap(&ask.0, call, now)?),
            Op::Reconcile(ask) => Reply::Reconcile(self.reconcile(&ask.0, call, now)?),
            Op::ForgetGroup(_) => Reply::ForgetGroup(self.may_be_forgotten(call, now)?),

            Op::PutProviders(ask) => Reply::PutProviders(self.put_providers(&ask.puts, call, now)?),
            Op::Seat(ask) => Reply::Seat(self.seat(&ask.providers, ask.stale_after, ask.beat, call, now)?),
            Op::Heartbeat(ask) => Reply::Heartbeat(self.heartbeat(&ask.heartbeats, now)?),
            Op::PendingOffline(ask) => Reply::PendingOffline(self.pending_offline(ask.limit, ask.force, call, now)?),
            Op::OfflineDone(ask) => Reply::OfflineDone(self.offline_done(&ask.tenures, call, now)?),
            Op::PutRosterSettings(ask) => {
                Reply::PutRosterSettings(self.put_roster_settings(&ask.settings, ask.over, call, now)?)
            }
            Op::Retime(ask) => Reply::Retime(self.retime(ask.limit, call, now)?),
            Op::TakeTurn(ask) => Reply::TakeTurn(self.take_turn(ask, call, now)?),
            Op::EndTurn(ask) => Reply::EndTurn(self.end_turn(ask.task, &ask.holder, ask.done, call, now)?),
            Op::MarkSeeded(ask) => Reply::MarkSeeded(self.mark_seeded(ask.since, call, now)?),
            Op::VerifyRoster(ask) => Reply::VerifyRoster(self.verify_roster(&ask.0, call, now)?),
            other => return Err(unsupported(other)),
        })
    }

    /// Looks, and changes nothing.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of the listing; `Unsupported` for what is no read of a group.
    pub fn look_up(&self, op: &Op, now: StoreTime) -> Result<Reply> {
        Ok(match op {
            Op::Member(ask) => Reply::Member(self.member(&ask.member, now)),
            Op::Members(ask) => Reply::Members(self.members_page(&ask.page, now)?),
            Op::ClaimOf(ask) => Reply::ClaimOf(self.claim_of(&ask.registry, &ask.key, now)),
            Op::Claims(ask) => Reply::Claims(self.claims_page(&ask.registry, ask.owner.as_ref(), &ask.page, now)?),
            Op::LeaseOf(ask) => Reply::LeaseOf(self.lease_of(&ask.lease, now)),
            Op::Leases(ask) => Reply::Leases(self.leases_page(ask.holder.as_ref(), &ask.page, now)?),
            Op::HeldLeases(ask) => Reply::HeldLeases(HeldLeases {
                page: self.held_page(&ask.tenure, &ask.page, now)?,
                revision: self.revision_of(&ask.tenure),
            }),
            Op::Target(ask) => Reply::Target(self.target(&ask.target)),
            Op::Targets(ask) => Reply::Targets(self.targets_page(&ask.page)?),
            Op::Session(ask) => Reply::Session(self.session(&ask.session, now)),
            Op::SessionByAlias(ask) => {
                let session = self.aliases.get(&ask.alias);
                Reply::SessionByAlias(session.and_then(|session| self.session(session, now)))
            }
            Op::Sessions(ask) => Reply::Sessions(self.sessions_page(ask.state, &ask.page, now)?),
            Op::Orphans(ask) => Reply::Orphans(self.orphans(ask.overdue, ask.limit, now)),
            Op::SessionStats(_) => Reply::SessionStats(self.session_stats(now)),
            Op::Events(query) => Reply::Events(self.log.read(query)),
            Op::Status(_) => Reply::Status(self.status(now)),
            Op::Doomed(ask) => Reply::Doomed(self.doomed(ask.limit, now)),
            Op::Available(ask) => Reply::Available(self.available(&ask.page, now)?),
            Op::Look(ask) => Reply::Look(self.look(&ask.providers, now)),
            Op::Rows(ask) => Reply::Rows(self.rows_page(&ask.page, now)?),
            Op::RosterStats(_) => Reply::RosterStats(self.roster_stats(now)),
            Op::Stamp(_) => Reply::Stamp(self.stamp(now)),
            Op::RosterSettings(_) => Reply::RosterSettings(self.roster.settings),
            other => return Err(unsupported(other)),
        })
    }
}

fn unsupported(op: &Op) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the model of a group does not answer the call {}", op.verb()),
    )
}
