//! What every call decides on the model of a group. Each implementation stands beside the data of its noun.

use super::group::GroupModel;
use crate::call::{Op, Reply, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::event::WaitForEvents;
use crate::store::{Call, FindGroups, ListGroups, NewestEvents, Now, Probe};
use crate::sweep::{Pass, Settle};
use crate::time::StoreTime;

/// How the model answers a call: a step implements `step`, a read implements `read`.
pub(crate) trait Decide<R: Request> {
    /// Takes a step: nothing but the model and `now` decides.
    fn step(&mut self, _request: &R, _call: Call, _now: StoreTime) -> Result<R::Reply> {
        Err(unsupported::<R>())
    }

    /// Looks, and changes nothing.
    fn read(&self, _request: &R, _now: StoreTime) -> Result<R::Reply> {
        Err(unsupported::<R>())
    }
}

// A store answers these without a model, or with several.
impl Decide<Now> for GroupModel {}
impl Decide<Probe> for GroupModel {}
impl Decide<ListGroups> for GroupModel {}
impl Decide<NewestEvents> for GroupModel {}
impl Decide<FindGroups> for GroupModel {}
impl Decide<Settle> for GroupModel {}
impl Decide<Pass> for GroupModel {}
impl Decide<WaitForEvents> for GroupModel {}

impl GroupModel {
    /// Takes a step: nothing but the model and `now` decides.
    ///
    /// # Errors
    /// Those of the call; then it changed nothing but what time alone had decided. `Unsupported` for what is no step of a
    /// group.
    pub fn decide(&mut self, op: &Op, call: Call, now: StoreTime) -> Result<Reply> {
        op.step(self, call, now)
    }

    /// Looks, and changes nothing.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of the listing; `Unsupported` for what is no read of a group.
    pub fn look_up(&self, op: &Op, now: StoreTime) -> Result<Reply> {
        self.forget_seen();
        op.read(self, now)
    }
}

fn unsupported<R: Request>() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the model of a group does not answer the call {}", R::VERB),
    )
}
