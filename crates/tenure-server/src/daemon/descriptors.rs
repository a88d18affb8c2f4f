//! File descriptors: raises the limit, and derives the number of connections from it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Reserved for the store, the ledger and files; at most half of a small limit.
const RESERVE: u64 = 128;
/// The soft limit to set when the hard limit is infinite.
const MOST: u64 = 1 << 20;

/// Raises the soft limit to the hard one, and returns how many of `wanted` connections fit. Logs a warning when it is fewer.
pub(super) fn connections(wanted: usize) -> usize {
    let limit = raise();
    let possible = possible(wanted, limit);
    if possible < wanted {
        tracing::warn!(
            "limits.connections is {wanted}, but only {} files may be open (ulimit -n, LimitNOFILE): at most {possible} connections will be",
            limit.unwrap_or_default()
        );
    }
    possible
}

/// The new soft limit; `None` for unlimited.
fn raise() -> Option<u64> {
    let found = getrlimit(Resource::Nofile);
    let most = found.maximum.unwrap_or(MOST);
    let current = found.current?;
    if current >= most {
        return Some(current);
    }
    let raised = Rlimit {
        current: Some(most),
        maximum: found.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => Some(most),
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays at {current}");
            Some(current)
        }
    }
}

fn possible(wanted: usize, limit: Option<u64>) -> usize {
    let Some(limit) = limit else { return wanted };
    let free = limit - RESERVE.min(limit / 2);
    wanted.min(usize::try_from(free).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_reserved_for_store_and_files() {
        for (wanted, limit, connections) in [
            (10_000, None, 10_000),
            (10_000, Some(1 << 20), 10_000),
            (10_000, Some(1_024), 896),
            (500, Some(1_024), 500),
            (500, Some(100), 50),
            (500, Some(1), 1),
        ] {
            assert_eq!(possible(wanted, limit), connections, "{limit:?}");
        }
    }
}
