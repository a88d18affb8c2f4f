//! The network between the nodes and the store: it delays, loses, cuts, and delivers what nobody waits for any more.
//!
//! It behaves like TCP: on one connection things arrive in the order in which they were sent, nothing arrives twice, and
//! what a cut held back may be delivered once it heals, however long ago its sender gave up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::{Error, Outcome, Result, TenureId};
use tenure_core::call::{Ask, Op};
use tokio::sync::oneshot;

use crate::chance::Chance;
use crate::time::{At, WorldClock};
use crate::wire::{Answer, Request};

const MS: Duration = Duration::from_millis(1);

/// How likely a request is to go wrong, per mille. All zero in calm weather.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weather {
    /// It never arrives, and nobody says so.
    pub lose_request: u64,
    /// It takes effect, and its answer never arrives.
    pub lose_reply: u64,
    /// The connection breaks: the sender is told at once, the request may have gone out or not.
    pub reset: u64,
    /// It is delivered seconds after everybody has given up.
    pub straggle: u64,
    /// It takes tens or hundreds of milliseconds.
    pub slow: u64,
}

/// One direction of one node's link.
#[derive(Debug, Default)]
struct Lane {
    cut: bool,
    /// On one connection nothing overtakes.
    last_at: At,
    /// Held back by the cut, delivered when it heals.
    held: Vec<Parcel>,
}

#[derive(Debug, Default)]
struct Link {
    out: Lane,
    back: Lane,
}

/// Something on its way.
#[derive(Debug)]
pub enum Parcel {
    /// To the store.
    Request(Request),
    /// To a node.
    Answer {
        /// Which.
        node: usize,
        /// What the store said.
        answer: Answer,
        /// Who waits for it.
        to: oneshot::Sender<Answer>,
        /// What the beats told that it answers.
        told: Vec<(TenureId, u64)>,
    },
    /// A node learns that its connection broke.
    Reset {
        /// Which.
        node: usize,
        /// Who waits for it; dropping it is the news.
        to: oneshot::Sender<Answer>,
    },
}

#[derive(Debug)]
struct State {
    chance: Chance,
    weather: Weather,
    refusing: bool,
    links: Vec<Link>,
    under_way: BTreeMap<(At, u64), Parcel>,
    next_number: u64,
    /// Those who wait for an answer that never comes.
    hanging: Vec<oneshot::Sender<Answer>>,
}

/// The network. All clones are one.
#[derive(Debug, Clone)]
pub struct Network {
    world: WorldClock,
    state: Arc<Mutex<State>>,
}

impl Network {
    /// A calm network with this many links.
    #[must_use]
    pub fn new(world: &WorldClock, links: usize, chance: Chance) -> Self {
        let state = State {
            chance,
            weather: Weather::default(),
            refusing: false,
            links: (0..links).map(|_| Link::default()).collect(),
            under_way: BTreeMap::new(),
            next_number: 0,
            hanging: Vec::new(),
        };
        Self {
            world: world.clone(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Sends a request. Its answer arrives, or the sender of it is dropped, or neither.
    ///
    /// # Errors
    /// `Unavailable` (unchanged) when the store's machine refuses connections.
    pub fn send(&self, node: usize, ask: Ask) -> Result<oneshot::Receiver<Answer>> {
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

    /// Sends the answer to a request back.
    pub fn reply(&self, request: Request, answer: Answer) {
        let now = self.world.now();
        let mut state = self.state();
        if request.reply_is_lost {
            state.hang(request.answer);
            return;
        }
        let (node, to) = (request.node, request.answer);
        let told = match request.ask.op {
            Op::Beat(ask) => ask
                .beats
                .into_iter()
                .map(|beat| (beat.tenure, beat.revision.0))
                .collect(),
            _ => Vec::new(),
        };
        let parcel = Parcel::Answer { node, answer, to, told };
        if state.links[node].back.cut {
            state.links[node].back.held.push(parcel);
            return;
        }
        let at = now + state.travel_time();
        state.deliver(Direction::Back, node, at, parcel);
    }

    /// When the next thing arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<At> {
        self.state().under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// What arrives now, one at a time.
    pub fn take_arrived(&self) -> Option<Parcel> {
        let now = self.world.now();
        let mut state = self.state();
        let entry = state.under_way.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    /// The weather from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// Cuts the directions of a node's link, or mends them. What a mended lane held back is delivered or lost.
    pub fn cut(&self, node: usize, out: bool, back: bool) {
        let now = self.world.now();
        let mut state = self.state();
        for (direction, cut) in [(Direction::Out, out), (Direction::Back, back)] {
            let lane = state.lane(direction, node);
            lane.cut = cut;
            if cut {
                continue;
            }
            for parcel in std::mem::take(&mut lane.held) {
                let at = now + state.travel_time();
                state.deliver(direction, node, at, parcel);
            }
        }
    }

    /// The store's machine refuses connections, or takes them again. What was on its way to it is lost, and its sender
    /// is told.
    pub fn refuse(&self, refusing: bool) {
        let now = self.world.now();
        let mut state = self.state();
        state.refusing = refusing;
        if !refusing {
            return;
        }
        let (lost, rest) = std::mem::take(&mut state.under_way)
            .into_iter()
            .partition(|(_, parcel)| matches!(parcel, Parcel::Request(_)));
        state.under_way = rest;
        for parcel in BTreeMap::into_values(lost) {
            if let Parcel::Request(request) = parcel {
                state.reset(request, now);
            }
        }
    }

    /// Breaks the connection that a request came over.
    pub fn reset(&self, request: Request) {
        let now = self.world.now();
        self.state().reset(request, now);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Out,
    Back,
}

impl State {
    fn dispatch(&mut self, mut request: Request, now: At) {
        let node = request.node;
        let Weather {
            lose_request,
            lose_reply,
            reset,
            straggle,
            ..
        } = self.weather;
        // Each fault draws from the stream whether or not it comes to it, so that a change of one moves no other.
        let draws: [u64; 4] = std::array::from_fn(|_| self.chance.below(1_000));
        if draws[0] < lose_request {
            return self.hang(request.answer);
        }
        if draws[1] < reset {
            let goes_out = self.chance.happens(500);
            let (silent, _) = oneshot::channel();
            let told = std::mem::replace(&mut request.answer, silent);
            let at = now + self.travel_time();
            self.deliver(Direction::Back, node, at, Parcel::Reset { node, to: told });
            if !goes_out {
                return;
            }
        }
        request.reply_is_lost = draws[2] < lose_reply;
        if self.links[node].out.cut {
            // What the kernel holds is sent again when the cut heals; sometimes the process has closed it by then.
            match self.chance.happens(700) {
                true => self.links[node].out.held.push(Parcel::Request(request)),
                false => self.hang(request.answer),
            }
        } else if draws[3] < straggle {
            // It sits in a buffer of an abandoned connection, and so delays nothing behind it.
            let at = now + self.chance.duration(MS * 1_000, MS * 15_000);
            self.post(at, Parcel::Request(request));
        } else {
            let at = now + self.travel_time();
            self.deliver(Direction::Out, node, at, Parcel::Request(request));
        }
    }

    fn travel_time(&mut self) -> Duration {
        if self.chance.happens(self.weather.slow) {
            self.chance.duration(MS * 20, MS * 400)
        } else {
            self.chance.duration(MS / 20, MS * 2)
        }
    }

    /// In the order of the connection.
    fn deliver(&mut self, direction: Direction, node: usize, at: At, parcel: Parcel) {
        let lane = self.lane(direction, node);
        lane.last_at = lane.last_at.max(at);
        let at = lane.last_at;
        self.post(at, parcel);
    }

    fn post(&mut self, at: At, parcel: Parcel) {
        self.next_number += 1;
        self.under_way.insert((at, self.next_number), parcel);
    }

    fn reset(&mut self, request: Request, now: At) {
        let at = now + self.travel_time();
        let (node, to) = (request.node, request.answer);
        self.deliver(Direction::Back, node, at, Parcel::Reset { node, to });
    }

    fn hang(&mut self, answer: oneshot::Sender<Answer>) {
        self.hanging.retain(|waiting| !waiting.is_closed());
        self.hanging.push(answer);
    }

    fn lane(&mut self, direction: Direction, node: usize) -> &mut Lane {
        match direction {
            Direction::Out => &mut self.links[node].out,
            Direction::Back => &mut self.links[node].back,
        }
    }
}
