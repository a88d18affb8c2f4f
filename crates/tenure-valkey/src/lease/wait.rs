//! Waiting for leases: withdrawals, and turns of waiting requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::id::{Group, LeaseName, NodeId};
use tenure_core::lease::{GRANT_RESERVATION, RequestId, WaitForGrants, WaitingTurn, Withdraw, Withdrawn};
use tenure_core::store::Call;

use super::row::read_token;
use crate::connection::{Connection, Subscription};
use crate::reply::{Malformed, Read, Reader, parse};
use crate::store::ValkeyStore;

/// How many processes one store may subscribe for; more only in tests.
const MAX_NODES: usize = 16;

/// The subscriptions to turns, by process: one in general.
#[derive(Default)]
pub(crate) struct Turns {
    subscriptions: Mutex<HashMap<NodeId, Arc<Subscription>>>,
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Turns {
    /// The subscription of a process. The first call waits until it is established or has failed, so that a turn which
    /// comes after it is not lost.
    pub(crate) async fn of(&self, node: &NodeId, connection: &Connection) -> Arc<Subscription> {
        let (subscription, is_new) = self.get(node, connection);
        if is_new {
            subscription.first_try().await;
        }
        subscription
    }

    fn get(&self, node: &NodeId, connection: &Connection) -> (Arc<Subscription>, bool) {
        let mut all = self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(node) {
            return (Arc::clone(known), false);
        }
        if all.len() >= MAX_NODES {
            all.clear();
        }
        let channel = format!("tenure:turns:{node}");
        let subscription = Arc::new(Subscription::start(connection, channel));
        all.insert(node.clone(), Arc::clone(&subscription));
        (subscription, true)
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&self) {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

#[async_trait]
impl Serve<Withdraw> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Withdraw, call: Call) -> Result<Withdrawn> {
        let invocation = self
            .timely_call(group, call)
            .arg(ask.tenure.member().as_str())
            .number(ask.tenure.term().get())
            .arg(ask.lease.as_str())
            .number(ask.request.get());
        self.connection
            .call(&self.scripts.withdraw, invocation, |reader, _| read_withdrawn(reader))
            .await
    }
}

fn read_withdrawn(reader: &mut Reader) -> Read<Withdrawn> {
    match reader.text()?.as_str() {
        "nothing" => Ok(Withdrawn::Nothing),
        "removed" => Ok(Withdrawn::Removed),
        "given" => Ok(Withdrawn::GivenBack {
            token: read_token(&reader.text()?)?,
        }),
        other => Err(Malformed(format!("{other:?} in place of a withdrawal"))),
    }
}

#[async_trait]
impl Serve<WaitForGrants> for ValkeyStore {
    /// A failure means that turns may have been lost: the caller sends its waiting requests again. Without the right to
    /// subscribe it fails about twice in the time for which a lease is reserved.
    async fn serve(&self, _: &Option<Group>, ask: WaitForGrants, _: Call) -> Result<Vec<WaitingTurn>> {
        let subscription = self.turns.of(&ask.node, &self.connection).await;
        let pause = (GRANT_RESERVATION / 2).min(ask.patience);
        let mut turns: Vec<WaitingTurn> = Vec::new();
        for message in subscription.next(ask.patience, pause).await? {
            // Another program may publish on the channel, and every node of a cluster repeats a message.
            let turn = std::str::from_utf8(&message).ok().and_then(|text| read_turn(text).ok());
            turns.extend(turn.filter(|turn| !turns.contains(turn)));
        }
        Ok(turns)
    }
}

fn read_turn(text: &str) -> Read<WaitingTurn> {
    let wrong = || Malformed("a turn that is not ours".to_owned());
    let (text, replaced) = match text.strip_suffix(" replaced") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let [group, lease, tenure, request] = text.split(' ').collect::<Vec<_>>()[..] else {
        return Err(wrong());
    };
    Ok(WaitingTurn {
        group: Group::new(group).map_err(|_| wrong())?,
        lease: LeaseName::new(lease).map_err(|_| wrong())?,
        tenure: parse("a tenure", tenure)?,
        request: RequestId::new(parse("a number", request)?).map_err(|_| wrong())?,
        replaced,
    })
}

/// The arguments of an acquire for a wait: the number of the request, its process and its longest wait.
pub(super) fn wait_args(queue: Option<&tenure_core::lease::Queue>) -> [String; 3] {
    match queue {
        None => Default::default(),
        Some(queue) => [
            queue.request.to_string(),
            queue.node.to_string(),
            micros_text(queue.within),
        ],
    }
}

fn micros_text(time: Duration) -> String {
    tenure_core::time::micros(time).to_string()
}
