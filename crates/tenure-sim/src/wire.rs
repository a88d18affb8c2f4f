//! The messages between a node and the store: one request, one reply.

use tenure::{Result, StoreTime};
use tenure_core::call::{Reply, StoreRequest};
use tokio::sync::oneshot;

use crate::time::At;

/// A reply with the store's time, the anchor of later not-after times.
pub type TimedReply = (Result<Reply>, StoreTime);

/// A request in transit.
#[derive(Debug)]
pub struct Request {
    /// Its number.
    pub number: u64,
    /// The node that sent it.
    pub node: usize,
    /// When it was sent.
    pub sent_at: At,
    /// The call. It may take effect long after its caller has timed out.
    pub ask: StoreRequest,
    /// Where its reply goes; the receiver may be gone.
    pub answer: oneshot::Sender<TimedReply>,
    /// Its reply will be lost.
    pub reply_is_lost: bool,
}
