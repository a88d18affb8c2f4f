//! Rules broken on purpose, to see that the checkers notice. Nothing here is on unless a run asks for it by name.
//!
//! Each stands for a bug that systems of this kind have had. They live in the seams of the world (the store's machine,
//! the clock, the connection); no library code knows of them.

use std::time::Duration;

use tenure::{EndReason, Result, TenureId};
use tenure_core::call::{Ask, Op, Reply};
use tenure_core::membership::{BeatReply, End, EndBy, Revision};
use tenure_core::registry::{ClaimOf, ReleaseClaim};
use tenure_core::store::Call;

use crate::server::{Server, at_once};

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// The store extends a tenure that has lapsed when a late beat comes (redbeat's renew without an ownership check).
    ReviveOnLateBeat,
    /// The store forgets that it did not serve: nobody gets the full ttl after an outage.
    NoGrace,
    /// A client's trust time stands still while its machine is suspended (`CLOCK_MONOTONIC`).
    ForgetSuspend,
    /// A release deletes whoever's claim it finds.
    ReleaseAnyones,
    /// A store that restarts from an older copy turns its clock back to it, so that numbers are given out again.
    TurnBackClock,
    /// A command that was given up takes effect whenever it arrives.
    ForgetNotAfter,
    /// A look-up calls every owner alive.
    GhostReads,
    /// What a superseded tenure leased can be had at once, although its process may still run.
    SupersededFreesAtOnce,
    /// Beats say nothing of what is held, so that a grant that was lost with a tail goes unnoticed.
    ForgetRevisions,
}

impl Broken {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::ReviveOnLateBeat,
        Self::NoGrace,
        Self::ForgetSuspend,
        Self::ReleaseAnyones,
        Self::TurnBackClock,
        Self::ForgetNotAfter,
        Self::GhostReads,
        Self::SupersededFreesAtOnce,
        Self::ForgetRevisions,
    ];

    /// Bends what the store is asked.
    pub(crate) fn bend_request(self, ask: &mut Ask) {
        match (self, &mut ask.op) {
            (Self::ForgetRevisions, Op::Beat(ask)) => {
                ask.beats.iter_mut().for_each(|beat| beat.revision = Revision::NONE);
            }
            (Self::ForgetNotAfter, _) => ask.call.not_after = None,
            _ => {}
        }
    }

    /// Bends what the store answered, and does in it what a store with this bug would have done.
    pub(crate) fn bend(self, server: &mut Server, op: &Op, reply: Result<Reply>) -> Result<Reply> {
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
                let Ok(Reply::ClaimOf(Some(claim))) = at_once(server.apply(&look)) else {
                    return Ok(Reply::ReleaseClaim(()));
                };
                let tenure = claim.tenure;
                server.also(Op::ReleaseClaim(ReleaseClaim { registry, key, tenure }))
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

    /// What it does before a join: a tenure that is about to be superseded leaves, and with it go its leases.
    pub(crate) fn before_join(self, server: &mut Server, current: Option<TenureId>, call: Call) {
        let late = call.not_after.is_some_and(|limit| server.clock.time() > limit);
        if let (Self::SupersededFreesAtOnce, Some(tenure), false) = (self, current, late) {
            let by = EndBy::Leave;
            drop(server.also(Op::End(End { tenure, by })));
        }
    }
}
