//! The second guard of leadership, which a node holds only while it may have a child.

use std::fmt;

use async_trait::async_trait;

/// Keeps other nodes from becoming primary, in addition to the source that makes this node the primary.
#[async_trait]
pub trait LeaderGuard: fmt::Debug + Send + Sync {
    /// Completes when the guard is held although this node is not the primary. Polled only while there is no child;
    /// cancel-safe, may be called again.
    async fn idle(&self);

    /// Releases the guard. Called when no process of the child is left and this node is not the primary. The call is
    /// bounded; no child starts before it returns.
    async fn release(&self);
}
