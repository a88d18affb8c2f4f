//! Rules broken on purpose, to test that the checkers detect each. A rule is broken only in a run that names it.
//!
//! Each stands for a bug of real systems of this kind. The changes are made in the seams of the simulation (the store's
//! machine, the clock, the connection); the library code is unchanged.

mod session;

use std::time::Duration;

use tenure::{EndReason, LeaseName, Result, TenureId};
use tenure_core::call::{Op, Reply, StoreRequest};
use tenure_core::lease::{LeaseOf, ReleaseLeases, ReleaseOutcome};
use tenure_core::membership::{BeatReply, End, EndBy, Revision};
use tenure_core::pulse::BeatPulse;
use tenure_core::registry::{ClaimOf, ReleaseClaim};
use tenure_core::settling::MAX_GAP;
use tenure_core::store::Call;

use crate::server::{Server, poll_once};
use crate::time::At;
use crate::wire::Request;

/// A rule that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BrokenRule {
    /// The store extends a tenure that has lapsed when a late beat comes (redbeat's renew without an ownership check).
    ReviveOnLateBeat,
    /// After an outage the store does not restart the ttls.
    NoGrace,
    /// A client's trust time stops while its machine is suspended (`CLOCK_MONOTONIC`).
    ForgetSuspend,
    /// A release deletes the claim of any owner.
    ReleaseAnyones,
    /// A store that restarts from an older copy sets its clock back to it, so that numbers are assigned twice.
    TurnBackClock,
    /// A command takes effect after its caller has timed out.
    ForgetNotAfter,
    /// A look-up reports every owner as alive.
    GhostReads,
    /// The leases of a superseded tenure are free immediately, although its process may still run.
    SupersededFreesAtOnce,
    /// A release by a tenure that no longer holds a lease frees the place of another holder.
    ReleaseFreesAnother,
    /// A late withdrawal, by a daemon that a client has left, takes the lease from a later request of the same tenure.
    WithdrawComparesNothing,
    /// The reaper does not look whether a session has connections.
    ReapConnected,
    /// The reaper does not look whether the grace of a session is over.
    ReapEarly,
    /// A detach does not carry the epoch of its attach.
    DetachWithoutEpoch,
    /// The ledger takes a provider offline without a look at the tenure that ended.
    AutoOfflineAnyTenure,
    /// The ledger reserves a provider without a look at its capacity.
    ReserveAboveCapacity,
    /// Beats do not carry the revision, so that a grant lost with a tail is not detected.
    ForgetRevisions,
    /// The sweeps beat the pulse, so that their own steps prove that members could beat.
    JanitorProves,
    /// A call that waited in a frozen store brings the evidence of its sender that the store serves.
    CarriedEvidence,
    /// The pulse is not rolled back with the data.
    PulseElsewhere,
    /// A hole is dated by the step that finds it.
    DatedByVisit,
}

impl BrokenRule {
    /// All rules.
    pub const ALL: [Self; 20] = [
        Self::ReviveOnLateBeat,
        Self::NoGrace,
        Self::ForgetSuspend,
        Self::ReleaseAnyones,
        Self::TurnBackClock,
        Self::ForgetNotAfter,
        Self::GhostReads,
        Self::SupersededFreesAtOnce,
        Self::ReleaseFreesAnother,
        Self::WithdrawComparesNothing,
        Self::ReapConnected,
        Self::ReapEarly,
        Self::DetachWithoutEpoch,
        Self::AutoOfflineAnyTenure,
        Self::ReserveAboveCapacity,
        Self::ForgetRevisions,
        Self::JanitorProves,
        Self::CarriedEvidence,
        Self::PulseElsewhere,
        Self::DatedByVisit,
    ];

    /// Alters a request to the store.
    pub(crate) fn alter_request(self, ask: &mut StoreRequest) {
        match (self, &mut ask.op) {
            (Self::ForgetRevisions, Op::Beat(ask)) => {
                ask.beats.iter_mut().for_each(|beat| beat.revision = Revision::NONE);
            }
            (Self::DetachWithoutEpoch, Op::Detach(ask)) => {
                ask.detaches.iter_mut().for_each(|detach| detach.epoch = None);
            }
            (Self::ForgetNotAfter, _) => ask.call.not_after = None,
            _ => {}
        }
    }

    /// Alters the store's reply, and changes the store as one with this bug would.
    pub(crate) fn alter_reply(self, server: &mut Server, op: &Op, reply: Result<Reply>) -> Result<Reply> {
        match (self, op, reply) {
            (Self::ReviveOnLateBeat, Op::Beat(_), Ok(Reply::Beat(mut beaten))) => {
                for reply in &mut beaten.replies {
                    if *reply == BeatReply::Ended(EndReason::Lapsed) {
                        *reply = BeatReply::Renewed {
                            expires_in: Duration::from_secs(1),
                            revision: Revision::NONE,
                        };
                    }
                }
                Ok(Reply::Beat(beaten))
            }
            (Self::ReleaseAnyones, Op::ReleaseClaim(ReleaseClaim { registry, key, .. }), Err(error))
                if error.kind() == tenure::ErrorKind::NotOwner =>
            {
                let (registry, key) = (registry.clone(), key.clone());
                let look = server.ask(Op::ClaimOf(ClaimOf {
                    registry: registry.clone(),
                    key: key.clone(),
                }));
                let Ok(Reply::ClaimOf(Some(claim))) = poll_once(server.apply(&look)) else {
                    return Ok(Reply::ReleaseClaim(()));
                };
                let tenure = claim.tenure;
                server.also(Op::ReleaseClaim(ReleaseClaim { registry, key, tenure }))
            }
            (Self::ReleaseFreesAnother, Op::ReleaseLeases(ask), Ok(Reply::ReleaseLeases(mut released))) => {
                for ((lease, _), outcome) in ask.leases.iter().zip(&mut released.outcomes) {
                    if let ReleaseOutcome::NotHolder { by } = outcome {
                        take_lease(server, by, lease);
                        *outcome = ReleaseOutcome::Released;
                    }
                }
                Ok(Reply::ReleaseLeases(released))
            }
            (Self::WithdrawComparesNothing, Op::Withdraw(ask), Ok(reply)) => {
                let key = (ask.tenure.clone(), ask.lease.clone());
                server.withdrawn.insert(key, false);
                Ok(reply)
            }
            (Self::WithdrawComparesNothing, Op::Acquire(ask), Ok(Reply::Acquire(acquired))) => {
                let granted = ask.leases.iter().zip(&acquired.outcomes);
                for (lease, _) in granted.filter(|(_, outcome)| outcome.token().is_some()) {
                    let is_late = server.withdrawn.get_mut(&(ask.tenure.clone(), lease.clone()));
                    is_late.into_iter().for_each(|is_late| *is_late = true);
                }
                Ok(Reply::Acquire(acquired))
            }
            (Self::ReapConnected | Self::ReapEarly, Op::Reap(_), Ok(reply)) => {
                self.reap_one_more(server);
                Ok(reply)
            }
            (Self::GhostReads, Op::ClaimOf(_), Ok(Reply::ClaimOf(Some(mut claim)))) => {
                claim.alive = true;
                Ok(Reply::ClaimOf(Some(claim)))
            }
            (Self::ForgetRevisions, Op::Beat(ask), Ok(Reply::Beat(mut beaten))) => {
                for (reply, beat) in beaten.replies.iter_mut().zip(&ask.beats) {
                    if let BeatReply::Renewed { revision, .. } = reply {
                        *revision = beat.revision;
                    }
                }
                Ok(Reply::Beat(beaten))
            }
            (_, _, reply) => reply,
        }
    }

    /// Before any other change, repeats the withdrawals of earlier requests of tenures that have a lease now.
    pub(crate) fn before_change(self, server: &mut Server, op: &Op, call: Call) {
        let late = call.not_after.is_some_and(|limit| server.clock.time() > limit);
        if self == Self::WithdrawComparesNothing && !late && !op.is_read() && !matches!(op, Op::Release(_)) {
            let late: Vec<_> = server.withdrawn.extract_if(.., |_, is_late| *is_late).collect();
            for ((tenure, lease), _) in late {
                take_lease(server, &tenure, &lease);
            }
        }
    }

    /// Before a request, beats the pulse as no rule allows.
    pub(crate) fn before_look(self, server: &mut Server, request: &Request, at: At) {
        let is_sweep = matches!(request.ask.op, Op::Tick(_) | Op::EndLapsed(_) | Op::Release(_));
        let has_waited = !request.ask.op.is_read() && at.since(request.sent_at) > MAX_GAP;
        match self {
            Self::NoGrace => server.hide_outage(),
            Self::CarriedEvidence if has_waited => server.hide_outage(),
            Self::JanitorProves if is_sweep => drop(server.also(Op::BeatPulse(BeatPulse::default()))),
            Self::DatedByVisit if is_sweep && std::mem::take(&mut server.has_hole) => {
                let failed = vec![server.group().clone()];
                drop(server.also(Op::BeatPulse(BeatPulse { failed })));
            }
            _ => {}
        }
    }

    /// Before a join, lets the tenure that is about to be superseded leave, which releases its leases.
    pub(crate) fn before_join(self, server: &mut Server, current: Option<TenureId>, call: Call) {
        let late = call.not_after.is_some_and(|limit| server.clock.time() > limit);
        if let (Self::SupersededFreesAtOnce, Some(tenure), false) = (self, current, late) {
            let by = EndBy::Leave;
            drop(server.also(Op::End(End { tenure, by, text: None })));
        }
    }
}

/// Releases whatever this tenure holds of a lease.
fn take_lease(server: &mut Server, tenure: &TenureId, lease: &LeaseName) {
    let look = server.ask(Op::LeaseOf(LeaseOf { lease: lease.clone() }));
    let Ok(Reply::LeaseOf(Some(found))) = poll_once(server.apply(&look)) else {
        return;
    };
    if let Some(held) = found.holders.iter().find(|one| one.tenure == *tenure) {
        let leases = vec![(lease.clone(), held.token)];
        let (tenure, to) = (tenure.clone(), None);
        drop(server.also(Op::ReleaseLeases(ReleaseLeases {
            tenure,
            leases,
            to,
            seen: Revision::NONE,
        })));
    }
}
