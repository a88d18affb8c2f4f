//! The order of attempts: one at a time per agent, unresponsive agents after all others.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{Group, SessionId};
use tenure_core::clock::{Clock, Mono};

use super::scan::FoundOrders;
use super::{AttemptOutcome, Order, again};

/// The limit of concurrently called agents.
const AT_ONCE: usize = 128;
/// The limit of concurrently called agents that did not respond the last time.
const AWAY_AT_ONCE: usize = 64;
/// The timeout of an attempt, for a responsive and for an unresponsive agent. The first is short: when a rack is down,
/// each of its agents is tried once before the agents behind it, which must be reached within seconds.
const ORDER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));

/// All orders, by agent. An agent without orders is removed.
#[derive(Debug, Default)]
pub(super) struct Queue(BTreeMap<String, Agent>);

#[derive(Debug, Default)]
struct Agent {
    orders: BTreeMap<(Group, SessionId), QueuedOrder>,
    /// An attempt is in flight.
    busy: bool,
    /// Consecutive attempts without a response.
    away: u32,
    /// The earliest next attempt.
    due: Mono,
}

/// An order and its attempts so far.
#[derive(Debug)]
struct QueuedOrder {
    order: Order,
    times: u32,
    /// The earliest next attempt.
    due: Mono,
    /// The reason of the last failure.
    why: String,
}

/// The next attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextOrder {
    pub(super) order: Order,
    /// The number of previous attempts.
    pub(super) times: u32,
    /// Its timeout.
    pub(super) bound: Duration,
}

impl Agent {
    fn first(&self) -> Option<&QueuedOrder> {
        self.orders.values().min_by_key(|waiting| waiting.due)
    }

    /// The earliest next attempt at this agent.
    fn due(&self) -> Option<Mono> {
        self.first().map(|first| first.due.max(self.due))
    }

    fn is_needed(&self) -> bool {
        self.busy || !self.orders.is_empty()
    }
}

impl Queue {
    /// Adds the orders of a scan. A complete scan also removes orders that no longer exist.
    pub(super) fn take(&mut self, found: FoundOrders) {
        if let Some(all) = &found.all {
            for agent in self.0.values_mut() {
                let is_there = |(group, session): &(Group, SessionId)| *group != found.group || all.contains(session);
                agent.orders.retain(|order, _| is_there(order));
            }
        }
        for order in found.orders {
            let agent = self.0.entry(order.holding.agent.clone()).or_default();
            let key = (order.group.clone(), order.session.clone());
            agent.orders.entry(key).or_insert_with(|| QueuedOrder {
                order,
                times: 0,
                due: Mono::default(),
                why: String::new(),
            });
        }
        self.0.retain(|_, agent| agent.is_needed());
    }

    /// The next order to attempt. It is in flight until `note` is called.
    pub(super) fn next(&mut self, now: Mono) -> Option<NextOrder> {
        let busy = self.0.values().filter(|agent| agent.busy);
        let (busy, away) = busy.fold((0, 0), |(all, away), agent| {
            (all + 1, away + usize::from(agent.away > 0))
        });
        if busy >= AT_ONCE {
            return None;
        }
        let ready = self.0.values_mut().filter_map(|agent| {
            let may_start = !agent.busy && (agent.away == 0 || away < AWAY_AT_ONCE);
            let due = agent.due().filter(|due| may_start && *due <= now)?;
            Some((due, agent))
        });
        let (_, agent) = ready.min_by_key(|(due, agent)| (agent.away > 0, *due))?;
        let first = agent.first()?;
        let next = NextOrder {
            order: first.order.clone(),
            times: first.times,
            bound: if agent.away == 0 { ORDER.0 } else { ORDER.1 },
        };
        agent.busy = true;
        Some(next)
    }

    /// Records the result of an attempt.
    pub(super) fn note(&mut self, order: &Order, done: AttemptOutcome, clock: &dyn Clock) {
        let (group, registration) = (&order.group, &order.session);
        let Some(agent) = self.0.get_mut(&order.holding.agent) else {
            return;
        };
        agent.busy = false;
        let is_away = matches!(done, AttemptOutcome::Away(_));
        let now = clock.mono();
        let (why, due) = match done {
            AttemptOutcome::Finished(cleared, ours) => {
                if ours {
                    tracing::info!(%group, %registration, ?cleared, "cleaned up the registration of an ended tenure");
                }
                agent.orders.remove(&(group.clone(), registration.clone()));
                (None, now)
            }
            AttemptOutcome::Later(why, wait) => (Some(why), now + wait),
            AttemptOutcome::Away(why) => (Some(why), now + again(clock, agent.away)),
        };
        agent.away = if is_away { agent.away.saturating_add(1) } else { 0 };
        agent.due = if is_away { due } else { now };
        if let Some(why) = why
            && let Some(waiting) = agent.orders.get_mut(&(group.clone(), registration.clone()))
        {
            // Logged once per reason, because an agent may be down for long.
            if waiting.why != why {
                tracing::warn!(%group, %registration, why, "cannot remove the registration of an ended tenure yet");
            }
            (waiting.why, waiting.due) = (why, due);
            waiting.times = waiting.times.saturating_add(1);
        }
        self.0.retain(|_, agent| agent.is_needed());
    }

    /// The earliest next attempt, ignoring agents with one in flight.
    pub(super) fn due(&self) -> Option<Mono> {
        let idle = self.0.values().filter(|agent| !agent.busy);
        idle.filter_map(Agent::due).min()
    }

    /// The reasons of the failures so far.
    #[cfg(test)]
    pub(super) fn reasons(&self) -> Vec<&str> {
        let orders = self.0.values().flat_map(|agent| agent.orders.values());
        let reasons = orders.map(|waiting| waiting.why.as_str());
        reasons.filter(|why| !why.is_empty()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(|agent| agent.orders.len()).sum()
    }
}
