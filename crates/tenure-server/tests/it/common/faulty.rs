//! The reference store in a mood: it hangs, fails, panics, or waits at a gate.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::call::{Reply, StoreRequest, Verb};
use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::Group;
use tenure_core::memory::MemoryStore;
use tenure_core::store::middleware::Middleware;
use tenure_core::store::{Health, Store, StoreOptions};
use tenure_core::timeout::Timeout;
use tokio::sync::Semaphore;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// Never answers.
    Hangs,
    /// Answers with an error of this kind.
    Fails(ErrorKind),
    Panics,
    /// Waits for [`Faulty::open`] at this call, then does it.
    WaitsAt(Verb),
    /// Is away for this group alone.
    FailsIn(&'static str),
    /// Takes so long for this call.
    Slow(Verb, Duration),
}

pub struct Faulty {
    inner: Arc<MemoryStore>,
    clock: Arc<dyn Clock>,
    mood: Mutex<Mood>,
    gate: Semaphore,
    /// Counts calls that arrived at the gate.
    at_gate: Semaphore,
    ticks: AtomicUsize,
    spared: Mutex<Vec<Group>>,
    /// How long a call that hangs takes until this store says so itself.
    time_out: Option<Duration>,
}

impl Faulty {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::make(clock, None)
    }

    /// One that has a time-out of its own, as a store over a network has.
    pub fn with_time_out(clock: Arc<dyn Clock>, time_out: Duration) -> Arc<Self> {
        Self::make(clock, Some(time_out))
    }

    fn make(clock: Arc<dyn Clock>, time_out: Option<Duration>) -> Arc<Self> {
        let inner = MemoryStore::new(StoreOptions::default(), Arc::clone(&clock));
        Arc::new(Self {
            inner,
            clock,
            mood: Mutex::new(Mood::Good),
            gate: Semaphore::new(0),
            at_gate: Semaphore::new(0),
            ticks: AtomicUsize::new(0),
            spared: Mutex::default(),
            time_out,
        })
    }

    pub fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// Lets this many waiting calls go on.
    pub fn open(&self, calls: usize) {
        self.gate.add_permits(calls);
    }

    /// How many ticks it was asked for.
    pub fn ticks(&self) -> usize {
        self.ticks.load(Ordering::SeqCst)
    }

    /// The groups for which refused beats were reported to it.
    pub fn spared(&self) -> Vec<Group> {
        self.spared.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a call is at the gate, or is slow.
    pub async fn someone_waits(&self) {
        self.at_gate.acquire().await.expect("an open semaphore").forget();
    }
}

impl Middleware for Faulty {
    fn store(&self) -> Arc<dyn Store> {
        self.inner.clone()
    }

    async fn handle(&self, ask: StoreRequest) -> Result<Reply> {
        // A probe ticks a group without members.
        let asked = match ask.op.verb() {
            Verb::Probe => Verb::Tick,
            verb => verb,
        };
        let (group, store) = (ask.group.clone(), self.store());
        let call = store.call(ask);
        let mood = *self.mood.lock().unwrap_or_else(PoisonError::into_inner);
        if asked == Verb::Tick {
            self.ticks.fetch_add(1, Ordering::SeqCst);
        }
        if asked == Verb::Spare {
            let mut spared = self.spared.lock().unwrap_or_else(PoisonError::into_inner);
            spared.extend(group.clone());
        }
        match mood {
            Mood::Good => call.await,
            Mood::WaitsAt(verb) | Mood::Slow(verb, _) if verb != asked => call.await,
            Mood::FailsIn(away) if group.as_ref().is_none_or(|group| group.as_str() != away) => call.await,
            Mood::Hangs => match self.time_out {
                Some(own) => Timeout::change(own).call(&*self.clock, "the server", pending()).await,
                None => pending().await,
            },
            Mood::FailsIn(_) | Mood::Fails(ErrorKind::Unavailable) => {
                Err(Error::unavailable("made to be away", Outcome::Unchanged))
            }
            Mood::Fails(kind) => Err(Error::new(kind, "made to fail")),
            Mood::Panics => panic!("made to panic"),
            Mood::Slow(_, wait) => {
                self.at_gate.add_permits(1);
                self.clock.sleep(wait).await;
                call.await
            }
            Mood::WaitsAt(_) => {
                self.at_gate.add_permits(1);
                self.gate.acquire().await.expect("an open semaphore").forget();
                call.await
            }
        }
    }

    fn answers_within(&self) -> Option<Duration> {
        self.time_out
    }

    fn place(&self) -> String {
        "faulty:".to_owned()
    }

    fn health(&self) -> Health {
        Health::Up
    }
}
