//! Which order is tried next: one at a time at each agent, and agents that are away after all others.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{Group, SessionId};
use tenure_core::clock::{Clock, Mono};

use super::look::Found;
use super::{Done, Order, again};

/// How many agents are called at once,
const AT_ONCE: usize = 128;
/// and how many of these may be agents that did not answer the last time.
const AWAY_AT_ONCE: usize = 64;
/// How long an order may take, and how long at an agent that did not answer the last time. Short at first: when a rack is
/// away, each of its agents is tried once before those behind it, and these have to be reached within seconds.
const ORDER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));

/// All orders, by their agents. An agent without orders is forgotten.
#[derive(Debug, Default)]
pub(super) struct Queue(BTreeMap<String, Agent>);

/// One agent and its orders.
#[derive(Debug, Default)]
struct Agent {
    orders: BTreeMap<(Group, SessionId), Waiting>,
    /// A try is under way.
    busy: bool,
    /// How often in a row it did not answer.
    away: u32,
    /// Not before.
    due: Mono,
}

/// An order and how it has gone so far.
#[derive(Debug)]
struct Waiting {
    order: Order,
    times: u32,
    /// Not before.
    due: Mono,
    /// What was said about it last.
    why: String,
}

/// What to try.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) order: Order,
    /// How often it was tried before.
    pub(super) times: u32,
    /// How long it may take.
    pub(super) bound: Duration,
}

impl Agent {
    fn first(&self) -> Option<&Waiting> {
        self.orders.values().min_by_key(|waiting| waiting.due)
    }

    /// When its next order may be tried.
    fn due(&self) -> Option<Mono> {
        self.first().map(|first| first.due.max(self.due))
    }

    fn is_needed(&self) -> bool {
        self.busy || !self.orders.is_empty()
    }
}

impl Queue {
    /// Takes in what a look has found. What a whole listing does not have is forgotten.
    pub(super) fn take(&mut self, found: Found) {
        if let Some(all) = &found.all {
            for agent in self.0.values_mut() {
                let is_there = |(group, session): &(Group, SessionId)| *group != found.group || all.contains(session);
                agent.orders.retain(|order, _| is_there(order));
            }
        }
        for order in found.orders {
            let agent = self.0.entry(order.holding.agent.clone()).or_default();
            let key = (order.group.clone(), order.session.clone());
            agent.orders.entry(key).or_insert_with(|| Waiting {
                order,
                times: 0,
                due: Mono::default(),
                why: String::new(),
            });
        }
        self.0.retain(|_, agent| agent.is_needed());
    }

    /// The next order to try. It is under way from here on, until it is noted.
    pub(super) fn next(&mut self, now: Mono) -> Option<Next> {
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
        let next = Next {
            order: first.order.clone(),
            times: first.times,
            bound: if agent.away == 0 { ORDER.0 } else { ORDER.1 },
        };
        agent.busy = true;
        Some(next)
    }

    /// Takes in how a try has gone.
    pub(super) fn note(&mut self, order: &Order, done: Done, clock: &dyn Clock) {
        let (group, registration) = (&order.group, &order.session);
        let Some(agent) = self.0.get_mut(&order.holding.agent) else {
            return;
        };
        agent.busy = false;
        let is_away = matches!(done, Done::Away(_));
        let now = clock.mono();
        let (why, due) = match done {
            Done::Over(cleared, ours) => {
                if ours {
                    tracing::info!(%group, %registration, ?cleared, "a registration whose tenure has ended");
                }
                agent.orders.remove(&(group.clone(), registration.clone()));
                (None, now)
            }
            Done::Later(why, wait) => (Some(why), now + wait),
            Done::Away(why) => (Some(why), now + again(clock, agent.away)),
        };
        agent.away = if is_away { agent.away.saturating_add(1) } else { 0 };
        agent.due = if is_away { due } else { now };
        if let Some(why) = why
            && let Some(waiting) = agent.orders.get_mut(&(group.clone(), registration.clone()))
        {
            // Once for each reason: an agent may be away for long.
            if waiting.why != why {
                tracing::warn!(%group, %registration, why, "a registration is not cleared away yet");
            }
            (waiting.why, waiting.due) = (why, due);
            waiting.times = waiting.times.saturating_add(1);
        }
        self.0.retain(|_, agent| agent.is_needed());
    }

    /// When the next order may be tried; those under way are not counted.
    pub(super) fn due(&self) -> Option<Mono> {
        let idle = self.0.values().filter(|agent| !agent.busy);
        idle.filter_map(Agent::due).min()
    }

    /// Why orders have not been carried out so far.
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
