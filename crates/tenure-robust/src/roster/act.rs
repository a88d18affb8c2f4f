//! Who does something in a roster.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{Act, PROVIDERS, Reply, RosterApi, STALE, provider};
use crate::member::Stage;
use crate::random::Random;

/// A provider, which sends heartbeats while it is online.
#[derive(Debug)]
pub struct Provider {
    /// Its name.
    pub name: String,
    /// How it calls.
    pub api: RosterApi,
    /// Whether it still acts.
    pub stage: Arc<Stage>,
    /// What it does next.
    pub random: Random,
}

impl Provider {
    /// Works until the stage is over.
    pub async fn run(mut self) {
        let mut is_online = false;
        while !self.stage.is_over() {
            let act = match (is_online, self.stage.acts(), self.random.below(30)) {
                (false, ..) => Act::Online,
                (true, true, 0) => Act::Offline,
                (true, true, 1) => {
                    self.freeze().await;
                    Act::Heartbeat
                }
                _ => Act::Heartbeat,
            };
            let deed = self.api.call(act, &self.name).await;
            match (act, &deed.reply) {
                (Act::Online, Reply::Done(_)) => is_online = true,
                (Act::Offline, Reply::Done(_) | Reply::Unknown) => is_online = false,
                (Act::Heartbeat, Reply::Refused(code)) if code != "not sent" && code != "store_unavailable" => {
                    is_online = false;
                }
                _ => {}
            }
            sleep(STALE / 8).await;
        }
    }

    async fn freeze(&mut self) {
        let stale = u64::try_from(STALE.as_millis()).unwrap_or(1_000);
        sleep(Duration::from_millis(self.random.between(stale / 2, 2 * stale))).await;
    }
}

/// A dispatcher, which gives work to providers and takes it back.
#[derive(Debug)]
pub struct Dispatcher {
    /// Its number.
    pub number: usize,
    /// How it calls.
    pub api: RosterApi,
    /// Whether it still acts.
    pub stage: Arc<Stage>,
    /// What it does next.
    pub random: Random,
}

impl Dispatcher {
    /// Works until the stage is over.
    pub async fn run(mut self) {
        let (mut open, mut count) = (Vec::new(), 0);
        while !self.stage.is_over() {
            if self.stage.acts() {
                if open.len() < 6 && self.random.below(5) < 3 {
                    count += 1;
                    let name = format!("e{}-{count}", self.number);
                    let mut deed = self.api.call(Act::Reserve, &name).await;
                    if deed.reply == Reply::Unknown && self.random.below(2) == 0 {
                        // The name makes it the same engagement.
                        deed = self.api.call(Act::Reserve, &name).await;
                    }
                    if !matches!(deed.reply, Reply::Refused(_)) {
                        open.push(name);
                    }
                } else if !open.is_empty() {
                    let at = usize::try_from(self.random.below(open.len() as u64)).unwrap_or(0);
                    let deed = self.api.call(Act::End, &open[at]).await;
                    if deed.done().is_some() {
                        open.swap_remove(at);
                    }
                }
            }
            sleep(Duration::from_millis(self.random.between(10, 100))).await;
        }
    }
}

/// An operator, who shuts providers out and lets them in again.
#[derive(Debug)]
pub struct Operator {
    /// How it calls.
    pub api: RosterApi,
    /// Whether it still acts.
    pub stage: Arc<Stage>,
    /// What it does next.
    pub random: Random,
}

impl Operator {
    /// Works until the stage is over; in the end every provider may work.
    pub async fn run(mut self) {
        while self.stage.acts() {
            let name = provider(usize::try_from(self.random.below(PROVIDERS as u64)).unwrap_or(0));
            for act in [Act::Deactivate, Act::Activate] {
                while matches!(
                    self.api.call(act, &name).await.reply,
                    Reply::Unknown | Reply::Refused(_)
                ) {
                    if self.stage.is_over() {
                        return;
                    }
                    sleep(Duration::from_millis(100)).await;
                }
                sleep(Duration::from_millis(self.random.between(200, 1_500))).await;
            }
        }
    }
}
