//! What processes that are no more have left in catalogs.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::jitter;

use super::Failure;
use super::actor::Parts;
use super::agent::Agent;
use super::journal::{Entry, Journal, Leftover};
use super::remove::remove;
use crate::survive::{self, Task};

/// The waits between two tries at agents other than ours; an agent that is gone for good is asked forever, but seldom.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// What the journal has, at an agent and elsewhere.
pub(super) async fn of(journal: &Journal, place: &str) -> (Vec<Leftover>, Vec<Leftover>) {
    let left = journal.leftovers().await;
    left.into_iter().partition(|leftover| leftover.entry.agent == place)
}

/// Removes one registration, unless another life has made it its own.
pub(super) async fn remove_one(agent: &dyn Agent, entry: &Entry) -> Result<(), Failure> {
    let removed = remove(agent, &entry.id, Some(&entry.life)).await?;
    tracing::info!(
        agent = agent.place(),
        id = entry.id,
        ?removed,
        "what an earlier life has left in the catalog"
    );
    Ok(())
}

/// Removes what was left at other agents, in a task of its own: they may be gone for good.
pub(super) fn remove_elsewhere(away: Vec<Leftover>, parts: &Parts) -> Option<Task> {
    if away.is_empty() {
        return None;
    }
    let (parts, away) = (parts.clone(), Arc::new(tokio::sync::Mutex::new(away)));
    let clock = Arc::clone(&parts.clock);
    let make = move || {
        let (parts, away) = (parts.clone(), Arc::clone(&away));
        async move {
            let mut wait = RETRY.0;
            let mut away = away.lock().await;
            while !away.is_empty() {
                for leftover in std::mem::take(&mut *away) {
                    let done = match parts.agent.at(&leftover.entry.agent) {
                        Some(agent) => remove_one(&*agent, &leftover.entry).await,
                        None => Err(Failure::Refused("this is no address of an agent".to_owned())),
                    };
                    match done {
                        Ok(()) => parts.journal.settle(leftover).await,
                        Err(failure) => {
                            let Entry { agent, id, .. } = &leftover.entry;
                            tracing::warn!(agent, id, error = %failure, "what an earlier life has left cannot be removed");
                            away.push(leftover);
                        }
                    }
                }
                if !away.is_empty() {
                    parts.clock.sleep(jitter(&*parts.clock, wait, 25)).await;
                    wait = (wait * 2).min(RETRY.1);
                }
            }
        }
    };
    Some(survive::spawn("leftovers", clock, make, |_| {}))
}
