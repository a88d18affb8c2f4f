//! An operator, who releases leases in place of their holders.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Stage;
use crate::client::Api;
use crate::history::{Outcome, Recorder, Verb};
use crate::random::Random;

/// An operator.
#[derive(Debug)]
pub struct Operator {
    api: Api,
    stage: Arc<Stage>,
    random: Random,
}

impl Operator {
    /// An operator at the daemon with this address.
    #[must_use]
    pub fn new(number: usize, addr: SocketAddr, recorder: &Recorder, stage: &Arc<Stage>, seed: u64) -> Self {
        Self {
            api: Api::new(number, addr, recorder),
            stage: Arc::clone(stage),
            random: Random::new(seed, 300 + number as u64),
        }
    }

    /// Looks at leases until the stage is over, and releases some.
    pub async fn run(mut self) {
        while !self.stage.is_over() {
            if self.stage.acts() {
                self.act().await;
            }
            sleep(Duration::from_millis(self.random.between(100, 500))).await;
        }
    }

    async fn act(&mut self) {
        let lease = self.stage.lease(&mut self.random);
        let Outcome::Reads(holders) = self.api.call("", Verb::ReadLease(lease.clone())).await else {
            return;
        };
        let alive: Vec<_> = holders.iter().filter(|holder| holder.is_alive).collect();
        if let (Some(holder), 0) = (alive.first(), self.random.below(3)) {
            self.api.call(&holder.tenure, Verb::Revoke(lease, holder.token)).await;
        }
    }
}
