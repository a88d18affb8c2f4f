//! What travels between a node and the store: one request, one answer.

use tenure::{Result, StoreTime};
use tenure_core::call::{Ask, Reply};
use tokio::sync::oneshot;

use crate::time::At;

/// An answer with the store's time of it: the anchor of later not-after times.
pub type Answer = (Result<Reply>, StoreTime);

/// A request under way.
#[derive(Debug)]
pub struct Request {
    /// Its number in the world.
    pub number: u64,
    /// The node that sent it.
    pub node: usize,
    /// When it was sent.
    pub sent_at: At,
    /// What it asks. It can take effect long after its caller has gone.
    pub ask: Ask,
    /// Where its answer goes; nobody may listen any more.
    pub answer: oneshot::Sender<Answer>,
    /// Its answer will not get through.
    pub reply_is_lost: bool,
}
