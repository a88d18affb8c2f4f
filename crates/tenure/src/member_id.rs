//! Names for members that have none: `hostname-<boot ns>-<8 hex>`.
//!
//! The host is for people and for metric labels ([`MemberId::host`]), the boot tells two lives of one machine apart, and
//! the eight random digits tell two processes of one boot apart. A program whose identity should outlive its restarts
//! (so that a restart *supersedes* the old process at once) passes a stable name of its own instead.

use std::sync::OnceLock;

use tenure_core::clock::Clock;
use tenure_core::id::MAX_NAME;
use tenure_core::{MemberId, Result};

/// What is used when the machine does not tell its name.
const NAMELESS: &str = "host";

/// A fresh member id for this machine.
///
/// The boot part is when the machine booted, in nanoseconds since the epoch with the resolution of a second. It is read
/// once per process, so every id of one process carries the same one, even when the wall clock is corrected meanwhile.
/// The last part is drawn anew each time: call it once and keep the id when several groups are joined under one name.
///
/// # Errors
/// None in practice: the host name is fitted to the alphabet of names first.
pub fn generated(clock: &dyn Clock) -> Result<MemberId> {
    static BOOT: OnceLock<u64> = OnceLock::new();
    let boot = *BOOT.get_or_init(|| boot_nanos().unwrap_or_else(|| clock.wall_micros().saturating_mul(1_000)));
    compose(
        rustix::system::uname().nodename().to_str().unwrap_or(NAMELESS),
        boot,
        clock.entropy(),
    )
}

/// Puts an id together from its three parts.
fn compose(host: &str, boot_nanos: u64, chance: u64) -> Result<MemberId> {
    let tail = format!("-{boot_nanos:010}-{:08x}", chance >> 32);
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

/// When the machine booted, from `/proc/stat`. Without it (another system, a locked-down container) the start of the
/// process stands in.
fn boot_nanos() -> Option<u64> {
    parse_boot(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn parse_boot(stat: &str) -> Option<u64> {
    let seconds: u64 = stat
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    seconds.checked_mul(1_000_000_000).filter(|nanos| *nanos > 0)
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
        // Host and boot agree, only the last part differs.
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
        // A machine without a real boot time still makes ids that read as generated.
        assert_eq!(compose("h", 5, 0).unwrap().as_str(), "h-0000000005-00000000");
        assert_eq!(compose("h", 5, 0).unwrap().host(), "h");
    }

    #[test]
    fn the_boot_time_is_read_from_the_kernels_words() {
        assert_eq!(
            parse_boot("cpu 1 2\nbtime 1763676800\nprocesses 9\n"),
            Some(1_763_676_800_000_000_000)
        );
        for bad in [
            "",
            "btime\n",
            "btime x\n",
            "btime 0\n",
            "btime 99999999999999999999\n",
            "xbtime 5\n",
        ] {
            assert_eq!(parse_boot(bad), None, "{bad:?}");
        }
    }
}
