//! The store as a node has it: every call is a request over the world's network.
//!
//! It keeps the promise that every store over a network has to keep (see `tenure_core::store::Call`): it estimates the
//! store's time from its answers and adds a not-after to each mutating call but a beat, so that a call it has given up
//! cannot take effect later.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::{Clock, Error, Outcome, Result, StoreOptions};
use tenure_core::call::{Ask, Op, Reply};
use tenure_core::clock::within;
use tenure_core::event::WaitForEvents;
use tenure_core::remote_clock::RemoteClock;
use tenure_core::store::{Backend, Call, Finding, Health, Now};

use crate::network::Network;

/// After this long a call counts as unanswered.
const GIVE_UP: Duration = Duration::from_millis(1_000);

/// One process's connection to the store.
pub struct NodeStore {
    node: usize,
    network: Network,
    clock: Arc<dyn Clock>,
    store_clock: RemoteClock,
    /// Break on purpose: calls carry no not-after at all.
    forget_not_after: bool,
}

impl fmt::Debug for NodeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeStore({})", self.node)
    }
}

impl NodeStore {
    /// A connection that is made when it is first used.
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

    /// A call that must not take effect after its caller has given up.
    async fn punctual(&self, mut ask: Ask) -> Result<Reply> {
        if self.store_clock.age(self.clock.mono()).is_none() {
            // A new connection asks for the time before it asks for a change.
            self.exchange(Ask {
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

    async fn exchange(&self, ask: Ask) -> Result<Reply> {
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

    async fn wait(&self, ask: Ask, patience: Duration) -> Result<Reply> {
        let answer = self.network.send(self.node, ask)?;
        // A subscriber that hears nothing looks again; that is not an error.
        match within(&*self.clock, patience, answer).await {
            Some(Err(_)) => Err(Error::unavailable("the connection was reset", Outcome::Unchanged)),
            Some(Ok((Err(error), _))) => Err(error),
            Some(Ok((Ok(_), _))) | None => Ok(Reply::WaitForEvents(())),
        }
    }
}

#[async_trait]
impl Backend for NodeStore {
    async fn call(&self, ask: Ask) -> Result<Reply> {
        match &ask.op {
            Op::WaitForEvents(WaitForEvents { patience, .. }) => {
                let patience = *patience;
                self.wait(ask, patience).await
            }
            // The one group of this world is not forgotten and not lost, and all who look at it look often.
            Op::ForgetGroup(_) => Ok(Reply::ForgetGroup(false)),
            Op::FindGroups(_) => Ok(Reply::FindGroups(false)),
            Op::NewestEvents(_) => Ok(Reply::NewestEvents(Vec::new())),
            Op::Beat(_) | Op::Tick(_) => self.exchange(ask).await,
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
