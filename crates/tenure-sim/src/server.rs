//! The store's machine: the reference store and the faults of its machine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_util::FutureExt;
use tenure::{
    Clock, Error, Event, EventId, EventQuery, Group, GroupStatus, LeaseName, Outcome, Result, StoreOptions, StoreTime,
    TenureId,
};
use tenure_core::call::{Op, Reply, StoreRequest, make};
use tenure_core::event::EventLog;
use tenure_core::membership::MembershipStore;
use tenure_core::memory::MemoryStore;
use tenure_core::pulse::BeatPulse;
use tenure_core::settling::{MAX_GAP, PULSE_EVERY};
use tenure_core::store::Call;
use tenure_core::sweep::Sweep;

use crate::broken::BrokenRule;
use crate::step::Step;
use crate::store_clock::StoreMachineClock;
use crate::time::At;
use crate::wire::{Request, TimedReply};

/// Whether it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    /// It replies.
    Up,
    /// It accepts requests and replies to none until it resumes; then it carries out all of them.
    Frozen,
    /// It is down.
    Down,
}

/// The store's machine.
#[derive(Debug)]
pub struct Server {
    pub(crate) clock: Arc<StoreMachineClock>,
    options: StoreOptions,
    group: Group,
    memory: Arc<MemoryStore>,
    serving: Serving,
    broken: Option<BrokenRule>,
    /// Requests that arrived while it was frozen.
    queued: VecDeque<Request>,
    /// Requests that wait for events or for turns in a queue, with their time-outs.
    listeners: Vec<(At, Request)>,
    /// Something happened since the waiting requests were last asked: only a step can bring them news.
    news: bool,
    /// Its data was lost before, so it knows that it may have had more.
    lossy: bool,
    /// Every step since it was last empty: the source of a restart from an older copy.
    pub(crate) log: Vec<(StoreTime, StoreRequest)>,
    /// The newest event that was seen of each group.
    seen: BTreeMap<Group, EventId>,
    /// The last beat of the pulse.
    last_pulse: Option<StoreTime>,
    /// Broken rule: a hole of the pulse that no sweep has met.
    pub(crate) has_hole: bool,
    /// Broken rule: withdrawn requests, and whether the same tenure has the lease now.
    pub(crate) withdrawn: BTreeMap<(TenureId, LeaseName), bool>,
}

impl Server {
    /// Creates a store that has never served.
    #[must_use]
    pub fn new(clock: Arc<StoreMachineClock>, options: StoreOptions, group: Group, broken: Option<BrokenRule>) -> Self {
        let memory = empty(&clock, &options, false);
        Self {
            clock,
            options,
            group,
            memory,
            serving: Serving::Up,
            broken,
            queued: VecDeque::new(),
            lossy: false,
            listeners: Vec::new(),
            news: false,
            log: Vec::new(),
            seen: BTreeMap::new(),
            last_pulse: None,
            has_hole: false,
            withdrawn: BTreeMap::new(),
        }
    }

    /// The store behind the network, for the checkers.
    #[must_use]
    pub fn truth(&self) -> &MemoryStore {
        &self.memory
    }

    /// The status of a group.
    #[must_use]
    pub fn status(&self, group: &Group) -> GroupStatus {
        poll_once(self.memory.status(group)).expect("the reference store is never closed")
    }

    /// Whether it serves.
    #[must_use]
    pub fn serving(&self) -> Serving {
        self.serving
    }

    /// Freezes it. Requests that arrive are queued.
    pub fn freeze(&mut self) {
        self.serving = Serving::Frozen;
    }

    /// Stops it and drops the queue. Returns the queued requests, whose connections break.
    pub fn stop(&mut self) -> Vec<Request> {
        self.serving = Serving::Down;
        let listening = std::mem::take(&mut self.listeners).into_iter();
        self.queued
            .drain(..)
            .chain(listening.map(|(_, request)| request))
            .collect()
    }

    /// Makes it serve again. Returns the queued requests to carry out.
    pub fn resume(&mut self) -> VecDeque<Request> {
        self.serving = Serving::Up;
        std::mem::take(&mut self.queued)
    }

    /// Queues a request that arrives while it is frozen.
    pub fn queue(&mut self, request: Request) {
        self.queued.push_back(request);
    }

    /// The number of steps in its log: a point to roll back to.
    #[must_use]
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Drops the newest steps, as in a failover to a lagging replica or a restart from an older copy.
    pub fn roll_back(&mut self, to: usize) {
        let lost = self.log.split_off(to);
        self.memory = empty(&self.clock, &self.options, self.lossy);
        let log = std::mem::take(&mut self.log);
        for (at, ask) in &log {
            self.clock.pretend(Some(*at));
            // The replay gives the same replies: the model has no other input.
            drop(poll_once(self.apply(ask)));
        }
        self.log = log;
        if self.broken == Some(BrokenRule::PulseElsewhere) {
            for (at, beat) in lost.into_iter().filter(|(_, ask)| matches!(ask.op, Op::BeatPulse(_))) {
                self.clock.pretend(Some(at));
                drop(poll_once(self.apply(&beat)));
                self.log.push((at, beat));
            }
        }
        self.clock.pretend(None);
        self.after_a_loss();
        if self.broken == Some(BrokenRule::TurnBackClock)
            && let Some((newest, _)) = self.log.last()
        {
            let ahead = self.clock.time().micros().saturating_sub(newest.micros());
            self.clock.step(-i64::try_from(ahead).unwrap_or(0));
        }
    }

    /// Drops all data.
    pub fn wipe(&mut self) {
        self.lossy = true;
        self.memory = empty(&self.clock, &self.options, true);
        self.log.clear();
        self.after_a_loss();
    }

    /// Whether its clock stays behind the lost data, as a broken rule.
    #[must_use]
    pub fn broken_clock(&self) -> bool {
        self.broken == Some(BrokenRule::TurnBackClock)
    }

    fn after_a_loss(&mut self) {
        self.news = true;
        let seen = std::mem::take(&mut self.seen);
        for group in seen.into_keys() {
            let last_event = self.status(&group).last_event;
            self.seen.insert(group, last_event);
        }
        let mut pulses = self
            .log
            .iter()
            .rev()
            .filter(|(_, ask)| matches!(ask.op, Op::BeatPulse(_)));
        self.last_pulse = pulses.next().map(|(at, _)| *at);
    }

    /// Carries out a request, unless it waits.
    pub fn serve(&mut self, request: &Request, at: At) -> Step {
        let group = request.ask.group.clone().unwrap_or_else(|| self.group.clone());
        let gap = self.status(&group).gap;
        if let Some(broken) = self.broken {
            broken.before_look(self, request, at);
        }
        let mut ask = request.ask.clone();
        if let Some(broken) = self.broken {
            broken.alter_request(&mut ask);
            broken.before_change(self, &ask.op, ask.call);
        }
        if let (Some(broken), Op::Join(join)) = (self.broken, &ask.op) {
            let look = poll_once(self.memory.member(&self.group, &join.member));
            broken.before_join(self, look.ok().flatten().map(|member| member.tenure), ask.call);
        }
        let now = self.clock.time();
        let mut reply = poll_once(self.apply(&ask));
        if let Some(broken) = self.broken {
            reply = broken.alter_reply(self, &request.ask.op, reply);
        }
        let late = reply
            .as_ref()
            .is_err_and(|error| error.kind() == tenure::ErrorKind::TooLate);
        if !ask.op.is_read() && !late {
            self.news = true;
            if matches!(ask.op, Op::BeatPulse(_)) {
                self.has_hole |= self.last_pulse.is_some_and(|last| now.since(last) > MAX_GAP);
                self.last_pulse = Some(now);
            }
            self.log.push((now, ask));
        }
        let mut events = self.new_events(&group);
        if let Some(broken) = self.broken {
            broken.alter_events(&request.ask.op, &mut events);
        }
        let status = self.status(&group);
        Step {
            number: request.number,
            node: request.node,
            sent_at: request.sent_at,
            at,
            now,
            jumped: u64::try_from(self.clock.jumped().as_micros()).unwrap_or(u64::MAX),
            group,
            op: request.ask.op.clone(),
            call: request.ask.call,
            reply,
            events,
            resumed_at: status.resumed_at,
            unsettled_until: status.unsettled.map(|grace| grace.until),
            gap,
        }
    }

    /// Adds a request that waits.
    pub fn listen(&mut self, until: At, request: Request) {
        self.news = true;
        self.listeners.push((until, request));
    }

    /// Takes the waiting requests that have news or have reached their time-out, with their replies.
    pub fn take_due_listeners(&mut self, now: At) -> Vec<(Request, Reply)> {
        let mut due = Vec::new();
        if !std::mem::take(&mut self.news) && self.next_listener().is_none_or(|until| until > now) {
            return due;
        }
        let mut newest = BTreeMap::new();
        for (until, request) in std::mem::take(&mut self.listeners) {
            let news = match &request.ask.op {
                Op::WaitForEvents(ask) => {
                    let group = request.ask.group.as_ref().unwrap_or(&self.group);
                    let newest = newest
                        .entry(group.clone())
                        .or_insert_with(|| self.status(group).last_event);
                    (ask.after < *newest).then_some(Reply::WaitForEvents(()))
                }
                // A wait without news is pending, which is an error here.
                _ => poll_once(self.apply(&request.ask)).ok(),
            };
            let nothing = || match &request.ask.op {
                Op::WaitForEvents(_) => Reply::WaitForEvents(()),
                _ => Reply::WaitForGrants(Vec::new()),
            };
            match news.or_else(|| (until <= now).then(nothing)) {
                Some(reply) => due.push((request, reply)),
                None => self.listeners.push((until, request)),
            }
        }
        due
    }

    /// The earliest time-out of the waiting requests.
    #[must_use]
    pub fn next_listener(&self) -> Option<At> {
        self.listeners.iter().map(|(until, _)| *until).min()
    }

    /// A reply without a change, with the store's time.
    pub fn answer(&self, reply: Result<Reply>) -> TimedReply {
        (reply, self.clock.time())
    }

    /// Broken rule: beats the pulse for the time of the outage, so that no step detects it.
    pub(crate) fn hide_outage(&mut self) {
        let Some(mut at) = self.last_pulse else { return };
        let now = self.clock.time();
        while now.since(at) > PULSE_EVERY {
            at = at + PULSE_EVERY;
            self.clock.pretend(Some(at));
            let beat = self.ask(Op::BeatPulse(BeatPulse::default()));
            drop(poll_once(self.apply(&beat)));
            self.log.push((at, beat));
        }
        self.last_pulse = Some(at);
        self.clock.pretend(None);
    }

    /// The events since the previous step.
    fn new_events(&mut self, group: &Group) -> Vec<Event> {
        let newest = self.status(group).last_event;
        let seen = self.seen.entry(group.clone()).or_default();
        if newest == *seen {
            return Vec::new();
        }
        let query = EventQuery {
            after: Some(std::mem::replace(seen, newest)),
            limit: 1_000,
            ..EventQuery::default()
        };
        poll_once(self.memory.events(group, &query)).map_or_else(|_| Vec::new(), |page| page.events)
    }

    /// Makes an additional call, as part of a broken rule.
    pub(crate) fn also(&mut self, op: Op) -> Result<Reply> {
        let ask = self.ask(op);
        let done = poll_once(self.apply(&ask));
        self.log.push((self.clock.time(), ask));
        done
    }

    /// A call on the group, without a sender and without a not-after.
    pub(crate) fn ask(&self, op: Op) -> StoreRequest {
        StoreRequest {
            group: (!matches!(op, Op::BeatPulse(_))).then(|| self.group.clone()),
            op,
            call: Call::default(),
        }
    }

    /// The group of the programs.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    pub(crate) async fn apply(&self, ask: &StoreRequest) -> Result<Reply> {
        make(&*self.memory, ask.clone()).await
    }
}

fn empty(clock: &Arc<StoreMachineClock>, options: &StoreOptions, lossy: bool) -> Arc<MemoryStore> {
    let reads = Arc::clone(clock) as Arc<dyn Clock>;
    clock.make(|| match lossy {
        true => MemoryStore::after_loss(options.clone(), reads),
        false => MemoryStore::new(options.clone(), reads),
    })
}

/// Polls a call of the reference store, which never waits.
pub(crate) fn poll_once<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    call.now_or_never()
        .unwrap_or_else(|| Err(Error::unavailable("the reference store would wait", Outcome::Unchanged)))
}

/// The store's state in a line of history.
impl std::fmt::Display for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Frozen => "frozen",
            Self::Down => "down",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::{Drift, WorldClock};
    use tenure_core::membership::Join;

    #[test]
    fn a_late_call_does_not_start_the_grace_after_a_loss() {
        let (world, group) = (WorldClock::default(), Group::new("g").unwrap());
        let clock = StoreMachineClock::new(&world, Drift(0));
        let options = StoreOptions::default();
        let mut server = Server::new(Arc::clone(&clock), options.clone(), group, None);
        server.wipe();
        let join = Op::Join(Join {
            member: tenure::MemberId::new("m").unwrap(),
            ttl: Duration::from_secs(10),
            labels: tenure_core::membership::Labels::default(),
        });
        let (in_time, mut late) = (server.ask(join.clone()), server.ask(join));
        let before = StoreTime::from_micros(clock.time().micros() - 1);
        late.call = Call::not_after(before);
        assert!(poll_once(server.apply(&late)).is_err());
        world.set(At(1_000_000_000));
        poll_once(server.apply(&in_time)).unwrap();
        let until = server.status(&server.group).unsettled.unwrap().until;
        assert_eq!(until, clock.time() + options.max_ttl);
    }
}
