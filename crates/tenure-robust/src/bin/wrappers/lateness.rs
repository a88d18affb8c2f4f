//! By how much this machine is late: limits of time are extended by it, so that a busy machine fails no cell.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const SLEEP: Duration = Duration::from_millis(20);
/// Work of this length is done after each sleep: a process that only sleeps is served even on a machine that is overloaded.
const WORK: Duration = Duration::from_millis(2);
/// A shorter delay is normal.
const NORMAL: Duration = Duration::from_millis(5);
/// What a wrapper does takes several processes, each of which can be late.
const PROCESSES: u32 = 3;
/// For how long delays are remembered.
const MEMORY: Duration = Duration::from_secs(300);

/// The delays of a thread that sleeps and works in turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lateness(Arc<Mutex<VecDeque<(Instant, Duration)>>>);

impl Lateness {
    /// Starts the thread, which lives as long as this program.
    pub(crate) fn start() -> Self {
        let lateness = Self::default();
        let inner = lateness.clone();
        thread::spawn(move || {
            // The least of some attempts is the work of an idle machine.
            let rounds = calibrate();
            loop {
                let begun = Instant::now();
                thread::sleep(SLEEP);
                work(rounds);
                let late = begun.elapsed().saturating_sub(SLEEP + WORK);
                if late > NORMAL {
                    inner.add(begun, late);
                }
            }
        });
        lateness
    }

    fn add(&self, begun: Instant, late: Duration) {
        let mut delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        delays.push_back((begun, late));
        while delays.front().is_some_and(|(at, _)| at.elapsed() > MEMORY) {
            delays.pop_front();
        }
    }

    /// The extension of limits for what began at this time and is not over: at most half of the time since then, so that
    /// every limit is reached.
    pub(crate) fn since(&self, from: Instant) -> Duration {
        self.delays(from).min(from.elapsed() / 2)
    }

    /// The longest single delay since this time.
    pub(crate) fn longest(&self, from: Instant) -> Duration {
        let delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = delays.iter().rev().take_while(|(begun, late)| *begun + *late >= from);
        recent.map(|(_, late)| *late).max().unwrap_or_default()
    }

    fn delays(&self, from: Instant) -> Duration {
        let delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = delays.iter().rev().take_while(|(begun, late)| *begun + *late >= from);
        PROCESSES * recent.map(|(_, late)| *late).sum::<Duration>()
    }
}

fn calibrate() -> u64 {
    let mut least = Duration::MAX;
    let sample = 20_000;
    for _ in 0..50 {
        let begun = Instant::now();
        work(sample);
        least = least.min(begun.elapsed());
    }
    let rounds = u128::from(sample) * WORK.as_nanos() / least.as_nanos().max(1);
    u64::try_from(rounds).unwrap_or(sample)
}

fn work(rounds: u64) {
    let mut number = 1_u64;
    for round in 0..rounds {
        number = black_box(number.rotate_left(5) ^ round);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_delays_since_the_given_time_count() {
        let (lateness, begin) = (Lateness::default(), Instant::now());
        lateness.add(begin, Duration::from_millis(10));
        lateness.add(begin + Duration::from_secs(5), Duration::from_millis(100));
        assert_eq!(lateness.delays(begin), Duration::from_millis(330));
        assert_eq!(lateness.longest(begin), Duration::from_millis(100));
        assert_eq!(
            lateness.delays(begin + Duration::from_secs(1)),
            Duration::from_millis(300)
        );
        assert_eq!(lateness.delays(begin + Duration::from_secs(9)), Duration::ZERO);
    }
}
