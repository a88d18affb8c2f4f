//! A cluster: a link to each primary, and the slot map that routes a key to its node.
//!
//! The client library's own cluster connection is not used: it queues calls while it does not know their node, resends
//! calls that a broken connection may have carried, and waits for all shards when it refreshes the map. Here the rules
//! of a single server apply: a call fails at once while its node is unreachable, and nothing is queued or replayed. The
//! links already follow these rules, so this module adds the map and one resend: a call that a node refused with
//! `MOVED` changed nothing and may be sent again.
//!
//! A slot in migration (`ASK`) is unavailable until the migration is over. A step reads many keys, including keys that
//! do not exist. The importing node would read keys that have not arrived as missing, and the step would decide on half
//! of a group. For the group this is an ordinary gap.
//!
//! The map is refreshed when the cluster is opened, when a node is unreachable or replies `MOVED` or `CLUSTERDOWN`, and
//! periodically. While refreshes bring no change, the pause between them grows. Nodes are asked in turn, so the old map
//! of a partitioned node is soon replaced.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tenure_core::clock::Clock;
use tenure_core::error::{ErrorKind, Result};
use tenure_core::store::Health;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::link::{Link, RawReply};
use super::nodes::{self, Nodes};
use super::options::{ConnectionOptions, Needs};
use super::slots::slot_of;
use crate::address::{Address, Endpoint};
use crate::script::{Invocation, Script};

/// How often a call may follow a redirection: once for a stale map, once more for a slot that has just moved again.
const REDIRECTIONS: usize = 2;
/// The pause after a panic of the refresh task.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// The nodes of a cluster. Clones share them.
#[derive(Clone)]
pub(super) struct Cluster {
    nodes: Arc<Nodes>,
    _refresher: Arc<AbortOnDrop>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cluster {
    /// Opens links to the seeds and starts the refresh task.
    pub(super) fn start(
        address: Address,
        seeds: Vec<Endpoint>,
        options: ConnectionOptions,
        needs: Needs,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        let nodes = Arc::new(Nodes::new(address, seeds, options, needs, clock, runtime.clone()));
        let refresher = runtime
            .spawn(keep_refreshing(Arc::clone(&nodes), runtime.clone()))
            .abort_handle();
        Self {
            nodes,
            _refresher: Arc::new(AbortOnDrop(refresher)),
        }
    }

    pub(super) fn place(&self) -> &str {
        self.nodes.address.place()
    }

    pub(super) fn options(&self) -> &ConnectionOptions {
        &self.nodes.options
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.nodes.clock
    }

    /// Waits until the map is known and each node was tried once, or the first attempt has failed.
    pub(super) async fn first_try(&self) {
        // An error means that the refresh task is gone.
        let _ = self.nodes.tried.subscribe().wait_for(|tried| *tried).await;
    }

    pub(super) fn close(&self) {
        let mut nodes = self.nodes.write();
        nodes.closed = true;
        for link in nodes.links.values() {
            link.close();
        }
    }

    /// Up when every slot has a reachable node: a cluster that serves only some groups is not healthy.
    pub(super) fn health(&self) -> Health {
        let nodes = self.nodes.read();
        if nodes.map.nodes().is_empty() {
            let why = nodes.map_error.as_ref().map_or("no node was asked yet", |(_, why)| why);
            let reason = format!("no node returned the slot map: {why}");
            return Health::Down { reason };
        }
        let away = nodes.map.nodes().iter().filter_map(|node| {
            let health = nodes.links.get(node).map(Link::health);
            match health {
                Some(Health::Up) => None,
                Some(Health::Down { reason }) => Some(format!("{node}: {reason}")),
                None => Some(format!("{node}: not connected yet")),
            }
        });
        let mut away: Vec<String> = away.collect();
        let uncovered = nodes.map.uncovered();
        if uncovered > 0 {
            away.push(format!("{uncovered} slots have no node"));
        }
        if away.is_empty() {
            return Health::Up;
        }
        let reason = format!("of {} primaries: {}", nodes.map.nodes().len(), away.join("; "));
        Health::Down { reason }
    }

    /// The kind of the error that most needs an operator.
    pub(super) fn why_down(&self) -> Option<ErrorKind> {
        let nodes = self.nodes.read();
        let of_map = nodes.map_error.as_ref().map(|(kind, _)| *kind);
        let links = nodes
            .map
            .nodes()
            .iter()
            .filter_map(|node| nodes.links.get(node)?.why_down());
        let kinds: Vec<ErrorKind> = of_map.into_iter().chain(links).collect();
        let worst = kinds.iter().find(|kind| **kind != ErrorKind::Unavailable);
        worst.or(kinds.first()).copied()
    }

    /// The links to the primaries, in a fixed order.
    pub(super) fn primaries(&self) -> Vec<Link> {
        self.tagged().into_iter().map(|(_, link, _)| link).collect()
    }

    /// The primaries by name.
    pub(super) fn names(&self) -> Vec<String> {
        self.nodes.read().map.nodes().iter().map(ToString::to_string).collect()
    }

    /// The name of the primary that has a key.
    pub(super) fn name_of(&self, key: &[u8]) -> Option<String> {
        self.nodes.read().map.node(slot_of(key)).map(ToString::to_string)
    }

    /// How many slots have no node.
    pub(super) fn uncovered(&self) -> usize {
        self.nodes.read().map.uncovered()
    }

    /// The link to the node of a key.
    pub(super) fn link_of(&self, key: &[u8]) -> Result<Link> {
        self.nodes.link_of(slot_of(key))
    }

    /// Calls a script on the node of its first key.
    pub(super) async fn call_script(&self, script: &Arc<Script>, invocation: Invocation) -> Result<RawReply> {
        let slot = slot_of(invocation.keys.first().map_or(&[], Vec::as_slice));
        let give_up = self.nodes.give_up();
        for _ in 0..REDIRECTIONS {
            let (link, tag) = self.nodes.node_of(slot)?;
            match link.call_script(script, invocation.clone().tagged(tag)).await {
                Err(error) => self.nodes.redirect(slot, error, give_up)?,
                done => return done,
            }
        }
        let (link, tag) = self.nodes.node_of(slot)?;
        let done = link.call_script(script, invocation.tagged(tag)).await;
        done.map_err(|error| self.nodes.last(slot, error))
    }

    /// Calls a script on one node, for the keys that the node has for itself. It follows no redirection.
    pub(super) async fn call_node(
        &self,
        link: &Link,
        script: &Arc<Script>,
        invocation: Invocation,
    ) -> Result<RawReply> {
        let slot = slot_of(invocation.keys.first().map_or(&[], Vec::as_slice));
        let done = link.call_script(script, invocation).await;
        done.map_err(|error| self.nodes.last(slot, error))
    }

    /// The primaries by name, in a fixed order, each with its tag.
    pub(super) fn tagged(&self) -> Vec<(String, Link, Arc<str>)> {
        let nodes = self.nodes.read();
        let mut primaries: Vec<&Endpoint> = nodes.map.nodes().iter().collect();
        primaries.sort();
        let of = |node: &Endpoint| {
            let (link, tag) = (nodes.links.get(node)?, nodes.map.tag_of(node)?);
            Some((node.to_string(), link.clone(), tag))
        };
        primaries.into_iter().filter_map(of).collect()
    }

    /// Sends a command to the node of a key.
    pub(super) async fn command_on(&self, key: &[u8], cmd: Cmd) -> Result<Value> {
        let (slot, give_up) = (slot_of(key), self.nodes.give_up());
        for _ in 0..REDIRECTIONS {
            match self.nodes.link_of(slot)?.command(cmd.clone()).await {
                Err(error) => self.nodes.redirect(slot, error, give_up)?,
                done => return done,
            }
        }
        let done = self.nodes.link_of(slot)?.command(cmd).await;
        done.map_err(|error| self.nodes.last(slot, error))
    }
}

/// Runs the refresh task while the cluster is open and restarts it after a panic.
async fn keep_refreshing(nodes: Arc<Nodes>, runtime: Handle) {
    while !nodes.read().closed {
        let task = runtime.spawn(nodes::refresh(Arc::clone(&nodes)));
        let _ended_with_us = AbortOnDrop(task.abort_handle());
        if let Err(error) = task.await {
            tracing::error!(place = nodes.address.place(), %error, "the slot map refresh ended; restarting it");
            nodes.tried.send_replace(true);
            nodes.clock.sleep(RESTART_PAUSE).await;
        }
    }
}
