//! Members of the group: those that speak HTTP, and do what they must not as well, those of the library, and an operator.

mod library;
mod operator;
mod raw;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::history::{RunClock, micros};
use crate::random::Random;

pub use library::Library;
pub use operator::Operator;
pub use raw::Raw;

/// How long new names of leases and keys are used: it keeps the history of each short.
const EPOCH: Duration = Duration::from_secs(6);
const LEASES: u64 = 3;
const SHARED: u64 = 2;
const KEYS: u64 = 4;

/// Whether clients act, or only beat, or have stopped; and which names they use.
#[derive(Debug)]
pub struct Stage {
    clock: RunClock,
    is_quiet: AtomicBool,
    is_over: AtomicBool,
    renewals: AtomicU64,
}

impl Stage {
    /// Clients act.
    #[must_use]
    pub fn open(clock: RunClock) -> Self {
        Self {
            clock,
            is_quiet: AtomicBool::default(),
            is_over: AtomicBool::default(),
            renewals: AtomicU64::default(),
        }
    }

    /// From now on members only beat.
    pub fn quiet(&self) {
        self.is_quiet.store(true, Ordering::SeqCst);
    }

    /// From now on they do nothing.
    pub fn over(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// From now on leases and keys have new names: what was there before may have been lost.
    pub fn renew_names(&self) {
        self.renewals.fetch_add(1, Ordering::SeqCst);
    }

    /// The names of all keys that were used so far.
    #[must_use]
    pub fn all_keys(&self) -> Vec<String> {
        (0..=self.epoch())
            .flat_map(|epoch| (0..KEYS).map(move |n| format!("k{epoch}-{n}")))
            .collect()
    }

    /// Whether clients act, and not only beat.
    #[must_use]
    pub fn acts(&self) -> bool {
        !self.is_quiet.load(Ordering::SeqCst)
    }

    /// Whether they do nothing any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The number of the names that are used now; it only rises.
    fn epoch(&self) -> u64 {
        self.clock.now() / micros(EPOCH) + self.renewals.load(Ordering::SeqCst)
    }

    fn lease(&self, random: &mut Random) -> String {
        let (epoch, n) = (self.epoch(), random.below(LEASES + SHARED));
        let kind = if n < LEASES { 'l' } else { 's' };
        format!("{kind}{epoch}-{n}")
    }

    fn key(&self, random: &mut Random) -> String {
        format!("k{}-{}", self.epoch(), random.below(KEYS))
    }

    /// How long a call waits for a lease: most do not.
    fn wait(random: &mut Random) -> Duration {
        match random.below(4) {
            0 => Duration::from_millis(random.between(100, 1_500)),
            _ => Duration::ZERO,
        }
    }
}
