//! A store around another: what it does to a call, it does to all of them.
//!
//! A store that runs its calls elsewhere, counts them, or loses their replies implements [`Around`] and is a
//! [`Store`] by that. A call comes to it as an [`Ask`], which it may make on the store inside, on another, twice, later, or
//! not at all.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Backend, Finding, Health, Store};
use crate::call::{Ask, Op, Reply};
use crate::error::{Error, Result};
use crate::id::Group;

/// A store around another.
pub trait Around: Send + Sync + 'static {
    /// The store inside.
    fn store(&self) -> Arc<dyn Store>;

    /// What becomes of a call: most answer `self.store().call(ask).await`, and do something before it or after.
    ///
    /// # Errors
    /// Those of the call, and what goes wrong around it.
    fn around(&self, ask: Ask) -> impl Future<Output = Result<Reply>> + Send;

    /// As [`Backend::place`]: that of the store inside, unless said otherwise.
    fn place(&self) -> String {
        self.store().place()
    }

    /// As [`Backend::health`]: that of the store inside, unless said otherwise.
    fn health(&self) -> Health {
        self.store().health()
    }

    /// As [`Backend::answers_within`]: not known, unless said otherwise, since what is done around a call may take longer.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// As [`Backend::node_of`]: that of the store inside, unless said otherwise.
    fn node_of(&self, group: &Group) -> Option<String> {
        self.store().node_of(group)
    }

    /// As [`Backend::examine`]: by the store inside, unless said otherwise.
    fn examine(&self) -> impl Future<Output = Vec<Finding>> + Send {
        async { self.store().examine().await }
    }

    /// As [`Backend::close`]: closes the store inside, unless said otherwise.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async { self.store().close().await }
    }
}

#[async_trait]
impl<W: Around> Backend for W {
    async fn call(&self, ask: Ask) -> Result<Reply> {
        self.around(ask).await
    }
    fn max_ttl(&self) -> Duration {
        self.store().max_ttl()
    }
    fn part(&self, op: &Op) -> usize {
        self.store().part(op)
    }
    fn is_elsewhere(&self) -> bool {
        self.store().is_elsewhere()
    }
    fn place(&self) -> String {
        Around::place(self)
    }
    fn health(&self) -> Health {
        Around::health(self)
    }
    fn answers_within(&self) -> Option<Duration> {
        Around::answers_within(self)
    }
    fn node_of(&self, group: &Group) -> Option<String> {
        Around::node_of(self, group)
    }
    async fn until_broken(&self) -> Error {
        self.store().until_broken().await
    }
    async fn examine(&self) -> Vec<Finding> {
        Around::examine(self).await
    }
    async fn close(&self) {
        Around::close(self).await;
    }
}

#[cfg(test)]
mod tests;
