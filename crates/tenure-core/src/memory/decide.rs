//! The decisions of the model for every call. Each implementation is beside the data of its noun.

use super::group::GroupModel;
use crate::call::{Op, Reply, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::event::WaitForEvents;
use crate::lease::WaitForGrants;
use crate::pulse::{BeatPulse, ListDue};
use crate::store::{Call, FindGroups, ListGroups, Now, Probe};
use crate::sweep::{Pass, Settle};
use crate::time::StoreTime;

/// Handles a call on the model: a step implements `step`, a read implements `read`.
pub(crate) trait Decide<R: Request> {
    /// Takes a step. The result depends only on the model and `now`.
    fn step(&mut self, _request: &R, _call: Call, _now: StoreTime) -> Result<R::Reply> {
        Err(unsupported::<R>())
    }

    /// Reads without changes.
    fn read(&self, _request: &R, _now: StoreTime) -> Result<R::Reply> {
        Err(unsupported::<R>())
    }
}

// A store handles these without a model, or with several.
impl Decide<Now> for GroupModel {}
impl Decide<Probe> for GroupModel {}
impl Decide<ListGroups> for GroupModel {}
impl Decide<BeatPulse> for GroupModel {}
impl Decide<ListDue> for GroupModel {}
impl Decide<FindGroups> for GroupModel {}
impl Decide<Settle> for GroupModel {}
impl Decide<Pass> for GroupModel {}
impl Decide<WaitForEvents> for GroupModel {}
impl Decide<WaitForGrants> for GroupModel {}

impl GroupModel {
    /// Takes a step. The result depends only on the model and `now`.
    ///
    /// # Errors
    /// Those of the call; only changes due to time alone remain. `Unsupported` if it is not a step of a group.
    pub fn decide(&mut self, op: &Op, call: Call, now: StoreTime) -> Result<Reply> {
        op.step(self, call, now)
    }

    /// Reads without changes.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of the listing; `Unsupported` if it is not a read of a group.
    pub fn look_up(&self, op: &Op, now: StoreTime) -> Result<Reply> {
        self.forget_seen();
        op.read(self, now)
    }
}

fn unsupported<R: Request>() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the model of a group does not serve the call {}", R::VERB),
    )
}
