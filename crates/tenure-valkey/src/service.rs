//! The service of the whole store: its pulse, and the index of due groups. A cluster has both on each primary, because a step
//! reads and writes them beside its group; a primary that is away stops neither on the others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::future::join_all;
use tenure_core::call::Serve;
use tenure_core::clock::within;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::Group;
use tenure_core::pulse::{BeatPulse, DueGroups, FAILED_GROUPS, ListDue, Pulsed};
use tenure_core::settling::{LEVELS, PULSE_EVERY};
use tenure_core::store::Call;
use tenure_core::time::{StoreTime, micros};

use crate::connection::Node;
use crate::keys::{self, DUE_GROUPS, PULSE};
use crate::script::{Invocation, Lateness};
use crate::store::ValkeyStore;

/// What was last read of the pulse and the index of each server, by its name.
#[derive(Debug, Default)]
pub(crate) struct Services(Mutex<HashMap<String, Service>>);

#[derive(Debug, Default)]
struct Service {
    /// The mark of the index.
    mark: u64,
    /// The last answer to a beat of a cluster's pulse: the tag, the pulse and its node. If the primary gives away the slot of
    /// its pulse, the pulse in the next slot continues it.
    beaten: Option<(String, Vec<u8>, String)>,
}

impl Services {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Service>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of one server to a beat: when, and why it keeps no pulse.
type NodePulsed = (StoreTime, Option<String>);

/// The answer of one server about its due groups: when, whether its index is the one of the last reading, when the server
/// last resumed, and the groups.
type NodeDue = (StoreTime, bool, Option<StoreTime>, Vec<(Group, StoreTime)>);

impl ValkeyStore {
    /// Beats the pulse of one server. On a cluster it waits so briefly that a server that hangs makes no hole in another
    /// pulse. A test clock has no holes of its own.
    async fn beat_soon(&self, node: &Node, failed: &[&Group], call: Call) -> Result<NodePulsed> {
        let beat = self.beat_node(node, failed, call);
        if node.tag.is_none() || self.connection.options().on_test_clock() {
            return beat.await;
        }
        let answered = within(&**self.connection.clock(), LEVELS[0] - PULSE_EVERY, beat).await;
        answered.unwrap_or_else(|| {
            let message = "a beat of the pulse was not answered in time";
            Err(Error::unavailable(message, Outcome::Unknown))
        })
    }

    async fn beat_node(&self, node: &Node, failed: &[&Group], call: Call) -> Result<NodePulsed> {
        let tag = node.tag.as_deref();
        let carried = tag.and_then(|tag| {
            let services = self.services.all();
            let (of, row, at) = services.get(&node.name)?.beaten.as_ref()?;
            (of != tag).then(|| (row.clone(), at.clone()))
        });
        let (row, at) = carried.unwrap_or_default();
        // A beat that comes late would hide a hole.
        let keys = vec![keys::on_node(PULSE, tag), keys::on_node(DUE_GROUPS, tag)];
        let invocation = Invocation::new(keys, Lateness::Refused(call))
            .number(micros(self.options.max_ttl))
            .number(FAILED_GROUPS as u64)
            .arg(row)
            .arg(at)
            .args(failed.iter().take(2 * FAILED_GROUPS).map(|group| keys::meta(group)));
        let beat = self
            .connection
            .call_node(node, &self.scripts.beat_pulse, invocation, |reader, now| {
                Ok((now, reader.maybe_bytes()?.unwrap_or_default(), reader.text()?))
            });
        let (now, row, at) = beat.await?;
        if row.is_empty() {
            let why = "the user may not run CLUSTER MYID and CLUSTER INFO";
            return Ok((now, Some(format!("{}: {why}", node.name))));
        }
        if let Some(tag) = tag {
            let mut services = self.services.all();
            services.entry(node.name.clone()).or_default().beaten = Some((tag.to_owned(), row, at));
        }
        Ok((now, None))
    }

    async fn due_on(&self, node: &Node, ask: &ListDue) -> Result<NodeDue> {
        let tag = node.tag.as_deref();
        let keys = vec![keys::on_node(DUE_GROUPS, tag), keys::on_node(PULSE, tag)];
        let invocation = Invocation::new(keys, Lateness::Harmless)
            .number(micros(ask.ahead))
            .number(u64::from(ask.limit));
        let read = self
            .connection
            .call_node(node, &self.scripts.due_groups, invocation, |reader, now| {
                let mark = reader.number()?;
                let resumed_at = reader.number()?;
                let (mut due, mut groups) = (reader.array()?, Vec::new());
                while due.left() > 0 {
                    let (name, at) = (due.text()?, due.time()?);
                    // Another program wrote an invalid name.
                    groups.extend(Group::new(name).ok().map(|group: Group| (group, at)));
                }
                Ok((mark, resumed_at, groups, now))
            });
        let (mark, resumed_at, groups, now) = read.await?;
        let resumed_at = Some(resumed_at).filter(|at| *at != 0).map(StoreTime::from_micros);
        let mut services = self.services.all();
        let before = std::mem::replace(&mut services.entry(node.name.clone()).or_default().mark, mark);
        Ok((now, before == mark && resumed_at.is_some(), resumed_at, groups))
    }
}

fn no_node() -> Error {
    Error::unavailable("no node of the cluster is known", Outcome::Unchanged)
}

#[async_trait]
impl Serve<BeatPulse> for ValkeyStore {
    async fn serve(&self, _: &Option<Group>, ask: BeatPulse, call: Call) -> Result<Pulsed> {
        let nodes = self.connection.each_node();
        let ask = &ask;
        let beats = nodes.iter().map(|node| async move {
            let is_there = |group: &&Group| {
                let home = self.connection.node_of(&keys::meta(group));
                home.is_none_or(|home| home == node.name)
            };
            let failed: Vec<&Group> = ask.failed.iter().filter(is_there).collect();
            (node, failed.len(), self.beat_soon(node, &failed, call).await)
        });
        let (mut pulsed, mut failure, mut is_beaten) = (Pulsed::default(), None, false);
        for (node, failed, beaten) in join_all(beats).await {
            match beaten {
                Ok((now, without)) => {
                    pulsed.as_of = pulsed.as_of.max(now);
                    pulsed.without.extend(without);
                    is_beaten = true;
                }
                // The groups with failed beats are to be named again.
                Err(error) if failed > 0 => return Err(error),
                Err(error) => {
                    pulsed.without.push(format!("{}: {}", node.name, error.chain()));
                    failure = Some(error);
                }
            }
        }
        match is_beaten {
            true => Ok(pulsed),
            false => Err(failure.unwrap_or_else(no_node)),
        }
    }
}

#[async_trait]
impl Serve<ListDue> for ValkeyStore {
    async fn serve(&self, _: &Option<Group>, ask: ListDue, _: Call) -> Result<DueGroups> {
        let nodes = self.connection.each_node();
        let reads = join_all(nodes.iter().map(|node| self.due_on(node, &ask))).await;
        let (mut due, mut failure, mut answers) = (DueGroups::default(), None, 0);
        due.is_complete = true;
        for read in reads {
            match read {
                Ok((now, is_same, resumed_at, groups)) => {
                    answers += 1;
                    due.as_of = due.as_of.max(now);
                    due.is_complete &= is_same;
                    due.resumed_at = due.resumed_at.max(resumed_at);
                    due.groups.extend(groups);
                }
                // Nothing can be done about its groups.
                Err(error) => failure = Some(error),
            }
        }
        if answers == 0 {
            return Err(failure.unwrap_or_else(no_node));
        }
        due.groups.sort_by_key(|(_, at)| *at);
        Ok(due)
    }
}
