//! Middleware: a store that wraps another and handles all of its calls in one place.
//!
//! A type that delays calls, counts them, or drops their replies implements [`Middleware`], which makes it a [`Store`].
//! It receives each call as a [`StoreRequest`] and may forward it to the inner store or another one, once, twice, later
//! or never.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Backend, Finding, Health, Store};
use crate::call::{Op, Reply, StoreRequest};
use crate::error::{Error, Result};
use crate::id::Group;

/// A store that wraps another.
pub trait Middleware: Send + Sync + 'static {
    /// The inner store.
    fn store(&self) -> Arc<dyn Store>;

    /// Handles a call. Most middleware calls `self.store().call(request).await` and acts before or after it.
    ///
    /// # Errors
    /// Those of the call and of the middleware.
    fn handle(&self, request: StoreRequest) -> impl Future<Output = Result<Reply>> + Send;

    /// [`Backend::place`]; by default that of the inner store.
    fn place(&self) -> String {
        self.store().place()
    }

    /// [`Backend::health`]; by default that of the inner store.
    fn health(&self) -> Health {
        self.store().health()
    }

    /// [`Backend::answers_within`]; by default `None`, because the middleware may add time.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// [`Backend::node_of`]; by default that of the inner store.
    fn node_of(&self, group: &Group) -> Option<String> {
        self.store().node_of(group)
    }

    /// [`Backend::identity`]; by default that of the inner store.
    fn identity(&self) -> impl Future<Output = Result<Option<String>>> + Send {
        async { self.store().identity().await }
    }

    /// [`Backend::examine`]; by default that of the inner store.
    fn examine(&self) -> impl Future<Output = Vec<Finding>> + Send {
        async { self.store().examine().await }
    }

    /// [`Backend::close`]; by default closes the inner store.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async { self.store().close().await }
    }
}

#[async_trait]
impl<W: Middleware> Backend for W {
    async fn call(&self, request: StoreRequest) -> Result<Reply> {
        self.handle(request).await
    }
    fn max_ttl(&self) -> Duration {
        self.store().max_ttl()
    }
    fn part(&self, op: &Op) -> usize {
        self.store().part(op)
    }
    fn is_remote(&self) -> bool {
        self.store().is_remote()
    }
    fn place(&self) -> String {
        Middleware::place(self)
    }
    fn health(&self) -> Health {
        Middleware::health(self)
    }
    fn answers_within(&self) -> Option<Duration> {
        Middleware::answers_within(self)
    }
    fn node_of(&self, group: &Group) -> Option<String> {
        Middleware::node_of(self, group)
    }
    async fn identity(&self) -> Result<Option<String>> {
        Middleware::identity(self).await
    }
    async fn until_broken(&self) -> Error {
        self.store().until_broken().await
    }
    async fn examine(&self) -> Vec<Finding> {
        Middleware::examine(self).await
    }
    async fn close(&self) {
        Middleware::close(self).await;
    }
}

#[cfg(test)]
mod tests;
