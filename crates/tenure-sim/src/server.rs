//! The store's machine: the reference store, with everything that can happen to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tenure::{Clock, Error, Event, EventId, EventQuery, Group, GroupStatus, Outcome, Result, StoreOptions, StoreTime};
use tenure_core::call::{Ask, Op, Reply, make};
use tenure_core::event::EventLog;
use tenure_core::membership::MembershipStore;
use tenure_core::memory::MemoryStore;
use tenure_core::store::Call;
use tenure_core::sweep::{Sweep, Tick};

use crate::broken::Broken;
use crate::step::Step;
use crate::store_clock::StoreMachineClock;
use crate::time::At;
use crate::wire::{Answer, Request};

/// Whether it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    /// It answers.
    Up,
    /// It takes requests and answers none until it goes on; then it carries out all of them.
    Frozen,
    /// It is not there.
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
    broken: Option<Broken>,
    /// What arrived while it was frozen.
    stalled: VecDeque<Request>,
    /// Those who wait for events, and until when.
    listeners: Vec<(EventId, At, Request)>,
    /// Its data was lost once, so it knows that it may have had more.
    lossy: bool,
    /// Every step since it was last empty: what a restart from an older copy is made from.
    log: Vec<(StoreTime, Ask)>,
    last_event: EventId,
    last_step: Option<StoreTime>,
}

impl Server {
    /// A store that has never served.
    #[must_use]
    pub fn new(clock: Arc<StoreMachineClock>, options: StoreOptions, group: Group, broken: Option<Broken>) -> Self {
        let memory = empty(&clock, &options, false);
        Self {
            clock,
            options,
            group,
            memory,
            serving: Serving::Up,
            broken,
            stalled: VecDeque::new(),
            lossy: false,
            listeners: Vec::new(),
            log: Vec::new(),
            last_event: EventId(0),
            last_step: None,
        }
    }

    /// The store behind the network, for looking at it as nobody in the world can.
    #[must_use]
    pub fn truth(&self) -> &MemoryStore {
        &self.memory
    }

    /// Its state now.
    #[must_use]
    pub fn status(&self) -> GroupStatus {
        at_once(self.memory.status(&self.group)).expect("the reference store is never closed")
    }

    /// Whether it serves.
    #[must_use]
    pub fn serving(&self) -> Serving {
        self.serving
    }

    /// It stops answering. What arrives waits.
    pub fn freeze(&mut self) {
        self.serving = Serving::Frozen;
    }

    /// It goes away, and with it everything that waited. The requests are to be reset.
    pub fn stop(&mut self) -> Vec<Request> {
        self.serving = Serving::Down;
        let listening = std::mem::take(&mut self.listeners).into_iter();
        self.stalled
            .drain(..)
            .chain(listening.map(|(_, _, request)| request))
            .collect()
    }

    /// It serves again. What waited is to be carried out.
    pub fn go_on(&mut self) -> VecDeque<Request> {
        self.serving = Serving::Up;
        std::mem::take(&mut self.stalled)
    }

    /// A request that arrives while it is frozen waits.
    pub fn stall(&mut self, request: Request) {
        self.stalled.push_back(request);
    }

    /// How many steps it remembers: a place to go back to.
    #[must_use]
    pub fn place(&self) -> usize {
        self.log.len()
    }

    /// The newest steps are lost, as in a failover to a replica that lagged or a restart from an older copy.
    pub fn roll_back(&mut self, to: usize) {
        self.log.truncate(to);
        self.memory = empty(&self.clock, &self.options, self.lossy);
        let log = std::mem::take(&mut self.log);
        for (at, ask) in &log {
            self.clock.pretend(Some(*at));
            // What it answered the first time, it answers again: the model has no other input.
            drop(at_once(self.apply(ask)));
        }
        self.clock.pretend(None);
        self.log = log;
        self.after_a_loss();
        if self.broken == Some(Broken::TurnBackClock)
            && let Some((newest, _)) = self.log.last()
        {
            let ahead = self.clock.time().micros().saturating_sub(newest.micros());
            self.clock.step(-i64::try_from(ahead).unwrap_or(0));
        }
    }

    /// All data is lost.
    pub fn wipe(&mut self) {
        self.lossy = true;
        self.memory = empty(&self.clock, &self.options, true);
        self.log.clear();
        self.after_a_loss();
    }

    /// Whether its clock stays behind what it has lost: broken on purpose.
    #[must_use]
    pub fn broken_clock(&self) -> bool {
        self.broken == Some(Broken::TurnBackClock)
    }

    fn after_a_loss(&mut self) {
        self.last_event = self.status().last_event;
        self.last_step = self.log.last().map(|(at, _)| *at);
    }

    /// Carries a request out, unless it is one that waits for events.
    pub fn serve(&mut self, request: &Request, at: At) -> Step {
        let gap = self.status().gap;
        if let (Some(Broken::NoGrace), true, Some(last)) = (self.broken, !request.ask.op.is_read(), self.last_step) {
            self.hide_the_silence(last, gap);
        }
        let mut ask = request.ask.clone();
        if let Some(broken) = self.broken {
            broken.bend_request(&mut ask);
        }
        if let (Some(broken), Op::Join(join)) = (self.broken, &ask.op) {
            let look = at_once(self.memory.member(&self.group, &join.member));
            broken.before_join(self, look.ok().flatten().map(|member| member.tenure), ask.call);
        }
        let now = self.clock.time();
        let mut reply = at_once(self.apply(&ask));
        if let Some(broken) = self.broken {
            reply = broken.bend(self, &request.ask.op, reply);
        }
        let late = reply
            .as_ref()
            .is_err_and(|error| error.kind() == tenure::ErrorKind::TooLate);
        if !ask.op.is_read() && !late {
            self.log.push((now, ask));
            self.last_step = Some(now);
        }
        let events = self.new_events();
        let status = self.status();
        Step {
            number: request.number,
            node: request.node,
            sent_at: request.sent_at,
            at,
            now,
            jumped: u64::try_from(self.clock.jumped().as_micros()).unwrap_or(u64::MAX),
            op: request.ask.op.clone(),
            call: request.ask.call,
            reply,
            events,
            resumed_at: status.resumed_at,
            unsettled_until: status.unsettled.map(|grace| grace.until),
            gap,
        }
    }

    /// Somebody waits for events.
    pub fn listen(&mut self, after: EventId, until: At, request: Request) {
        self.listeners.push((after, until, request));
    }

    /// Those who have waited for what has happened by now, and those who have waited long enough.
    pub fn heard(&mut self, now: At) -> Vec<Request> {
        let newest = self.status().last_event;
        let (over, waiting) = std::mem::take(&mut self.listeners)
            .into_iter()
            .partition(|(after, until, _)| *after < newest || *until <= now);
        self.listeners = waiting;
        let over: Vec<(EventId, At, Request)> = over;
        over.into_iter().map(|(_, _, request)| request).collect()
    }

    /// When the first of those who wait has waited long enough.
    #[must_use]
    pub fn next_listener(&self) -> Option<At> {
        self.listeners.iter().map(|(_, until, _)| *until).min()
    }

    /// An answer without a change: the store's time goes with it.
    pub fn answer(&self, reply: Result<Reply>) -> Answer {
        (reply, self.clock.time())
    }

    /// Break on purpose: ticks for the time in which nobody served, so that the silence is never noticed.
    fn hide_the_silence(&mut self, last: StoreTime, gap: Duration) {
        let (now, mut at) = (self.clock.time(), last);
        while now.since(at) > gap {
            at = at + gap / 2;
            self.clock.pretend(Some(at));
            let tick = self.ask(Op::Tick(Tick));
            drop(at_once(self.apply(&tick)));
            self.log.push((at, tick));
        }
        // Also when the call itself comes too late: the next one must not go back to before these ticks.
        self.last_step = Some(at);
        self.clock.pretend(None);
    }

    /// The events since the step before.
    fn new_events(&mut self) -> Vec<Event> {
        let newest = self.status().last_event;
        if newest == self.last_event {
            return Vec::new();
        }
        let query = EventQuery {
            after: Some(self.last_event),
            limit: 1_000,
            ..EventQuery::default()
        };
        self.last_event = newest;
        at_once(self.memory.events(&self.group, &query)).map_or_else(|_| Vec::new(), |page| page.events)
    }

    /// Something that the store does besides: broken on purpose.
    pub(crate) fn also(&mut self, op: Op) -> Result<Reply> {
        let ask = self.ask(op);
        let done = at_once(self.apply(&ask));
        self.log.push((self.clock.time(), ask));
        done
    }

    /// A call about the group of the world, without a sender and without a not-after.
    pub(crate) fn ask(&self, op: Op) -> Ask {
        Ask {
            group: Some(self.group.clone()),
            op,
            call: Call::default(),
        }
    }

    pub(crate) async fn apply(&self, ask: &Ask) -> Result<Reply> {
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

/// The reference store never waits.
pub(crate) fn at_once<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    call.now_or_never()
        .unwrap_or_else(|| Err(Error::unavailable("the store inside would wait", Outcome::Unchanged)))
}

/// Where the store is, for a line of history.
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
    use super::*;
    use crate::time::{Drift, WorldClock};
    use tenure_core::membership::Join;

    #[test]
    fn a_call_that_comes_too_late_does_not_begin_the_wait_after_a_loss() {
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
        assert!(at_once(server.apply(&late)).is_err());
        world.set(At(1_000_000_000));
        at_once(server.apply(&in_time)).unwrap();
        let until = server.status().unsettled.unwrap().until;
        assert_eq!(until, clock.time() + options.max_ttl);
    }
}
