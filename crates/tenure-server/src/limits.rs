//! The rate limit per caller: the generic cell rate algorithm (ITU-T I.371), one number per caller.
//!
//! The number is the instant at which the caller's next request is due. A request that is earlier than the burst allows is
//! refused and costs the caller nothing; any other request advances the instant. This equals a token bucket, which would need
//! two numbers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;

/// The most addresses that are tracked. All others together count as one caller.
const MAX_PEERS: usize = 10_000;

/// The rate limit of one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSettings {
    /// Sustained requests per second; 1 to 1,000,000.
    pub per_second: u32,
    /// Requests in a burst after a pause; at least 1.
    pub burst: u32,
}

/// Counts requests.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// The time between two requests, in nanoseconds.
    interval: u64,
    /// How early a request may come.
    allowance: u64,
    peers: Mutex<Peers>,
    others: AtomicU64,
}

#[derive(Debug, Default)]
struct Peers {
    due: BTreeMap<IpAddr, u64>,
    /// When idle addresses were last removed, which costs a pass over all.
    cleaned: u64,
}

const SECOND: u64 = 1_000_000_000;

impl Limiter {
    pub(crate) fn new(settings: RateSettings) -> Self {
        Self::every(SECOND / u64::from(settings.per_second.max(1)), settings.burst)
    }

    /// This many in a minute, all of which may come together after a pause of a minute.
    pub(crate) fn per_minute(count: u32) -> Self {
        Self::every(60 * SECOND / u64::from(count.max(1)), count)
    }

    fn every(interval: u64, burst: u32) -> Self {
        Self {
            interval,
            allowance: interval * u64::from(burst.max(1) - 1),
            peers: Mutex::default(),
            others: AtomicU64::new(0),
        }
    }

    /// Counts a request of a caller that has a counter of its own.
    ///
    /// # Errors
    /// How long to wait, when the limit is exceeded.
    pub(crate) fn count(&self, due: &AtomicU64, now: Mono) -> Result<(), Duration> {
        let now = nanos(now);
        let mut seen = due.load(Ordering::Relaxed);
        loop {
            let next = self.next(seen, now)?;
            match due.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(newer) => seen = newer,
            }
        }
    }

    /// Counts a request from an address.
    ///
    /// # Errors
    /// As [`Limiter::count`].
    pub(crate) fn count_peer(&self, address: SocketAddr, now: Mono) -> Result<(), Duration> {
        let (address, at) = (network(address.ip()), nanos(now));
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(due) = peers.due.get_mut(&address) {
            *due = self.next(*due, at)?;
            return Ok(());
        }
        if peers.due.len() >= MAX_PEERS && at >= peers.cleaned.saturating_add(SECOND) {
            peers.cleaned = at;
            // An address whose next request is due has no state worth keeping.
            peers.due.retain(|_, due| *due > at);
        }
        if peers.due.len() < MAX_PEERS {
            let next = self.next(0, at)?;
            peers.due.insert(address, next);
            return Ok(());
        }
        drop(peers);
        self.count(&self.others, now)
    }

    fn next(&self, due: u64, now: u64) -> Result<u64, Duration> {
        let early = due.saturating_sub(now);
        if early > self.allowance {
            return Err(Duration::from_nanos(early - self.allowance));
        }
        Ok(due.max(now).saturating_add(self.interval))
    }
}

fn nanos(at: Mono) -> u64 {
    u64::try_from(at.since_origin().as_nanos()).unwrap_or(u64::MAX)
}

/// The unit that addresses are counted by: the /64 network for IPv6, since a host can use all of its addresses.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono::from_origin(Duration::from_millis(ms))
    }

    fn limiter() -> Limiter {
        Limiter::new(RateSettings {
            per_second: 10,
            burst: 3,
        })
    }

    #[test]
    fn a_minute_has_its_number_and_no_more() {
        let (limiter, due) = (Limiter::per_minute(3), AtomicU64::new(0));
        let count = |ms| limiter.count(&due, at(ms));
        for _ in 0..3 {
            count(1_000).unwrap();
        }
        assert_eq!(count(1_000), Err(Duration::from_secs(20)));
        count(21_000).unwrap();
        assert_eq!(count(21_000), Err(Duration::from_secs(20)));
    }

    #[test]
    fn burst_passes_then_rate_applies() {
        let (limiter, due) = (limiter(), AtomicU64::new(0));
        let count = |ms| limiter.count(&due, at(ms));
        for _ in 0..3 {
            count(1_000).unwrap();
        }
        assert_eq!(count(1_000), Err(Duration::from_millis(100)));
        assert_eq!(
            count(1_040),
            Err(Duration::from_millis(60)),
            "an early request costs nothing"
        );
        count(1_100).unwrap();
        assert!(count(1_100).is_err());
        for _ in 0..3 {
            count(9_000).unwrap();
        }
        assert!(count(9_000).is_err(), "a long pause earns no more than a burst");
    }

    #[test]
    fn addresses_count_by_ipv4_address_or_ipv6_network() {
        let limiter = limiter();
        let ask = |address: &str| limiter.count_peer(address.parse().unwrap(), at(1_000));
        for _ in 0..3 {
            ask("10.0.0.1:1").unwrap();
        }
        assert!(ask("10.0.0.1:2").is_err());
        assert!(ask("[::ffff:10.0.0.1]:2").is_err());
        ask("10.0.0.2:1").unwrap();
        for host in 1..=3 {
            ask(&format!("[2001:db8::{host}]:1")).unwrap();
        }
        assert!(ask("[2001:db8::ffff]:1").is_err());
        ask("[2001:db8:0:1::1]:1").unwrap();
    }

    #[test]
    fn tracked_addresses_are_bounded_and_idle_ones_forgotten() {
        let limiter = limiter();
        let ask = |n: usize, ms| {
            let address = IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
            limiter.count_peer(SocketAddr::new(address, 1), at(ms))
        };
        for n in 0..MAX_PEERS {
            ask(n, 2_000).unwrap();
        }
        let strangers = (MAX_PEERS..MAX_PEERS + 10).filter(|n| ask(*n, 2_000).is_ok()).count();
        assert_eq!(strangers, 3, "untracked addresses share one counter");
        for n in 0..MAX_PEERS {
            ask(MAX_PEERS + n, 9_000).unwrap();
        }
        assert_eq!(limiter.peers.lock().unwrap().due.len(), MAX_PEERS);
    }
}
