//! Rules broken on purpose, to see that the checkers notice. Nothing here is on unless a run asks for it by name.
//!
//! Each stands for a bug that systems of this kind have had. They live in the seams of the world (the store's machine,
//! the clock, the connection); no library code knows of them.

use std::time::Duration;

use tenure::{EndReason, Result, TenureId};
use tenure_core::membership::{BeatReply, EndBy, Revision};
use tenure_core::store::Call;

use crate::server::{Server, at_once};
use crate::wire::{Op, Reply};

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
    pub(crate) fn bend_request(self, op: &mut Op) {
        match (self, op) {
            (Self::ForgetRevisions, Op::Beat { beats }) => {
                beats.iter_mut().for_each(|beat| beat.revision = Revision::NONE);
            }
            (Self::ForgetNotAfter, op) => {
                if let Some(call) = op.call_mut() {
                    call.not_after = None;
                }
            }
            _ => {}
        }
    }

    /// Bends what the store answered, and does in it what a store with this bug would have done.
    pub(crate) fn bend(self, server: &mut Server, op: &Op, reply: Result<Reply>) -> Result<Reply> {
        match (self, op, reply) {
            (Self::ReviveOnLateBeat, Op::Beat { .. }, Ok(Reply::Beaten(mut beaten))) => {
                for reply in &mut beaten.replies {
                    if *reply == BeatReply::Ended(EndReason::Lapsed) {
                        *reply = BeatReply::Renewed {
                            expires_in: Duration::from_secs(1),
                            revision: Revision::NONE,
                        };
                    }
                }
                Ok(Reply::Beaten(beaten))
            }
            (Self::ReleaseAnyones, Op::ReleaseClaim { registry, key, .. }, Err(error))
                if error.kind() == tenure::ErrorKind::NotOwner =>
            {
                let look = Op::ClaimOf {
                    registry: registry.clone(),
                    key: key.clone(),
                };
                let Ok(Reply::Claim(Some(claim))) = at_once(server.apply(&look)) else {
                    return Ok(Reply::Done);
                };
                server.also(Op::ReleaseClaim {
                    registry: registry.clone(),
                    key: key.clone(),
                    tenure: claim.tenure,
                    call: Call::default(),
                })
            }
            (Self::GhostReads, Op::ClaimOf { .. }, Ok(Reply::Claim(Some(mut claim)))) => {
                claim.alive = true;
                Ok(Reply::Claim(Some(claim)))
            }
            (Self::ForgetRevisions, Op::Beat { beats }, Ok(Reply::Beaten(mut beaten))) => {
                for (reply, beat) in beaten.replies.iter_mut().zip(beats) {
                    if let BeatReply::Renewed { revision, .. } = reply {
                        *revision = beat.revision;
                    }
                }
                Ok(Reply::Beaten(beaten))
            }
            (_, _, reply) => reply,
        }
    }

    /// What it does before a join: a tenure that is about to be superseded leaves, and with it go its leases.
    pub(crate) fn before_join(self, server: &mut Server, current: Option<TenureId>, call: Call) {
        let late = call.not_after.is_some_and(|limit| server.clock.time() > limit);
        if let (Self::SupersededFreesAtOnce, Some(tenure), false) = (self, current, late) {
            drop(server.also(Op::End {
                tenure,
                by: EndBy::Leave,
                call: Call::default(),
            }));
        }
    }
}
