//! A cluster: a link to each primary, and a map that tells which of them has a key's slot.
//!
//! Why not the cluster connection of the client library: it queues while it does not know where to send, sends again by
//! itself what a broken connection may have carried already, and waits for all shards when it learns a new map. The rules
//! here are those of a single server: fail at once while the node of a slot is away, queue nothing, replay nothing. A link
//! has them already, so that what is left is a map, and one thing that may be sent twice: a call that a node refused with
//! `MOVED`, because a refused call has changed nothing.
//!
//! A slot that is being moved (`ASK`) is out of service until it has moved. A step looks at many keys, also at such that
//! do not exist; the node that receives a slot reads what has not arrived yet as missing, and would decide on half of a
//! group. For the group it is a gap like any other.
//!
//! The map is asked for when the cluster is opened, whenever a node is out of reach or says `MOVED` or that the cluster is
//! down, and else now and then; while that tells nothing new, after longer and longer pauses. Nodes are asked in turn, so
//! that one that was cut off and tells an old map is not believed for long.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tenure_core::clock::Clock;
use tenure_core::error::{ErrorKind, Result};
use tenure_core::store::Health;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::link::{Answer, Link};
use super::nodes::{self, Nodes};
use super::options::{ConnectionOptions, Need};
use super::slots::slot_of;
use crate::address::{Address, Endpoint};
use crate::script::{Invocation, Script};

/// How often a call may be sent on to another node: once for an old map, once more for a slot that has just moved again.
const REDIRECTIONS: usize = 2;
/// After a panic of what keeps the map.
const BREATH: Duration = Duration::from_secs(1);

/// The nodes of a cluster. Clones share them.
#[derive(Clone)]
pub(super) struct Cluster {
    nodes: Arc<Nodes>,
    _keeper: Arc<AbortOnDrop>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cluster {
    /// Makes links to the seeds and goes on from there.
    pub(super) fn start(
        address: Address,
        seeds: Vec<Endpoint>,
        options: ConnectionOptions,
        needs: Vec<Need>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        let nodes = Arc::new(Nodes::new(address, seeds, options, needs, clock, runtime.clone()));
        let keeper = runtime.spawn(keep(Arc::clone(&nodes), runtime.clone())).abort_handle();
        Self {
            nodes,
            _keeper: Arc::new(AbortOnDrop(keeper)),
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

    /// Waits until the map is known and its nodes were tried once, or the first attempt has failed.
    pub(super) async fn first_try(&self) {
        // An error means that there is nobody to wait for.
        let _ = self.nodes.tried.subscribe().wait_for(|tried| *tried).await;
    }

    pub(super) fn close(&self) {
        let mut nodes = self.nodes.write();
        nodes.closed = true;
        for link in nodes.links.values() {
            link.close();
        }
    }

    /// Up when every slot has a node that answers: a cluster that serves some groups and not others is not well.
    pub(super) fn health(&self) -> Health {
        let nodes = self.nodes.read();
        if nodes.map.nodes().is_empty() {
            let why = nodes.trouble.as_ref().map_or("none was asked yet", |(_, why)| why);
            let reason = format!("no node tells its slots: {why}");
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

    /// The kind of the error that is most in need of somebody to mend it.
    pub(super) fn why_down(&self) -> Option<ErrorKind> {
        let nodes = self.nodes.read();
        let of_map = nodes.trouble.as_ref().map(|(kind, _)| *kind);
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
        let nodes = self.nodes.read();
        let mut primaries = nodes.map.nodes().to_vec();
        primaries.sort();
        primaries
            .iter()
            .filter_map(|node| nodes.links.get(node).cloned())
            .collect()
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

    /// Calls a script where its first key is.
    pub(super) async fn ask(&self, script: &Arc<Script>, invocation: Invocation) -> Result<Answer> {
        let slot = slot_of(invocation.keys.first().map_or(&[], Vec::as_slice));
        let give_up = self.nodes.give_up();
        for _ in 0..REDIRECTIONS {
            match self.nodes.link_of(slot)?.ask(script, invocation.clone()).await {
                Err(error) => self.nodes.redirect(slot, error, give_up)?,
                done => return done,
            }
        }
        let done = self.nodes.link_of(slot)?.ask(script, invocation).await;
        done.map_err(|error| self.nodes.last(slot, error))
    }

    /// Sends a command where a key is.
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

/// Keeps the map for as long as the cluster is open, whatever happens.
async fn keep(nodes: Arc<Nodes>, runtime: Handle) {
    while !nodes.read().closed {
        let task = runtime.spawn(nodes::refresh(Arc::clone(&nodes)));
        let _ended_with_us = AbortOnDrop(task.abort_handle());
        if let Err(error) = task.await {
            tracing::error!(place = nodes.address.place(), %error, "what keeps the map of a cluster ended; starting it again");
            nodes.tried.send_replace(true);
            nodes.clock.sleep(BREATH).await;
        }
    }
}
