//! The network between the nodes and the store. It delays, loses and cuts, and delivers late.
//!
//! It behaves like TCP: on one connection, messages arrive in the order in which they were sent and at most once. A
//! message held back by a cut may be delivered after it heals, long after its sender has timed out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::{Error, Outcome, Result, TenureId};
use tenure_core::call::{Op, StoreRequest};
use tokio::sync::oneshot;

use crate::chance::Chance;
use crate::time::{At, WorldClock};
use crate::wire::{Request, TimedReply};

const MS: Duration = Duration::from_millis(1);

/// How likely a request is to go wrong, per mille. All zero without faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The request is lost without an error.
    pub lose_request: u64,
    /// The request takes effect and its reply is lost.
    pub lose_reply: u64,
    /// The connection breaks. The sender is notified at once; the request may have been delivered or not.
    pub reset: u64,
    /// The request is delivered seconds after every caller has timed out.
    pub straggle: u64,
    /// The request takes tens or hundreds of milliseconds.
    pub slow: u64,
}

/// One direction of one node's link.
#[derive(Debug, Default)]
struct Lane {
    cut: bool,
    /// The longest additional time of a message of a slow client; zero for any other.
    slow: Duration,
    /// Messages on one connection arrive in order.
    last_at: At,
    /// Messages held back by the cut, delivered when it heals.
    held: Vec<Message>,
}

#[derive(Debug, Default)]
struct Link {
    out: Lane,
    back: Lane,
}

/// A message in transit.
#[derive(Debug)]
pub enum Message {
    /// A request to the store.
    Request(Request),
    /// A reply to a node.
    Reply {
        /// The node.
        node: usize,
        /// The store's reply.
        answer: TimedReply,
        /// The waiting caller.
        to: oneshot::Sender<TimedReply>,
        /// The revisions in the beats of the request.
        reported: Vec<(TenureId, u64)>,
    },
    /// The notice that a node's connection broke.
    Reset {
        /// The node.
        node: usize,
        /// The waiting caller; dropping the sender notifies it.
        to: oneshot::Sender<TimedReply>,
    },
}

#[derive(Debug)]
struct NetworkState {
    chance: Chance,
    conditions: Conditions,
    refusing: bool,
    links: Vec<Link>,
    under_way: BTreeMap<(At, u64), Message>,
    next_number: u64,
    /// Callers whose reply never arrives.
    unanswered: Vec<oneshot::Sender<TimedReply>>,
}

/// The network. Clones share state.
#[derive(Debug, Clone)]
pub struct Network {
    world: WorldClock,
    state: Arc<Mutex<NetworkState>>,
}

impl Network {
    /// Creates a network with this many links and no faults.
    #[must_use]
    pub fn new(world: &WorldClock, links: usize, chance: Chance) -> Self {
        let state = NetworkState {
            chance,
            conditions: Conditions::default(),
            refusing: false,
            links: (0..links).map(|_| Link::default()).collect(),
            under_way: BTreeMap::new(),
            next_number: 0,
            unanswered: Vec::new(),
        };
        Self {
            world: world.clone(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Sends a request. Then its reply arrives, or the sender of the reply is dropped, or neither.
    ///
    /// # Errors
    /// `Unavailable` (unchanged) when the store's machine refuses connections.
    pub fn send(&self, node: usize, ask: StoreRequest) -> Result<oneshot::Receiver<TimedReply>> {
        let now = self.world.now();
        let mut state = self.state();
        if state.refusing && !state.links[node].out.cut {
            return Err(Error::unavailable("connection refused", Outcome::Unchanged));
        }
        let (answer, answered) = oneshot::channel();
        state.next_number += 1;
        let request = Request {
            number: state.next_number,
            node,
            sent_at: now,
            ask,
            answer,
            reply_is_lost: false,
        };
        state.dispatch(request, now);
        Ok(answered)
    }

    /// Sends the reply to a request.
    pub fn reply(&self, request: Request, answer: TimedReply) {
        let now = self.world.now();
        let mut state = self.state();
        if request.reply_is_lost {
            state.never_answer(request.answer);
            return;
        }
        let (node, to) = (request.node, request.answer);
        let reported = match request.ask.op {
            Op::Beat(ask) => ask
                .beats
                .into_iter()
                .map(|beat| (beat.tenure, beat.revision.0))
                .collect(),
            _ => Vec::new(),
        };
        let message = Message::Reply {
            node,
            answer,
            to,
            reported,
        };
        if state.links[node].back.cut {
            state.links[node].back.held.push(message);
            return;
        }
        let at = now + state.travel_time();
        state.send(Direction::Back, node, at, message);
    }

    /// The time of the next arrival.
    #[must_use]
    pub fn next_arrival(&self) -> Option<At> {
        self.state().under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes one message that has arrived.
    pub fn take_arrived(&self) -> Option<Message> {
        let now = self.world.now();
        let mut state = self.state();
        let entry = state.under_way.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    /// Sets the conditions from now on.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.state().conditions = conditions;
    }

    /// Cuts or restores the directions of a node's link. Messages held back by a restored direction are delivered or
    /// lost.
    pub fn cut(&self, node: usize, out: bool, back: bool) {
        let now = self.world.now();
        let mut state = self.state();
        for (direction, cut) in [(Direction::Out, out), (Direction::Back, back)] {
            let lane = state.lane(direction, node);
            lane.cut = cut;
            if cut {
                continue;
            }
            for message in std::mem::take(&mut lane.held) {
                let at = now + state.travel_time();
                state.deliver(direction, node, at, message);
            }
        }
    }

    /// Makes a node send its requests and read its replies late, by up to this much. Returns the time when what waits
    /// on its connection has arrived: nothing sent in order arrives before that.
    pub fn slow(&self, node: usize, out: Duration, back: Duration) -> At {
        let mut state = self.state();
        let Link { out: there, back: here } = &mut state.links[node];
        (there.slow, here.slow) = (out, back);
        there.last_at.max(here.last_at)
    }

    /// Makes the store's machine refuse or accept connections. Requests in transit to it are lost and their senders
    /// notified.
    pub fn refuse(&self, refusing: bool) {
        let now = self.world.now();
        let mut state = self.state();
        state.refusing = refusing;
        if !refusing {
            return;
        }
        let (lost, rest) = std::mem::take(&mut state.under_way)
            .into_iter()
            .partition(|(_, message)| matches!(message, Message::Request(_)));
        state.under_way = rest;
        for message in BTreeMap::into_values(lost) {
            if let Message::Request(request) = message {
                state.reset(request, now);
            }
        }
    }

    /// Breaks the connection that a request came over.
    pub fn reset(&self, request: Request) {
        let now = self.world.now();
        self.state().reset(request, now);
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Out,
    Back,
}

impl NetworkState {
    fn dispatch(&mut self, mut request: Request, now: At) {
        let node = request.node;
        let Conditions {
            lose_request,
            lose_reply,
            reset,
            straggle,
            ..
        } = self.conditions;
        // Each fault draws from the stream in every case, so that a change of one does not shift the others.
        let draws: [u64; 4] = std::array::from_fn(|_| self.chance.below(1_000));
        if draws[0] < lose_request {
            return self.never_answer(request.answer);
        }
        if draws[1] < reset {
            let goes_out = self.chance.happens(500);
            let (silent, _) = oneshot::channel();
            let sender = std::mem::replace(&mut request.answer, silent);
            let at = now + self.travel_time();
            self.deliver(Direction::Back, node, at, Message::Reset { node, to: sender });
            if !goes_out {
                return;
            }
        }
        request.reply_is_lost = draws[2] < lose_reply;
        if self.links[node].out.cut {
            // The kernel retransmits what it holds when the cut heals, unless the process has closed the connection by
            // then.
            match self.chance.happens(700) {
                true => self.links[node].out.held.push(Message::Request(request)),
                false => self.never_answer(request.answer),
            }
        } else if draws[3] < straggle {
            // It waits in a buffer of an abandoned connection, so it delays no other message.
            let at = now + self.chance.duration(MS * 1_000, MS * 15_000);
            self.post(at, Message::Request(request));
        } else {
            let at = now + self.travel_time();
            self.send(Direction::Out, node, at, Message::Request(request));
        }
    }

    /// Delivers a message that a slow client sends or reads late: half of them in the order of its connection, half over
    /// a connection of their own.
    fn send(&mut self, direction: Direction, node: usize, at: At, message: Message) {
        let slow = self.lane(direction, node).slow;
        if slow.is_zero() {
            return self.deliver(direction, node, at, message);
        }
        let at = at + self.chance.duration(Duration::ZERO, slow);
        match self.chance.happens(500) {
            true => self.deliver(direction, node, at, message),
            false => self.post(at, message),
        }
    }

    fn travel_time(&mut self) -> Duration {
        if self.chance.happens(self.conditions.slow) {
            self.chance.duration(MS * 20, MS * 400)
        } else {
            self.chance.duration(MS / 20, MS * 2)
        }
    }

    /// Delivers in the order of the connection.
    fn deliver(&mut self, direction: Direction, node: usize, at: At, message: Message) {
        let lane = self.lane(direction, node);
        lane.last_at = lane.last_at.max(at);
        let at = lane.last_at;
        self.post(at, message);
    }

    fn post(&mut self, at: At, message: Message) {
        self.next_number += 1;
        self.under_way.insert((at, self.next_number), message);
    }

    fn reset(&mut self, request: Request, now: At) {
        let at = now + self.travel_time();
        let (node, to) = (request.node, request.answer);
        self.deliver(Direction::Back, node, at, Message::Reset { node, to });
    }

    fn never_answer(&mut self, answer: oneshot::Sender<TimedReply>) {
        self.unanswered.retain(|waiting| !waiting.is_closed());
        self.unanswered.push(answer);
    }

    fn lane(&mut self, direction: Direction, node: usize) -> &mut Lane {
        match direction {
            Direction::Out => &mut self.links[node].out,
            Direction::Back => &mut self.links[node].back,
        }
    }
}
