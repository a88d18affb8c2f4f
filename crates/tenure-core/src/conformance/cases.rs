//! The number and seed of random cases, and the driver that shrinks a failing case.

use std::fmt;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Upper bound on shrinking steps.
const SHRINKS: u32 = 400;

/// The random cases of one test.
#[derive(Debug, Clone, Copy)]
pub struct Cases {
    /// The number of cases.
    pub count: u64,
    /// The seed they are drawn from.
    pub seed: u64,
}

impl Cases {
    /// Returns `count` cases, multiplied by `TENURE_SOAK` (default 1), drawn from the seed `TENURE_RANDOM_SEED`
    /// (default 1).
    ///
    /// # Panics
    /// If a variable is not a number.
    #[must_use]
    pub fn times(count: u64) -> Self {
        let number = |name: &str| {
            let value = std::env::var(name).ok()?;
            Some(
                value
                    .parse::<u64>()
                    .unwrap_or_else(|_| panic!("{name}: {value:?} is not a number")),
            )
        };
        Self {
            count: count * number("TENURE_SOAK").unwrap_or(1),
            seed: number("TENURE_RANDOM_SEED").unwrap_or(1),
        }
    }

    /// A random generator from the seed.
    #[must_use]
    pub fn chance(&self) -> Chance {
        Chance::new(self.seed)
    }

    /// Draws values and runs `check` on each.
    ///
    /// # Panics
    /// Panics with the shortest failing value and the reason.
    pub async fn check<S: Strategy>(self, strategy: S, check: impl AsyncFn(&S::Value) -> Result<(), String>) {
        let mut bytes = [0u8; 32];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        for case in 0..self.count {
            let mut tree = strategy.new_tree(&mut runner).expect("a value");
            let Err(mut failure) = check(&tree.current()).await else {
                continue;
            };
            // proptest's own loop cannot shrink an asynchronous check.
            let mut shortest = tree.current();
            for _ in 0..SHRINKS {
                if !tree.simplify() {
                    break;
                }
                match check(&tree.current()).await {
                    Err(again) => (failure, shortest) = (again, tree.current()),
                    Ok(()) if tree.complicate() => {}
                    Ok(()) => break,
                }
            }
            panic!("case {case} of {self}: {failure}\nshortest case: {shortest:#?}");
        }
    }
}

impl fmt::Display for Cases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TENURE_RANDOM_SEED={}", self.seed)
    }
}

/// A pseudo-random generator: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// Creates a generator from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap_or(0)
    }

    /// Picks one element.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Shuffles the elements.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for n in (1..all.len()).rev() {
            all.swap(n, self.below(n + 1));
        }
    }
}
