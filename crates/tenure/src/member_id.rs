//! Names for members that have none: `hostname-<start ns>-<8 hex>`.
//!
//! The host is for people and for metric labels ([`MemberId::host`]), the start tells two lives of one program apart, and
//! the eight random digits tell two processes apart that started together. So a process has another name after every
//! restart, and the tenure of the process before lapses. A program whose identity should outlive its restarts (so that a
//! restart *supersedes* the old process at once) passes a stable name of its own instead.

use std::sync::OnceLock;

use tenure_core::clock::Clock;
use tenure_core::id::MAX_NAME;
use tenure_core::{MemberId, Result};

/// What is used when the machine does not tell its name.
const NAMELESS: &str = "host";

/// A fresh member id for this process.
///
/// The start is when the process first asked for an id, in nanoseconds since the epoch with the resolution of a
/// microsecond. Every id of one process carries the same one, even when the wall clock is corrected meanwhile.
/// The last part is drawn anew each time: call it once and keep the id when several groups are joined under one name.
///
/// # Errors
/// None in practice: the host name is fitted to the alphabet of names first.
pub fn generated(clock: &dyn Clock) -> Result<MemberId> {
    static STARTED: OnceLock<u64> = OnceLock::new();
    let started = *STARTED.get_or_init(|| clock.wall_micros().saturating_mul(1_000));
    compose(
        rustix::system::uname().nodename().to_str().unwrap_or(NAMELESS),
        started,
        clock.entropy(),
    )
}

/// Puts an id together from its three parts.
fn compose(host: &str, started_nanos: u64, chance: u64) -> Result<MemberId> {
    let tail = format!("-{started_nanos:010}-{:08x}", chance >> 32);
    let fitted: String = host
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-') {
                c
            } else {
                '-'
            }
        })
        .take(MAX_NAME - tail.len())
        .collect();
    let host = if fitted.is_empty() { NAMELESS } else { &fitted };
    MemberId::new(format!("{host}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::SystemClock;

    #[test]
    fn a_generated_id_tells_its_host_and_no_two_are_the_same() {
        let clock = SystemClock::new();
        let (one, two) = (generated(&clock).unwrap(), generated(&clock).unwrap());
        assert_ne!(one, two);
        assert_eq!(one.host(), two.host());
        assert_ne!(one.host(), one.as_str(), "{one} does not read as a generated id");
        // Host and start agree, only the last part differs.
        assert_eq!(
            one.as_str().rsplit_once('-').unwrap().0,
            two.as_str().rsplit_once('-').unwrap().0
        );
    }

    #[test]
    fn any_host_name_becomes_a_name() {
        for (host, shown) in [
            ("web-3", "web-3"),
            ("", "host"),
            ("büro pc/7", "b-ro-pc-7"),
            ("a.b_c:d", "a.b_c:d"),
        ] {
            assert_eq!(
                compose(host, 1_763_676_800_000_000_000, 7).unwrap().host(),
                shown,
                "{host:?}"
            );
        }
        let long = compose(&"x".repeat(400), u64::MAX, u64::MAX).unwrap();
        assert_eq!(long.as_str().len(), MAX_NAME);
        assert!(long.host().len() < MAX_NAME);
        // A machine whose clock was never set still makes ids that read as generated.
        assert_eq!(compose("h", 5, 0).unwrap().as_str(), "h-0000000005-00000000");
        assert_eq!(compose("h", 5, 0).unwrap().host(), "h");
    }
}
