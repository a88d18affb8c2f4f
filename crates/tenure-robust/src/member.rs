//! Members of the group: those that speak HTTP, and do what they must not as well, and those of the library.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::{Acquire, JoinOptions, LeaseGuard, Membership, Tenure, Verdict};
use tokio::time::sleep;

use crate::client::{Api, GROUP};
use crate::history::{Call, Micros, Outcome, Recorder, Verb};
use crate::random::Random;

/// How long new names of leases and keys are used: it keeps the history of each short.
const EPOCH: Duration = Duration::from_secs(6);
const LEASES: u64 = 3;
const KEYS: u64 = 4;

/// Whether clients act, or only beat, or have stopped.
#[derive(Debug, Default)]
pub struct Stage {
    is_quiet: AtomicBool,
    is_over: AtomicBool,
}

impl Stage {
    /// From now on members only beat.
    pub fn quiet(&self) {
        self.is_quiet.store(true, Ordering::SeqCst);
    }

    /// From now on they do nothing.
    pub fn over(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn acts(&self) -> bool {
        !self.is_quiet.load(Ordering::SeqCst)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// Names of the leases and keys that are used at an instant.
fn epoch(recorder: &Recorder) -> u64 {
    recorder.clock.now() / crate::history::micros(EPOCH)
}

/// The names of all keys that were used so far.
#[must_use]
pub fn all_keys(recorder: &Recorder) -> Vec<String> {
    (0..=epoch(recorder))
        .flat_map(|epoch| (0..KEYS).map(move |n| format!("k{epoch}-{n}")))
        .collect()
}

fn lease(recorder: &Recorder, random: &mut Random) -> String {
    format!("l{}-{}", epoch(recorder), random.below(LEASES))
}

fn key(recorder: &Recorder, random: &mut Random) -> String {
    format!("k{}-{}", epoch(recorder), random.below(KEYS))
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
    /// The current tenure, which its beater beats for; and whether it is frozen.
    tenure: Arc<Mutex<Option<String>>>,
    is_frozen: Arc<AtomicBool>,
    /// Leases by name, tenure and token, also those that it should no longer have.
    leases: Vec<(String, String, u64)>,
    /// Tenures that have ended, which it tries all the same.
    old: Vec<String>,
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
            tenure: Arc::default(),
            is_frozen: Arc::default(),
            leases: Vec::new(),
            old: Vec::new(),
        }
    }

    fn current(&self) -> Option<String> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the current tenure for this member, or begins one.
    fn set(&mut self, tenure: Option<String>) {
        let before = std::mem::replace(&mut *self.tenure.lock().unwrap_or_else(PoisonError::into_inner), tenure);
        self.old.extend(before);
        if self.old.len() > 3 {
            self.old.remove(0);
        }
    }

    /// Beats and acts until the stage is over.
    pub async fn run(mut self, addr: SocketAddr) {
        let beater = Beater {
            api: Api::new(self.number, addr, &self.recorder),
            ttl: self.ttl,
            tenure: Arc::clone(&self.tenure),
            is_frozen: Arc::clone(&self.is_frozen),
            stage: Arc::clone(&self.stage),
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
        let Some(tenure) = self.current() else {
            let joined = self.api.join(&self.name, self.ttl).await;
            self.set(joined);
            return;
        };
        // Now and then under a tenure that has ended: nothing of it may be accepted.
        let by = match self.old.is_empty() || self.random.below(12) > 0 {
            true => tenure.clone(),
            false => self.old[usize::try_from(self.random.below(self.old.len() as u64)).unwrap_or(0)].clone(),
        };
        let outcome = match self.random.below(100) {
            0..24 => self.acquire(&by).await,
            24..42 => self.release(&by).await,
            42..56 => self.claim(&by).await,
            56..64 => {
                let key = key(&self.recorder, &mut self.random);
                self.api.call(&by, Verb::Unclaim(key)).await
            }
            64..78 => {
                let key = key(&self.recorder, &mut self.random);
                self.api.call("", Verb::ReadClaim(key)).await
            }
            78..91 => {
                let lease = lease(&self.recorder, &mut self.random);
                self.api.call("", Verb::ReadLease(lease)).await
            }
            91..94 if by != tenure => self.api.call(&by, Verb::Beat(crate::history::micros(self.ttl))).await,
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

    async fn acquire(&mut self, by: &str) -> Outcome {
        let lease = lease(&self.recorder, &mut self.random);
        let outcome = self.api.call(by, Verb::Acquire(lease.clone())).await;
        if let Outcome::Token(token) = outcome {
            self.leases.push((lease, by.to_owned(), token));
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
        let (lease, tenure, token) = match self.random.below(3) {
            0 => self.leases[at].clone(),
            _ => self.leases.remove(at),
        };
        let by = if tenure.is_empty() { by } else { &tenure };
        let outcome = self.api.call(by, Verb::Release(lease, token)).await;
        match Some(by) == self.current().as_deref() {
            true => outcome,
            // The end of an older tenure is not that of the current one.
            false => Outcome::Refused("an older tenure".to_owned()),
        }
    }

    async fn claim(&mut self, by: &str) -> Outcome {
        let key = key(&self.recorder, &mut self.random);
        let if_absent = self.random.below(2) == 0;
        self.api.call(by, Verb::Claim(key, if_absent)).await
    }

    /// Does nothing for a while, for longer than its ttl or nearly as long.
    async fn freeze(&mut self) {
        self.is_frozen.store(true, Ordering::SeqCst);
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(1_000);
        sleep(Duration::from_millis(self.random.between(ttl / 2, 2 * ttl))).await;
        self.is_frozen.store(false, Ordering::SeqCst);
    }
}

/// Beats for whatever tenure its member has.
#[derive(Debug)]
struct Beater {
    api: Api,
    ttl: Duration,
    tenure: Arc<Mutex<Option<String>>>,
    is_frozen: Arc<AtomicBool>,
    stage: Arc<Stage>,
}

impl Beater {
    async fn run(mut self) {
        while !self.stage.is_over() {
            let tenure = self.tenure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let (Some(tenure), false) = (tenure, self.is_frozen.load(Ordering::SeqCst)) {
                let outcome = self
                    .api
                    .call(&tenure, Verb::Beat(crate::history::micros(self.ttl)))
                    .await;
                let mut current = self.tenure.lock().unwrap_or_else(PoisonError::into_inner);
                if matches!(outcome, Outcome::Ended(_)) && current.as_ref() == Some(&tenure) {
                    *current = None;
                }
            }
            sleep(self.ttl / 4).await;
        }
    }
}

/// A member of the library, which acquires and releases leases.
#[derive(Debug)]
pub struct Library {
    number: usize,
    recorder: Recorder,
    random: Random,
    held: Vec<LeaseGuard>,
}

impl Library {
    /// Runs one until the stage is over. Each instant at which it trusts its tenure is recorded.
    pub async fn run(number: usize, url: String, ttl: Duration, recorder: Recorder, stage: Arc<Stage>, seed: u64) {
        let mut library = Self {
            number,
            random: Random::new(seed, 200 + number as u64),
            recorder,
            held: Vec::new(),
        };
        let Ok(client) = Tenure::connect(&url).await else {
            return;
        };
        let options = JoinOptions {
            ttl,
            ..JoinOptions::named(&format!("m{number}")).unwrap_or_default()
        };
        let Ok(group) = client.group(GROUP) else { return };
        let Ok(membership) = group.join_within(options, Duration::from_secs(20)).await else {
            return;
        };
        while !stage.is_over() {
            if stage.acts() {
                library.act(&membership).await;
            }
            library.trust(&membership);
            sleep(Duration::from_millis(library.random.between(10, 60))).await;
        }
        library
            .held
            .drain(..)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|guard| library.let_go(&guard));
        let _ = membership.leave().await;
        client.close().await;
    }

    fn add(&self, begin: Micros, tenure: &str, verb: Verb, outcome: Outcome) {
        self.recorder.add(Call {
            client: self.number,
            begin,
            end: self.recorder.clock.now(),
            tenure: tenure.to_owned(),
            verb,
            outcome,
        });
    }

    fn trust(&mut self, membership: &Membership) {
        let tenure = membership.tenure().to_string();
        let now = self.recorder.clock.now();
        // The instant is taken before the verdict, which can only have become worse since.
        if membership.verdict() == Verdict::Held && membership.tenure().to_string() == tenure {
            self.add(now, &tenure, Verb::Trust, Outcome::Done);
        }
        let (kept, lost): (Vec<_>, Vec<_>) = self.held.drain(..).partition(|guard| guard.verdict() != Verdict::Lost);
        self.held = kept;
        lost.iter().for_each(|guard| self.let_go(guard));
    }

    /// A guard that is dropped releases its lease in the background.
    fn let_go(&self, guard: &LeaseGuard) {
        let begin = self.recorder.clock.now().saturating_sub(200_000);
        self.add(
            begin,
            &guard.tenure().to_string(),
            Verb::ReleaseAny(guard.lease().to_string()),
            Outcome::Unknown,
        );
    }

    async fn act(&mut self, membership: &Membership) {
        if self.held.len() < 2 && self.random.below(2) == 0 {
            let lease = lease(&self.recorder, &mut self.random);
            let (begin, tenure) = (self.recorder.clock.now(), membership.tenure().to_string());
            match membership.leases().acquire(&lease).await {
                Ok(Acquire::Granted(guard)) => {
                    let tenure = guard.tenure().to_string();
                    self.add(
                        begin,
                        &tenure,
                        Verb::Acquire(lease),
                        Outcome::Token(guard.token().get()),
                    );
                    self.held.push(guard);
                }
                Ok(_) => {}
                Err(_) => {
                    self.add(begin, &tenure, Verb::Acquire(lease.clone()), Outcome::Unknown);
                    self.add(begin, &tenure, Verb::ReleaseAny(lease), Outcome::Unknown);
                }
            }
        } else if !self.held.is_empty() && self.random.below(4) == 0 {
            let guard = self.held.remove(0);
            let (lease, token) = (guard.lease().to_string(), guard.token().get());
            let (begin, tenure) = (self.recorder.clock.now(), guard.tenure().to_string());
            let verb = Verb::Release(lease, token);
            let outcome = guard.release().await.map_or(Outcome::Unknown, |_| Outcome::Done);
            self.add(begin, &tenure, verb, outcome);
        }
    }
}
