//! Calls of every kind, and those about the whole store.

use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use super::Shared;
use super::cursor;
use super::queue::Settlement;
use super::step::finish;
use crate::call::{Op, Reply};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventId, EventPage, EventQuery, WaitForEvents};
use crate::id::Group;
use crate::lease::{WaitForGrants, WaitingTurn};
use crate::memory::{Decide, GroupModel};
use crate::pulse::{BeatPulse, FAILED_GROUPS, Pulsed};
use crate::settling::GapCause;
use crate::store::{Call, Probed};
use crate::sweep::{EndedBatch, GroupStatus, SettleReport, Tick};
use crate::time::StoreTime;

impl Shared {
    /// A call about a group. What is rare, or waits for more than a commit, is boxed: the futures of all other calls stay
    /// small.
    pub(super) async fn about(self: &Arc<Self>, group: &Group, op: &mut Op, call: Call) -> Result<Reply> {
        match op {
            Op::Beat(ask) => self.beat(group, &ask.beats).await.map(Reply::Beat),
            Op::Heartbeat(ask) => Box::pin(self.heartbeat(group, &ask.heartbeats))
                .await
                .map(Reply::Heartbeat),
            Op::Events(query) => Box::pin(self.events(group, query)).await.map(Reply::Events),
            Op::WaitForEvents(ask) => Box::pin(self.wait_for_events(group, ask))
                .await
                .map(Reply::WaitForEvents),
            Op::Tick(_) => Box::pin(self.tick(group)).await.map(Reply::Tick),
            // A sweep does not bring a forgotten group back.
            Op::EndLapsed(_) if self.is_forgotten(group) => Ok(Reply::EndLapsed(EndedBatch::default())),
            Op::ForgetGroup(_) => Box::pin(self.forget(group, call)).await.map(Reply::ForgetGroup),
            // The one read that keeps what it counted. A group that is not there is not made by asking about it.
            Op::Availability(ask) => {
                let count = |model: &mut GroupModel, now: StoreTime| model.step(ask, Call::default(), now);
                let counted = self.look(group, count).await?;
                let counted = counted.unwrap_or_else(|| count(&mut self.absent(), self.clock.now()));
                counted.map(Reply::Availability)
            }
            read if read.is_read() => {
                let listing = cursor::unwrap(read)?;
                let look = |model: &mut GroupModel, now: StoreTime| model.look_up(read, now);
                let reply = match self.look(group, look).await? {
                    Some(reply) => reply,
                    None => look(&mut self.absent(), self.clock.now()),
                };
                let mut reply = reply?;
                if let Some(listing) = listing {
                    cursor::wrap(listing, &mut reply);
                }
                Ok(reply)
            }
            step => {
                self.step(group, call, |model, now| self.decide(model, step, call, now))
                    .await
            }
        }
    }

    /// A call about the store.
    pub(super) async fn about_whole(&self, op: &Op) -> Result<Reply> {
        self.service.check()?;
        Ok(match op {
            Op::Now(_) => Reply::Now(self.clock.now()),
            Op::Probe(_) => {
                self.try_commit().await?;
                Reply::Probe(Probed {
                    as_of: self.clock.now(),
                    away: Vec::new(),
                })
            }
            Op::Groups(_) => Reply::Groups(self.durable_groups()),
            Op::WaitForGrants(ask) => Reply::WaitForGrants(self.wait_for_grants(ask).await?),
            Op::BeatPulse(ask) => Reply::BeatPulse(self.beat_pulse(ask)),
            Op::Due(ask) => {
                let pulse = self.pulse.kept();
                let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
                Reply::Due(due.list(*ask, &pulse, self.clock.now()))
            }
            // A group is a row, and cannot be lost from the list.
            Op::FindGroups(_) => Reply::FindGroups(false),
            other => {
                let message = format!("this store does not answer the call {}", other.verb());
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        })
    }

    /// The groups that the disk has, by name.
    fn durable_groups(&self) -> Vec<Group> {
        let cells = self.groups.all();
        let durable = cells.iter().filter(|cell| cell.lock().is_kept);
        durable.map(|cell| cell.group.clone()).collect()
    }

    fn is_forgotten(&self, group: &Group) -> bool {
        self.groups.find(group).is_none() && self.groups.is_forgotten(group)
    }

    /// Beats the pulse: this store takes beats now.
    fn beat_pulse(&self, ask: &BeatPulse) -> Pulsed {
        let as_of = self.pulse.beat(|| self.clock.now(), ask.failed.len());
        self.keep_time(as_of);
        for cell in ask
            .failed
            .iter()
            .take(FAILED_GROUPS)
            .filter_map(|group| self.groups.find(group))
        {
            cell.lock().model.note_failed(as_of);
        }
        Pulsed {
            as_of,
            without: Vec::new(),
        }
    }

    async fn tick(self: &Arc<Self>, group: &Group) -> Result<GroupStatus> {
        self.service.check()?;
        self.keep_time(self.clock.now());
        if self.is_forgotten(group) {
            let now = self.clock.now();
            return Ok(self.absent().status(now));
        }
        let step = |model: &mut GroupModel, now| model.step(&Tick::default(), Call::default(), now);
        self.step(group, Call::default(), step).await
    }

    /// A page of events: it shows everything that was applied when it was asked for.
    async fn events(&self, group: &Group, query: &EventQuery) -> Result<EventPage> {
        loop {
            self.service.check()?;
            let Some(cell) = self.groups.find(group) else {
                return Ok(EventPage {
                    missed: query.after.is_some_and(|after| after.0 > 0),
                    last: query.before.unwrap_or_default(),
                    ..EventPage::default()
                });
            };
            if finish(cell.after_all()).await?.is_some() {
                return self.pages.page(group, query.clone()).await;
            }
        }
    }

    async fn wait_for_events(&self, group: &Group, ask: &WaitForEvents) -> Result<()> {
        self.service.check()?;
        let over = self.clock.local().sleep(ask.patience);
        let waiting = async {
            let mut births = self.groups.births();
            let cell = loop {
                self.service.check()?;
                match self.groups.find(group).filter(|cell| cell.lock().is_kept) {
                    Some(cell) => break cell,
                    None if births.changed().await.is_err() => return Ok(()),
                    None => {}
                }
            };
            let mut news = cell.lock().subscribe();
            let is_new = |last: EventId| last > ask.after;
            while self.groups.find(group).is_some()
                && self.service.check().is_ok()
                && !is_new(*news.borrow_and_update())
                && news.changed().await.is_ok()
            {}
            self.service.check()
        };
        tokio::select! { done = waiting => done, () = over => Ok(()) }
    }

    /// A grant is revealed only when it is durable.
    async fn wait_for_grants(&self, ask: &WaitForGrants) -> Result<Vec<WaitingTurn>> {
        let over = self.clock.local().sleep(ask.patience);
        let waiting = async {
            let mut news = self.groups.births();
            loop {
                self.service.check()?;
                let turns = self.groups.take_turns(&ask.node);
                if !turns.is_empty() || news.changed().await.is_err() {
                    return Ok(turns);
                }
            }
        };
        tokio::select! { biased; done = waiting => done, () = over => Ok(Vec::new()) }
    }

    /// An operator's word that nothing was held, for one group, or for all of them and those to come.
    pub(super) async fn settle(
        self: &Arc<Self>,
        group: Option<Group>,
        named: Option<GapCause>,
        call: Call,
    ) -> Result<SettleReport> {
        let groups = match group {
            Some(group) => vec![group],
            None => {
                // First those to come, so that none is made in between.
                self.settle_new(named, call).await?;
                self.durable_groups()
            }
        };
        let mut report = SettleReport::default();
        for group in groups {
            let settle = |model: &mut GroupModel, now| model.settle(named, call, now);
            let settling = self.step(&group, call, settle).await?;
            report.add(group, settling);
        }
        Ok(report)
    }

    async fn settle_new(&self, named: Option<GapCause>, call: Call) -> Result<()> {
        self.service.check()?;
        let (done, settled) = oneshot::channel();
        let settlement = Settlement {
            named,
            not_after: call.not_after,
            done,
        };
        if !self.queue.add(|work| work.settlements.push(settlement)) {
            return Err(self.over());
        }
        settled.await.unwrap_or_else(|_| Err(self.over()))
    }
}
