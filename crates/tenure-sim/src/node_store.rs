//! The store as a node sees it: every call is a request over the simulated network.
//!
//! It keeps the contract of every store over a network (see `tenure_core::store::Call`): it estimates the store's time
//! from its replies and adds a not-after to each mutating call except a beat, so that a call that timed out cannot take
//! effect later.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::{Clock, Error, Outcome, Result, StoreOptions};
use tenure_core::call::{Op, Reply, StoreRequest};
use tenure_core::clock::within;
use tenure_core::event::WaitForEvents;
use tenure_core::lease::WaitForGrants;
use tenure_core::remote_clock::RemoteClock;
use tenure_core::store::{Backend, Call, Finding, Health, Now};

use crate::network::Network;

/// The time-out of a call.
const GIVE_UP: Duration = Duration::from_millis(1_000);

/// One process's connection to the store.
pub struct NodeStore {
    node: usize,
    network: Network,
    clock: Arc<dyn Clock>,
    store_clock: RemoteClock,
    /// Broken rule: calls carry no not-after.
    forget_not_after: bool,
}

impl fmt::Debug for NodeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeStore({})", self.node)
    }
}

impl NodeStore {
    /// Creates a connection that is opened on first use.
    #[must_use]
    pub fn new(node: usize, network: Network, clock: Arc<dyn Clock>, forget_not_after: bool) -> Arc<Self> {
        Arc::new(Self {
            node,
            network,
            clock,
            store_clock: RemoteClock::default(),
            forget_not_after,
        })
    }

    /// Makes a call that must not take effect after its time-out.
    async fn punctual(&self, mut ask: StoreRequest) -> Result<Reply> {
        if self.store_clock.age(self.clock.mono()).is_none() {
            // A new connection reads the store's time before its first change.
            self.exchange(StoreRequest {
                group: None,
                op: Op::Now(Now),
                call: Call::default(),
            })
            .await?;
        }
        ask.call = self.store_clock.not_after(self.clock.mono() + GIVE_UP, ask.call);
        if self.forget_not_after {
            ask.call = Call::default();
        }
        self.exchange(ask).await
    }

    async fn exchange(&self, ask: StoreRequest) -> Result<Reply> {
        let lost = |how: &'static str| Error::unavailable(how, Outcome::Unknown);
        let asked = self.clock.mono();
        let answer = self.network.send(self.node, ask)?;
        match within(&*self.clock, GIVE_UP, answer).await {
            Some(Ok((reply, as_of))) => {
                self.store_clock.learn(as_of, asked, self.clock.mono());
                reply
            }
            Some(Err(_)) => {
                self.store_clock.forget();
                Err(lost("the connection was reset"))
            }
            None => Err(lost("the store did not answer in time")),
        }
    }

    async fn wait(&self, ask: StoreRequest, patience: Duration) -> Result<Reply> {
        let answer = self.network.send(self.node, ask)?;
        // A subscriber without news checks again; that is not an error.
        match within(&*self.clock, patience, answer).await {
            Some(Err(_)) => Err(Error::unavailable("the connection was reset", Outcome::Unchanged)),
            Some(Ok((Err(error), _))) => Err(error),
            Some(Ok((Ok(_), _))) | None => Ok(Reply::WaitForEvents(())),
        }
    }

    /// Waits for turns in a queue. A reply that is lost is an error, so that the caller asks for all its places again.
    async fn turns(&self, ask: StoreRequest, patience: Duration) -> Result<Reply> {
        let answer = self.network.send(self.node, ask)?;
        match within(&*self.clock, patience + GIVE_UP, answer).await {
            Some(Ok((reply, _))) => reply,
            Some(Err(_)) => Err(Error::unavailable("the connection was reset", Outcome::Unchanged)),
            None => Err(Error::unavailable(
                "the store did not answer in time",
                Outcome::Unchanged,
            )),
        }
    }
}

#[async_trait]
impl Backend for NodeStore {
    async fn call(&self, ask: StoreRequest) -> Result<Reply> {
        match &ask.op {
            Op::WaitForEvents(WaitForEvents { patience, .. }) => {
                let patience = *patience;
                self.wait(ask, patience).await
            }
            Op::WaitForGrants(WaitForGrants { patience, .. }) => {
                let patience = *patience;
                self.turns(ask, patience).await
            }
            // The simulation has one group, which is never forgotten or lost, and its sweepers read often.
            Op::ForgetGroup(_) => Ok(Reply::ForgetGroup(false)),
            Op::FindGroups(_) => Ok(Reply::FindGroups(false)),
            Op::Beat(_) | Op::Heartbeat(_) | Op::Tick(_) => self.exchange(ask).await,
            op if op.is_read() => self.exchange(ask).await,
            _ => self.punctual(ask).await,
        }
    }
    fn max_ttl(&self) -> Duration {
        StoreOptions::default().max_ttl
    }
    fn place(&self) -> String {
        format!("sim:{}", self.node)
    }
    fn health(&self) -> Health {
        Health::Up
    }
    async fn examine(&self) -> Vec<Finding> {
        Vec::new()
    }
    async fn close(&self) {}
}
