//! A member that speaks HTTP, and does what it must not as well.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::Stage;
use crate::client::Api;
use crate::history::{Outcome, Recorder, Verb, micros};
use crate::random::Random;

/// The current tenure of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Current {
    tenure: String,
    /// The revision of its holdings, while every change up to it is known: its beats name it.
    revision: Option<u64>,
    /// A beat was answered with another revision.
    is_doubtful: bool,
}

/// The tenures of a member.
#[derive(Debug, Default)]
struct Tenures {
    current: Option<Current>,
    /// Those that have ended, which it tries all the same.
    old: Vec<String>,
}

impl Tenures {
    /// Ends the current tenure for this member, or begins one.
    fn set(&mut self, tenure: Option<String>) {
        let next = tenure.map(|tenure| Current {
            tenure,
            revision: None,
            is_doubtful: false,
        });
        let before = std::mem::replace(&mut self.current, next);
        self.old.extend(before.map(|before| before.tenure));
        if self.old.len() > 3 {
            self.old.remove(0);
        }
    }
}

/// What a member and its beater share.
#[derive(Debug, Clone, Default)]
struct Shared {
    tenures: Arc<Mutex<Tenures>>,
    is_frozen: Arc<AtomicBool>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tenures> {
        self.tenures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the revision, if this is still the current tenure.
    fn set_revision(&self, tenure: &str, revision: Option<u64>) {
        let mut tenures = self.lock();
        if let Some(current) = tenures.current.as_mut().filter(|current| current.tenure == tenure) {
            current.revision = revision;
            current.is_doubtful &= revision.is_none();
        }
    }
}

/// A lease that a member was granted.
#[derive(Debug, Clone)]
struct Granted {
    lease: String,
    tenure: String,
    token: u64,
}

/// A member that speaks HTTP.
#[derive(Debug)]
pub struct Raw {
    number: usize,
    name: String,
    ttl: Duration,
    api: Api,
    recorder: Recorder,
    stage: Arc<Stage>,
    random: Random,
    shared: Shared,
    /// Its leases, also those that it should no longer have.
    leases: Vec<Granted>,
    /// What the current tenure was granted, and has not noticed to be gone.
    unnoticed: Vec<Granted>,
}

impl Raw {
    /// A member that has not joined yet.
    #[must_use]
    pub fn new(
        number: usize,
        addr: SocketAddr,
        ttl: Duration,
        recorder: &Recorder,
        stage: &Arc<Stage>,
        seed: u64,
    ) -> Self {
        Self {
            number,
            name: format!("m{number}"),
            ttl,
            api: Api::new(number, addr, recorder),
            recorder: recorder.clone(),
            stage: Arc::clone(stage),
            random: Random::new(seed, 100 + number as u64),
            shared: Shared::default(),
            leases: Vec::new(),
            unnoticed: Vec::new(),
        }
    }

    fn current(&self) -> Option<Current> {
        self.shared.lock().current.clone()
    }

    /// Ends the current tenure for this member, or begins one.
    fn set(&mut self, tenure: Option<String>) {
        self.shared.lock().set(tenure);
        self.unnoticed.clear();
    }

    /// Beats and acts until the stage is over.
    pub async fn run(mut self, addr: SocketAddr) {
        let beater = Beater {
            api: Api::new(self.number, addr, &self.recorder),
            ttl: self.ttl,
            shared: self.shared.clone(),
            stage: Arc::clone(&self.stage),
            is_batching: self.number % 4 < 2,
        };
        let beating = tokio::spawn(beater.run());
        while !self.stage.is_over() {
            if self.stage.acts() {
                self.act().await;
            }
            sleep(Duration::from_millis(self.random.between(10, 60))).await;
        }
        let _ = beating.await;
    }

    async fn act(&mut self) {
        let Some(current) = self.current() else {
            let joined = self.api.join(&self.name, self.ttl).await;
            self.set(joined);
            return;
        };
        if current.is_doubtful || current.revision.is_none() && self.random.below(3) == 0 {
            self.read_back(&current.tenure).await;
        }
        let tenure = current.tenure;
        // Now and then under a tenure that has ended: nothing of it may be accepted.
        let old = self.shared.lock().old.clone();
        let by = match old.is_empty() || self.random.below(12) > 0 {
            true => tenure.clone(),
            false => old[usize::try_from(self.random.below(old.len() as u64)).unwrap_or(0)].clone(),
        };
        let outcome = match self.random.below(100) {
            0..24 => self.acquire(&by).await,
            24..42 => self.release(&by).await,
            42..56 => self.claim(&by).await,
            56..64 => {
                let key = self.stage.key(&mut self.random);
                self.change(&by, Verb::Unclaim(key)).await
            }
            64..78 => {
                let key = self.stage.key(&mut self.random);
                self.api.call("", Verb::ReadClaim(key)).await
            }
            78..91 => {
                let lease = self.stage.lease(&mut self.random);
                self.api.call("", Verb::ReadLease(lease)).await
            }
            91..94 if by != tenure => self.api.beat(&by, self.ttl, None).await,
            94..96 => {
                let joined = self.api.join(&self.name, self.ttl).await;
                // After an unknown join the old tenure may go on, or find that it was superseded.
                if joined.is_some() {
                    self.set(joined);
                }
                return;
            }
            96..97 => {
                let outcome = self.api.call(&by, Verb::Leave).await;
                if by == tenure && outcome != Outcome::Refused("not sent".to_owned()) {
                    self.set(None);
                }
                return;
            }
            97..98 => return self.freeze().await,
            _ => return,
        };
        if by == tenure && matches!(outcome, Outcome::Ended(_)) {
            self.set(None);
        }
    }

    /// Makes a call that may change what the tenure holds: its revision is known afterwards only if the answer continues it.
    async fn change(&mut self, by: &str, verb: Verb) -> Outcome {
        let current = self.current().filter(|current| current.tenure == by);
        let known = current.and_then(|current| current.revision);
        self.shared.set_revision(by, None);
        let outcome = self.api.call(by, verb).await;
        let number = |name: &str| self.api.said()[name].as_u64();
        let next = match &outcome {
            Outcome::Granted(_) if known.is_some() && number("revision_before") == known => number("revision"),
            Outcome::Taken(_) | Outcome::Refused(_) => known,
            _ => None,
        };
        if next.is_some() {
            self.shared.set_revision(by, next);
        }
        outcome
    }

    /// Reads which leases the tenure holds, drops the others, and then knows its revision.
    async fn read_back(&mut self, tenure: &str) {
        let Some(page) = self.api.get(&format!("leases?limit=1000&tenure={tenure}")).await else {
            return;
        };
        let listed = page["leases"].as_array().map_or(&[][..], Vec::as_slice);
        let has = |granted: &Granted| {
            let holders = listed.iter().filter(|lease| lease["lease"] == granted.lease.as_str());
            let mut holders = holders.flat_map(|lease| lease["holders"].as_array().into_iter().flatten());
            holders.any(|holder| holder["token"] == granted.token && holder["revoked"] != true)
        };
        for granted in self.unnoticed.extract_if(.., |granted| !has(granted)) {
            self.api.note(tenure, Verb::Notice(granted.lease, granted.token));
        }
        self.shared.set_revision(tenure, page["revision"].as_u64());
    }

    async fn acquire(&mut self, by: &str) -> Outcome {
        let lease = self.stage.lease(&mut self.random);
        let wait = micros(Stage::wait(&mut self.random));
        let outcome = self.change(by, Verb::Acquire(lease.clone(), wait)).await;
        if let Outcome::Granted(grant) = outcome {
            let tenure = by.to_owned();
            let token = grant.token;
            let granted = Granted { lease, tenure, token };
            if self.current().is_some_and(|current| current.tenure == granted.tenure) {
                self.unnoticed.push(granted.clone());
            }
            self.leases.push(granted);
            if self.leases.len() > 8 {
                self.leases.remove(0);
            }
        }
        outcome
    }

    /// Releases a lease that it has, or had: under an old token nothing may come free.
    async fn release(&mut self, by: &str) -> Outcome {
        if self.leases.is_empty() {
            return self.acquire(by).await;
        }
        let at = usize::try_from(self.random.below(self.leases.len() as u64)).unwrap_or(0);
        let Granted { lease, tenure, token } = match self.random.below(3) {
            0 => self.leases[at].clone(),
            _ => self.leases.remove(at),
        };
        let outcome = self.change(&tenure, Verb::Release(lease, token)).await;
        match self.current().is_some_and(|current| current.tenure == tenure) {
            true => outcome,
            // The end of an older tenure is not that of the current one.
            false => Outcome::Refused("an older tenure".to_owned()),
        }
    }

    async fn claim(&mut self, by: &str) -> Outcome {
        let key = self.stage.key(&mut self.random);
        let if_absent = self.random.below(2) == 0;
        self.change(by, Verb::Claim(key, if_absent)).await
    }

    /// Does nothing for a while, for longer than its ttl or nearly as long.
    async fn freeze(&mut self) {
        self.shared.is_frozen.store(true, Ordering::SeqCst);
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(1_000);
        sleep(Duration::from_millis(self.random.between(ttl / 2, 2 * ttl))).await;
        self.shared.is_frozen.store(false, Ordering::SeqCst);
    }
}

/// Beats for whatever tenure its member has.
#[derive(Debug)]
struct Beater {
    api: Api,
    ttl: Duration,
    shared: Shared,
    stage: Arc<Stage>,
    /// It sends a batch, with beats of tenures that have ended before that of the current one.
    is_batching: bool,
}

impl Beater {
    async fn run(mut self) {
        while !self.stage.is_over() {
            let (current, old) = {
                let tenures = self.shared.lock();
                (tenures.current.clone(), tenures.old.clone())
            };
            if let (Some(current), false) = (current, self.shared.is_frozen.load(Ordering::SeqCst)) {
                self.beat(&current, old).await;
            }
            sleep(self.ttl / 4).await;
        }
    }

    async fn beat(&mut self, sent: &Current, old: Vec<String>) {
        let outcome = if self.is_batching {
            let mut tenures = old;
            tenures.push(sent.tenure.clone());
            self.api.beats(&tenures, self.ttl, sent.revision).await
        } else {
            self.api.beat(&sent.tenure, self.ttl, sent.revision).await
        };
        let answered = self.api.said().get("revision").and_then(Value::as_u64);
        let mut tenures = self.shared.lock();
        let Some(now) = tenures.current.as_mut().filter(|now| now.tenure == sent.tenure) else {
            return;
        };
        match outcome {
            Outcome::Ended(_) => tenures.set(None),
            Outcome::Done if sent.revision.is_some() && answered != sent.revision && now.revision == sent.revision => {
                now.revision = None;
                now.is_doubtful = true;
            }
            _ => {}
        }
    }
}
