//! What a node holds only for as long as it may have a child.

use std::fmt;

use async_trait::async_trait;

/// Something that keeps others from being the primary, beside what makes this node the primary: a second guard.
#[async_trait]
pub trait Seat: fmt::Debug + Send + Sync {
    /// Completes when it is held for nothing: this node is not the primary, whatever the seat has to say to that. Asked
    /// only while there is no child; may be dropped and called again.
    async fn idle(&self);

    /// Gives it up: nothing of the child is left, and this node is not the primary. Bounded by itself; until it is done
    /// no child starts here.
    async fn vacate(&self);
}
