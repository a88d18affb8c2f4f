//! The reference store: the model with a lock and a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::decide::Decide;
use super::due::DueIndex;
use super::group::GroupModel;
use super::log::Log;
use crate::call::{Op, Reply, Scope, StoreRequest};
use crate::clock::Clock;
use crate::engine::StoreClock;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::event::{EventId, WaitForEvents};
use crate::id::{Group, NodeId};
use crate::lease::{WaitForGrants, WaitingTurn};
use crate::pulse::{BeatPulse, DueGroups, FAILED_GROUPS, KeptPulse, ListDue, Pulsed};
use crate::recall::Recall;
use crate::roster::{Availability, CountAvailable};
use crate::settling::GapCause;
use crate::store::{Backend, Call, Finding, Health, PROBE_GROUP, Probed, Severity, StoreOptions};
use crate::sweep::{EndedBatch, ForgetGroup, SettleReport, Tick};
use crate::time::StoreTime;

/// A store in memory, lost with the process; `memory:`.
#[derive(Debug)]
pub struct MemoryStore {
    options: StoreOptions,
    identity: u64,
    clock: StoreClock,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    groups: BTreeMap<Group, GroupModel>,
    /// The last number of each forgotten group. A tick does not create the group again.
    forgotten: BTreeMap<Group, u64>,
    /// Groups with waiting requests that were served.
    turned: BTreeSet<Group>,
    closed: bool,
    recall: Recall,
    service: KeptPulse,
    due: DueIndex,
}

impl MemoryStore {
    /// An empty store whose time starts at the clock's wall time and advances with its trust time.
    #[must_use]
    pub fn new(options: StoreOptions, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            options,
            identity: clock.entropy(),
            clock: StoreClock::new(clock, StoreTime::ZERO),
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        })
    }

    /// An empty store that may have lost data, as a networked store without its marker must assume. Groups that begin
    /// within one max ttl of its first step are unsettled until then.
    #[must_use]
    pub fn after_loss(options: StoreOptions, clock: Arc<dyn Clock>) -> Arc<Self> {
        let store = Self::new(options, clock);
        store.state.lock().unwrap_or_else(PoisonError::into_inner).recall = Recall::Unborn;
        store
    }

    /// Runs a step on a group, which is created if it is new, and wakes the waiters for events.
    pub(super) fn step<T>(
        &self,
        group: &Group,
        step: impl FnOnce(&mut GroupModel, StoreTime) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.open()?;
        let now = self.clock.now();
        let known = state.groups.contains_key(group);
        let (recall, service) = (state.recall, state.service);
        let forgotten = state.forgotten.remove(group);
        let wait = match known || forgotten.is_some() {
            true => None,
            false => state.recall.wait(now, self.options.max_ttl),
        };
        let model = state
            .groups
            .entry(group.clone())
            .or_insert_with(|| GroupModel::new(self.options.clone(), now));
        let before = model.log.last;
        model.take_pulse(service);
        model.seq = model.seq.max(forgotten.unwrap_or(0));
        if let Some(wait) = wait {
            model.wait(wait, now);
        }
        let done = step(model, now);
        let (news, has_turns, due) = (model.log.last != before, model.has_turns(), model.due(now));
        state.due.set(group, due);
        if has_turns {
            state.turned.insert(group.clone());
        }
        if !known && done.as_ref().is_err_and(|error| error.kind() == ErrorKind::TooLate) {
            // A late call changes nothing, so it neither creates the group nor sets the birth time of the store.
            state.groups.remove(group);
            state.due.set(group, None);
            state.recall = recall;
            state.forgotten.extend(forgotten.map(|seq| (group.clone(), seq)));
        }
        drop(state);
        if news {
            self.changed.send_replace(());
        }
        done
    }

    /// Reads a group; a missing one reads as an empty group that begins now.
    pub(super) fn read<T>(&self, group: &Group, read: impl FnOnce(&GroupModel, StoreTime) -> T) -> Result<T> {
        let mut state = self.open()?;
        let now = self.clock.now();
        let service = state.service;
        Ok(match state.groups.get_mut(group) {
            Some(model) => {
                model.take_pulse(service);
                read(model, now)
            }
            None => {
                let mut model = GroupModel::new(self.options.clone(), now);
                model.log = Log::beginning_at(EventId(0));
                read(&model, now)
            }
        })
    }

    /// Whether the group exists.
    pub(super) fn knows(&self, group: &Group) -> Result<bool> {
        Ok(self.open()?.groups.contains_key(group))
    }

    fn open(&self) -> Result<std::sync::MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(Error::unavailable("the store is closed", Outcome::Unchanged));
        }
        Ok(state)
    }

    /// Handles a call on a group.
    async fn about(&self, group: &Group, op: Op, call: Call) -> Result<Reply> {
        match &op {
            Op::WaitForEvents(request) => self.wait(group, request).await.map(Reply::WaitForEvents),
            // A sweep does not create a forgotten group again.
            Op::Tick(_) if self.open()?.forgotten.contains_key(group) => {
                self.read(group, |model, now| Reply::Tick(model.status(now)))
            }
            Op::EndLapsed(_) if self.open()?.forgotten.contains_key(group) => {
                Ok(Reply::EndLapsed(EndedBatch::default()))
            }
            Op::ForgetGroup(_) => self.forget(group, call).map(Reply::ForgetGroup),
            Op::Availability(request) => self.availability(group, request).map(Reply::Availability),
            read if read.is_read() => self.read(group, |model, now| model.look_up(read, now))?,
            step => self.step(group, |model, now| model.decide(step, call, now)),
        }
    }

    async fn wait(&self, group: &Group, request: &WaitForEvents) -> Result<()> {
        let mut news = self.changed.subscribe();
        let over = self.clock.local().sleep(request.patience);
        let waiting = async {
            while self.read(group, |model, _| model.log.last <= request.after)? && news.changed().await.is_ok() {}
            Ok(())
        };
        tokio::select! { biased; done = waiting => done, () = over => Ok(()) }
    }

    async fn wait_for_grants(&self, request: &WaitForGrants) -> Result<Vec<WaitingTurn>> {
        let mut news = self.changed.subscribe();
        let over = self.clock.local().sleep(request.patience);
        let waiting = async {
            loop {
                let turns = self.take_turns(&request.node)?;
                if !turns.is_empty() || news.changed().await.is_err() {
                    return Ok(turns);
                }
            }
        };
        tokio::select! { biased; done = waiting => done, () = over => Ok(Vec::new()) }
    }

    fn take_turns(&self, node: &NodeId) -> Result<Vec<WaitingTurn>> {
        let mut state = self.open()?;
        let State { groups, turned, .. } = &mut *state;
        let mut turns = Vec::new();
        turned.retain(|group| {
            let Some(model) = groups.get_mut(group) else {
                return false;
            };
            turns.extend(model.take_turns(group, node));
            model.has_turns()
        });
        Ok(turns)
    }

    fn forget(&self, group: &Group, call: Call) -> Result<bool> {
        if !self.knows(group)? {
            return Ok(true);
        }
        let forget = self.step(group, |model, now| model.step(&ForgetGroup, call, now))?;
        if forget {
            let mut state = self.open()?;
            let last = state.groups.remove(group).map(|model| model.seq);
            state.due.set(group, None);
            state.forgotten.extend(last.map(|seq| (group.clone(), seq)));
        }
        Ok(forget)
    }

    /// The one read that keeps its result. It does not create a missing group.
    fn availability(&self, group: &Group, request: &CountAvailable) -> Result<Availability> {
        let count = |model: &mut GroupModel, now| model.step(request, Call::default(), now);
        if !self.knows(group)? {
            return self.read(group, |_, now| {
                count(&mut GroupModel::new(StoreOptions::default(), now), now)
            })?;
        }
        self.step(group, count)
    }

    fn settle(&self, group: Option<Group>, cause: Option<GapCause>, call: Call) -> Result<SettleReport> {
        let groups = match group {
            Some(group) => vec![group],
            None => {
                let mut state = self.open()?;
                if call.not_after.is_some_and(|limit| self.clock.now() > limit) {
                    return Err(Error::too_late());
                }
                // Later groups first, so that none is created in between.
                state.recall.settle(cause);
                state.groups.keys().cloned().collect()
            }
        };
        let mut report = SettleReport::default();
        for group in groups {
            let settling = self.step(&group, |model, now| model.settle(cause, call, now))?;
            report.add(group, settling);
        }
        Ok(report)
    }

    fn probe(&self) -> Result<Probed> {
        let tick = |model: &mut GroupModel, now| model.step(&Tick::default(), Call::default(), now);
        let status = self.step(&Group::new(PROBE_GROUP)?, tick)?;
        Ok(Probed {
            as_of: status.as_of,
            away: Vec::new(),
        })
    }

    /// Without a pulse every group must be visited, so the index is not enough.
    fn due(&self, ask: ListDue) -> Result<DueGroups> {
        let state = self.open()?;
        let is_complete = state.service.pulse.is_some();
        let due = state.due.list(ask, &state.service, self.clock.now());
        Ok(DueGroups { is_complete, ..due })
    }

    fn beat_pulse(&self, ask: &BeatPulse, call: Call) -> Result<Pulsed> {
        let mut state = self.open()?;
        let now = self.clock.now();
        call.check(now)?;
        // Nothing was forgotten before the first beat, or the store waits by its recall.
        if state.service.beat(ask.failed.len(), now) {
            state.due.no_later_than(now);
        }
        for group in ask.failed.iter().take(FAILED_GROUPS) {
            if let Some(model) = state.groups.get_mut(group) {
                model.note_failed(now);
            }
        }
        Ok(Pulsed {
            as_of: now,
            without: Vec::new(),
        })
    }
}

#[async_trait]
impl Backend for MemoryStore {
    async fn call(&self, request: StoreRequest) -> Result<Reply> {
        let StoreRequest { group, op, call } = request;
        Ok(match op {
            Op::Now(_) => Reply::Now(self.open().map(|_| self.clock.now())?),
            Op::Probe(_) => Reply::Probe(self.probe()?),
            Op::Groups(_) => Reply::Groups(self.open()?.groups.keys().cloned().collect()),
            Op::BeatPulse(ask) => Reply::BeatPulse(self.beat_pulse(&ask, call)?),
            Op::Due(ask) => Reply::Due(self.due(ask)?),
            Op::FindGroups(_) => Reply::FindGroups(false),
            Op::WaitForGrants(request) => Reply::WaitForGrants(self.wait_for_grants(&request).await?),
            Op::Settle(request) => Reply::Settle(self.settle(group, request.cause, call)?),
            op => self.about(Group::of(&group)?, op, call).await?,
        })
    }

    fn max_ttl(&self) -> Duration {
        self.options.max_ttl
    }

    async fn identity(&self) -> Result<Option<String>> {
        Ok(Some(format!("{:016x}", self.identity)))
    }

    fn place(&self) -> String {
        "memory:".to_owned()
    }

    fn health(&self) -> Health {
        match self.open() {
            Ok(_) => Health::Up,
            Err(error) => Health::Down {
                reason: error.to_string(),
            },
        }
    }

    async fn examine(&self) -> Vec<Finding> {
        vec![Finding::new(
            "persistence",
            Severity::Warning,
            "memory: keeps nothing across restarts; use sqlite: for that",
        )]
    }

    async fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.send_replace(());
    }
}
