//! The clock seam: all local time and randomness come from a [`Clock`], so that tests and the simulation drive the same
//! code.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::time::ClockId;

/// A local instant for measuring trust. It never decreases, and it counts the time a machine is suspended.
///
/// It cannot be compared with [`crate::StoreTime`], on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(Duration);

impl Mono {
    /// From the time since an arbitrary origin of the process.
    #[must_use]
    pub const fn from_origin(since: Duration) -> Self {
        Self(since)
    }

    /// The time since the origin.
    #[must_use]
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Mono {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

/// A sleep in progress.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Local time, sleep and randomness.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Local trust time: boot time plus every forward step of the wall clock ([`TrustTime`]). It counts suspend and
    /// never stalls or decreases, so a step of the wall clock only makes a client stop earlier.
    fn mono(&self) -> Mono;

    /// The wall clock in microseconds since the epoch. May step in either direction.
    fn wall_micros(&self) -> u64;

    /// Completes after `duration`. Never early; a pause of the process delays it once.
    fn sleep(&self, duration: Duration) -> Sleep;

    /// 64 random bits.
    fn entropy(&self) -> u64;
}

/// Varies a duration by ±`percent` %, so that processes do not wake together.
#[must_use]
pub fn jitter(clock: &dyn Clock, duration: Duration, percent: u32) -> Duration {
    let span = f64::from(percent) / 100.0;
    #[expect(clippy::cast_precision_loss, reason = "a random fraction needs no more than 53 bits")]
    let unit = (clock.entropy() >> 11) as f64 / (1u64 << 53) as f64;
    duration.mul_f64(1.0 - span + 2.0 * span * unit)
}

/// Runs a future with a time-out; `None` if the time-out passes first, which drops the future.
pub async fn within<T>(clock: &dyn Clock, bound: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep(bound) => None,
    }
}

/// Trust time from two clocks: boot time, which counts suspend, and the wall clock, which also shows the pauses of a
/// virtual machine whose guest learns of them by a clock step.
///
/// It advances with boot time, plus every lead that the wall clock gains. A lead is kept if the wall clock falls back.
/// (The maximum of both clocks is not enough: after a step forward and back it would stall for the length of the step,
/// and a holder would trust itself for that much longer.)
#[derive(Debug, Clone, Copy, Default)]
pub struct TrustTime {
    origin: Duration,
    ahead: Duration,
    /// Real time minus boot time at the last reading, in nanoseconds.
    offset: i128,
}

impl TrustTime {
    /// A smaller lead is noise, because the two clocks are not read at the same instant. Small steps and slewing
    /// accumulate.
    const NOISE: Duration = Duration::from_millis(10);

    /// Trust time that begins at these clock readings.
    #[must_use]
    pub fn new(boot: Duration, real: Duration) -> Self {
        Self {
            origin: boot,
            ahead: Duration::ZERO,
            offset: offset(boot, real),
        }
    }

    /// The trust time since it began, at these clock readings. Boot time must not be below that of the last reading.
    pub fn read(&mut self, boot: Duration, real: Duration) -> Duration {
        let offset = offset(boot, real);
        let lead = u64::try_from(offset - self.offset).map_or(Duration::ZERO, Duration::from_nanos);
        if lead > Self::NOISE {
            self.ahead = self.ahead.saturating_add(lead);
            self.offset = offset;
        }
        // A wall clock that falls back keeps the lead it has added.
        self.offset = self.offset.min(offset);
        boot.saturating_sub(self.origin).saturating_add(self.ahead)
    }
}

fn offset(boot: Duration, real: Duration) -> i128 {
    let nanos = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
    nanos(real) - nanos(boot)
}

/// The clock that counts the time a machine is suspended. Where it stops while suspended (BSD), the lead of the wall
/// clock counts that time ([`TrustTime`]).
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::Boottime;
/// As above: on macOS the monotonic clock counts it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::Monotonic;

/// The system clock.
#[derive(Debug)]
pub struct SystemClock {
    trust: Mutex<TrustTime>,
    chance: AtomicU64,
}

impl SystemClock {
    /// A clock with its origin now.
    #[must_use]
    pub fn new() -> Self {
        let (boot, real) = (read(BOOT), read(ClockId::Realtime));
        // A fresh allocation's address and the process id distinguish clocks created in the same nanosecond.
        let unique = Arc::new(0u8);
        let seed = (Arc::as_ptr(&unique) as usize as u64).rotate_left(32) ^ u64::from(std::process::id());
        let nanos = u64::try_from(real.as_nanos() & u128::from(u64::MAX)).unwrap_or(0);
        Self {
            trust: Mutex::new(TrustTime::new(boot, real)),
            chance: AtomicU64::new(mix(seed ^ nanos) ^ os_entropy()),
        }
    }

    /// A shared system clock.
    #[must_use]
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self::new())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

fn read(id: ClockId) -> Duration {
    let at = rustix::time::clock_gettime(id);
    Duration::new(
        u64::try_from(at.tv_sec).unwrap_or(0),
        u32::try_from(at.tv_nsec).unwrap_or(0),
    )
}

/// Random bits from the operating system, which differ for two containers that start at the same instant.
fn os_entropy() -> u64 {
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| {
            let mut bytes = [0u8; 8];
            std::io::Read::read_exact(&mut source, &mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        })
        .unwrap_or(0)
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn next_random(state: &AtomicU64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    mix(state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
}

impl Clock for SystemClock {
    fn mono(&self) -> Mono {
        // Both clocks are read under the lock, so that readings are in order.
        let mut trust = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
        let (boot, real) = (read(BOOT), read(ClockId::Realtime));
        Mono(trust.read(boot, real))
    }

    fn wall_micros(&self) -> u64 {
        u64::try_from(read(ClockId::Realtime).as_micros()).unwrap_or(0)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the seam that the rule points to")]
    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }

    fn entropy(&self) -> u64 {
        next_random(&self.chance)
    }
}

/// A clock that moves only by [`advance`](Self::advance). For tests, the conformance suite and the simulation.
#[derive(Debug)]
pub struct ManualClock {
    state: Arc<Mutex<Manual>>,
    chance: AtomicU64,
}

#[derive(Debug)]
struct Manual {
    mono: Duration,
    wall_micros: u64,
    sleepers: Vec<(Duration, Waker)>,
}

impl ManualClock {
    /// A clock that starts at `wall_micros`, with randomness from `seed`.
    #[must_use]
    pub fn new(wall_micros: u64, seed: u64) -> Self {
        let state = Manual {
            mono: Duration::ZERO,
            wall_micros,
            sleepers: Vec::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            chance: AtomicU64::new(seed),
        }
    }

    /// Advances both clocks and wakes the sleepers that are due.
    pub fn advance(&self, by: Duration) {
        let due: Vec<Waker> = {
            let mut state = lock(&self.state);
            state.mono += by;
            state.wall_micros = state.wall_micros.saturating_add(crate::time::micros(by));
            let now = state.mono;
            let (due, rest) = std::mem::take(&mut state.sleepers)
                .into_iter()
                .partition(|(at, _)| *at <= now);
            state.sleepers = rest;
            due
        }
        .into_iter()
        .map(|(_, waker)| waker)
        .collect();
        due.into_iter().for_each(Waker::wake);
    }

    /// Steps only the wall clock, as NTP or an operator does.
    pub fn set_wall_micros(&self, micros: u64) {
        lock(&self.state).wall_micros = micros;
    }

    /// The time until the earliest sleeper wakes, if there is one.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        let state = lock(&self.state);
        state.sleepers.iter().map(|(at, _)| at.saturating_sub(state.mono)).min()
    }
}

fn lock(state: &Mutex<Manual>) -> MutexGuard<'_, Manual> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clock for ManualClock {
    fn mono(&self) -> Mono {
        Mono(lock(&self.state).mono)
    }

    fn wall_micros(&self) -> u64 {
        lock(&self.state).wall_micros
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let until = lock(&self.state).mono + duration;
        let state = Arc::clone(&self.state);
        Box::pin(std::future::poll_fn(move |context| {
            let mut state = lock(&state);
            if state.mono >= until {
                return Poll::Ready(());
            }
            state.sleepers.push((until, context.waker().clone()));
            Poll::Pending
        }))
    }

    fn entropy(&self) -> u64 {
        next_random(&self.chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_time_never_decreases_and_clocks_differ_in_entropy() {
        let (one, two) = (SystemClock::new(), SystemClock::new());
        let first = one.mono();
        assert!(one.mono() >= first);
        assert_ne!(one.entropy(), two.entropy());
    }

    #[test]
    fn wall_clock_steps_never_stall_trust_time() {
        let s = Duration::from_secs;
        let mut trust = TrustTime::new(s(100), s(1_000));
        assert_eq!(trust.read(s(101), s(1_001)), s(1));
        // Forward by 60 s and back.
        assert_eq!(trust.read(s(102), s(1_062)), s(62));
        assert_eq!(trust.read(s(103), s(1_003)), s(63));
        assert_eq!(trust.read(s(110), s(1_010)), s(70));
        // Back below its start and forward again.
        assert_eq!(trust.read(s(111), s(11)), s(71));
        assert_eq!(trust.read(s(112), s(1_012)), s(1_072));
    }

    #[test]
    fn frequent_readings_do_not_speed_up_trust_time() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let mut trust = TrustTime::new(ms(0), ms(0));
        // Each reading of the wall clock is slightly later.
        for at in 1..10_000 {
            trust.read(us(at), us(at + at % 2 * 500));
        }
        assert_eq!(trust.read(ms(10), ms(10)), ms(10));
        // Slewing accumulates.
        for at in 11..111 {
            trust.read(ms(at), ms(at + (at - 10) / 5));
        }
        let read = trust.read(ms(111), ms(131));
        assert!((ms(121)..=ms(131)).contains(&read), "{read:?}");
    }

    #[tokio::test]
    async fn manual_sleeper_wakes_on_advance() {
        let clock = Arc::new(ManualClock::new(0, 7));
        let sleeper = tokio::spawn(clock.sleep(Duration::from_secs(5)));
        while clock.next_wake().is_none() {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(4));
        assert_eq!(clock.next_wake(), Some(Duration::from_secs(1)));
        clock.advance(Duration::from_secs(1));
        sleeper.await.unwrap();
    }

    #[test]
    fn jitter_stays_within_its_percentage() {
        let clock = ManualClock::new(0, 1);
        let base = Duration::from_secs(10);
        let drawn: Vec<_> = (0..1000).map(|_| jitter(&clock, base, 10)).collect();
        assert!(drawn.iter().all(|d| (9.0..=11.0).contains(&d.as_secs_f64())));
        assert!(drawn.iter().any(|d| d.as_secs_f64() < 9.5) && drawn.iter().any(|d| d.as_secs_f64() > 10.5));
    }
}
