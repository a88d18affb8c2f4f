//! Registrations that dead processes left in catalogs.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::jitter;

use super::Failure;
use super::actor::Parts;
use super::agent::Agent;
use super::journal::{Journal, JournalEntry, Leftover};
use super::remove::remove;
use crate::restart::{self, Task};

/// The first and the longest wait between two attempts at other agents. An agent that is gone for good is retried
/// forever, but rarely.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// The journal's leftovers at this agent and at others.
pub(super) async fn of(journal: &Journal, place: &str) -> (Vec<Leftover>, Vec<Leftover>) {
    let left = journal.leftovers().await;
    left.into_iter().partition(|leftover| leftover.entry.agent == place)
}

/// Removes one registration, unless another life of the service has replaced it.
pub(super) async fn remove_one(agent: &dyn Agent, entry: &JournalEntry) -> Result<(), Failure> {
    let removed = remove(agent, &entry.id, Some(&entry.life)).await?;
    tracing::info!(
        agent = agent.place(),
        id = entry.id,
        ?removed,
        "cleaned up the registration of an earlier life"
    );
    Ok(())
}

/// Removes leftovers at other agents, in a separate task because these agents may be gone for good.
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
                        None => Err(Failure::Refused("not the address of an agent".to_owned())),
                    };
                    match done {
                        Ok(()) => parts.journal.remove_leftover(leftover).await,
                        Err(failure) => {
                            let JournalEntry { agent, id, .. } = &leftover.entry;
                            tracing::warn!(agent, id, error = %failure, "cannot remove the registration of an earlier life");
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
    Some(restart::spawn("leftovers", clock, make, |_| {}))
}
