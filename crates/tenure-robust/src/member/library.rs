//! A member of the library, which acquires and releases leases.

use std::sync::Arc;
use std::time::Duration;

use tenure::lease::AcquireOptions;
use tenure::{Acquire, JoinOptions, LeaseGuard, Membership, Tenure, Verdict};
use tenure_core::lease::{Holders, ReleaseOutcome};
use tokio::time::sleep;

use super::Stage;
use crate::client::places;
use crate::history::{Call, Grant, Micros, Outcome, Recorder, Verb, micros};
use crate::random::Random;

/// A call that took less has been answered at its first attempt.
const ATTEMPT: Micros = 100_000;

/// A member of the library, which acquires and releases leases.
#[derive(Debug)]
pub struct Library {
    number: usize,
    recorder: Recorder,
    random: Random,
    stage: Arc<Stage>,
    held: Vec<LeaseGuard>,
    /// When it last looked at what it holds.
    looked: Micros,
}

impl Library {
    /// Runs one until the stage is over. Each instant at which it trusts its tenure is recorded.
    pub async fn run(number: usize, url: String, ttl: Duration, recorder: Recorder, stage: Arc<Stage>, seed: u64) {
        let mut library = Self {
            number,
            random: Random::new(seed, 200 + number as u64),
            recorder,
            stage,
            held: Vec::new(),
            looked: 0,
        };
        let Ok(client) = Tenure::connect(&url).await else {
            return;
        };
        let options = JoinOptions {
            ttl,
            ..JoinOptions::named(&format!("m{number}")).unwrap_or_default()
        };
        let Ok(group) = client.group(&library.recorder.group) else {
            return;
        };
        let Ok(membership) = group.join_within(options, Duration::from_secs(20)).await else {
            return;
        };
        while !library.stage.is_over() {
            if library.stage.acts() {
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
        self.looked = now;
        for guard in &self.held {
            let now = self.recorder.clock.now();
            if guard.verdict() == Verdict::Held {
                let verb = Verb::TrustLease(guard.lease().to_string(), guard.token().get());
                self.add(now, &guard.tenure().to_string(), verb, Outcome::Done);
            }
        }
    }

    /// A guard that is dropped releases its lease in the background; it may have lost it since the last look.
    fn let_go(&self, guard: &LeaseGuard) {
        let (tenure, lease) = (guard.tenure().to_string(), guard.lease().to_string());
        self.add(self.looked, &tenure, Verb::ReleaseAny(lease), Outcome::Unknown);
    }

    async fn act(&mut self, membership: &Membership) {
        if self.held.len() < 2 && self.random.below(2) == 0 {
            let lease = self.stage.lease(&mut self.random);
            let wait = Stage::wait(&mut self.random);
            let options = AcquireOptions {
                holders: u16::try_from(places(&lease))
                    .ok()
                    .and_then(|places| Holders::new(places).ok())
                    .unwrap_or_default(),
                wait,
            };
            let (begin, tenure) = (self.recorder.clock.now(), membership.tenure().to_string());
            let verb = Verb::Acquire(lease.clone(), micros(wait));
            match membership.leases().acquire_with(&lease, options).await {
                Ok(Acquire::Granted(guard)) => {
                    let grant = Grant {
                        token: guard.token().get(),
                        place: u64::from(guard.place().get()),
                        is_kept: false,
                    };
                    self.add(begin, &guard.tenure().to_string(), verb, Outcome::Granted(grant));
                    self.held.push(guard);
                    self.looked = self.recorder.clock.now();
                }
                // Refused in one attempt.
                Ok(_) if self.recorder.clock.now() < begin + ATTEMPT => {}
                // An attempt without an answer may have been granted, and an operator may have released that.
                Ok(_) | Err(_) => {
                    self.add(begin, &tenure, verb, Outcome::Unknown);
                    self.add(begin, &tenure, Verb::ReleaseAny(lease), Outcome::Unknown);
                }
            }
        } else if !self.held.is_empty() && self.random.below(4) == 0 {
            let guard = self.held.remove(0);
            let (lease, token) = (guard.lease().to_string(), guard.token().get());
            let (begin, tenure) = (self.recorder.clock.now(), guard.tenure().to_string());
            let verb = Verb::Release(lease, token);
            let outcome = match guard.release().await {
                Ok(ReleaseOutcome::NotHolder { by }) => Outcome::Taken(by.to_string()),
                Ok(_) => Outcome::Done,
                Err(_) => Outcome::Unknown,
            };
            self.add(begin, &tenure, verb, outcome);
        }
    }
}
