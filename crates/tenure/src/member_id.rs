//! Generated member names: `hostname-<start ns>-<8 hex>`.
//!
//! The host is for people and metric labels ([`MemberId::host`]), the start time distinguishes restarts, and eight
//! random digits distinguish processes that start at the same time. A restarted process has a new name, and the tenure
//! of the old process lapses. A program that needs a stable identity, so that a restart *supersedes* the old process
//! immediately, passes its own name instead.

use std::sync::OnceLock;

use tenure_core::clock::Clock;
use tenure_core::id::MAX_NAME;
use tenure_core::{MemberId, Result};

/// Used when the host name is not valid UTF-8 or is empty.
const NAMELESS: &str = "host";

/// Generates a member id for this process.
///
/// The start time is that of the first call in this process, in nanoseconds since the epoch at microsecond resolution.
/// It stays the same when the wall clock is corrected later. The random part differs in each call: to join several
/// groups under one name, call this once and keep the id.
///
/// # Errors
/// None in practice: the host name is first mapped to the allowed characters.
pub fn generated(clock: &dyn Clock) -> Result<MemberId> {
    compose(&host(), started(clock), clock.entropy())
}

/// Generates a member id like [`generated`], whose host part begins with what the process does: `backup-db-7-…`. Cut to
/// fit.
///
/// # Errors
/// As [`generated`].
pub fn generated_for(work: &str, clock: &dyn Clock) -> Result<MemberId> {
    compose(&format!("{work}-{}", host()), started(clock), clock.entropy())
}

fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_str().unwrap_or(NAMELESS).to_owned()
}

/// When this process started, as far as names tell.
fn started(clock: &dyn Clock) -> u64 {
    static STARTED: OnceLock<u64> = OnceLock::new();
    *STARTED.get_or_init(|| clock.wall_micros().saturating_mul(1_000))
}

/// Builds an id from its three parts.
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
    fn generated_ids_share_the_host_and_are_unique() {
        let clock = SystemClock::new();
        let (one, two) = (generated(&clock).unwrap(), generated(&clock).unwrap());
        assert_ne!(one, two);
        assert_eq!(one.host(), two.host());
        assert_ne!(one.host(), one.as_str(), "{one} does not read as a generated id");
        // Host and start are the same, only the last part differs.
        assert_eq!(
            one.as_str().rsplit_once('-').unwrap().0,
            two.as_str().rsplit_once('-').unwrap().0
        );
    }

    #[test]
    fn id_for_some_work_begins_with_its_name() {
        let clock = SystemClock::new();
        let id = generated_for("backup", &clock).unwrap();
        assert!(id.as_str().starts_with("backup-"), "{id}");
        assert_eq!(id.host(), format!("backup-{}", generated(&clock).unwrap().host()));
        let long = generated_for(&"x".repeat(MAX_NAME), &clock).unwrap();
        assert_eq!(long.as_str().len(), MAX_NAME);
    }

    #[test]
    fn any_host_name_maps_to_a_valid_id() {
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
        // A machine whose clock was never set still generates valid ids.
        assert_eq!(compose("h", 5, 0).unwrap().as_str(), "h-0000000005-00000000");
        assert_eq!(compose("h", 5, 0).unwrap().host(), "h");
    }
}
