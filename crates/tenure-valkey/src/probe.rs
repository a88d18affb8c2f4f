//! The write probe of a store. A cluster is probed with a write on each primary, so that one unreachable node does not
//! stand for the others.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tenure_core::clock::within;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::Group;
use tenure_core::store::{PROBE_GROUP, Probed};
use tenure_core::sweep::SweepSteps;
use tenure_core::time::{StoreTime, show_duration};

use crate::keys;
use crate::store::ValkeyStore;

/// Among this many names, every slot has one with near certainty.
const NAMES: u32 = 1 << 18;

/// The time of a write to a node, or the node's name and the error.
type Probe<'a> = Pin<Box<dyn Future<Output = Result<StoreTime, (String, Error)>> + Send + 'a>>;

impl ValkeyStore {
    pub(crate) async fn probe_nodes(&self, patience: Duration) -> Result<Probed> {
        let nodes = self.probe_groups()?;
        if nodes.is_empty() {
            // A single server, or a cluster with unknown nodes.
            let as_of = self.tick(&Group::new(PROBE_GROUP)?).await?.as_of;
            let away = Vec::new();
            return Ok(Probed { as_of, away });
        }
        let probes: Vec<Probe<'_>> = nodes
            .iter()
            .map(|(node, group)| Box::pin(self.probe_node(node, group, patience)) as Probe<'_>)
            .collect();
        let (mut latest, mut away, mut first): (Option<StoreTime>, _, _) = (None, Vec::new(), None);
        for probed in all(probes).await {
            match probed {
                Ok(as_of) => latest = latest.max(Some(as_of)),
                Err((node, error)) => {
                    away.push(format!("{node}: {}", error.chain()));
                    first.get_or_insert(error);
                }
            }
        }
        let uncovered = self.connection.uncovered();
        if uncovered > 0 {
            away.push(format!("{uncovered} slots have no node"));
        }
        match (latest, first) {
            (Some(as_of), _) => Ok(Probed { as_of, away }),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::unavailable(
                "no node of the cluster is known",
                Outcome::Unchanged,
            )),
        }
    }

    async fn probe_node(&self, node: &str, group: &Group, patience: Duration) -> Result<StoreTime, (String, Error)> {
        let silent = || format!("did not answer within {}", show_duration(patience));
        let ticked = within(&**self.connection.clock(), patience, self.tick(group)).await;
        let ticked = ticked.unwrap_or_else(|| Err(Error::unavailable(silent(), Outcome::Unknown)));
        ticked
            .map(|status| status.as_of)
            .map_err(|error| (node.to_owned(), error))
    }

    /// A group on each primary of a cluster, by the name of the primary.
    fn probe_groups(&self) -> Result<BTreeMap<String, Group>> {
        let (wanted, mut groups) = (self.connection.nodes().len(), BTreeMap::new());
        for number in 0..NAMES {
            if groups.len() >= wanted {
                break;
            }
            let group = Group::new(format!("{PROBE_GROUP}.{number}"))?;
            if let Some(node) = self.connection.node_of(&keys::meta(&group)) {
                groups.entry(node).or_insert(group);
            }
        }
        Ok(groups)
    }
}

/// Runs the futures concurrently.
async fn all<T: Unpin>(mut running: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = running.iter().map(|_| None).collect();
    poll_fn(move |context| {
        for (one, done) in running.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(value) = one.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        match done.iter().all(Option::is_some) {
            true => Poll::Ready(std::mem::take(&mut done).into_iter().flatten().collect()),
            false => Poll::Pending,
        }
    })
    .await
}
