//! Waits for a named condition instead of sleeping a fixed time.

use std::thread;
use std::time::{Duration, Instant};

/// The polling interval: short at first, then 20 ms, because a poll may cost a request or a process, and many tests
/// wait concurrently.
#[derive(Debug)]
pub(crate) struct Pace(Duration);

impl Pace {
    const FIRST: Duration = Duration::from_millis(1);
    const LAST: Duration = Duration::from_millis(20);

    pub(crate) fn new() -> Self {
        Self(Self::FIRST)
    }

    /// The time until the next poll.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 5 / 4).min(Self::LAST);
        now
    }

    /// Sleeps until the next poll.
    pub(crate) fn sleep(&mut self) {
        thread::sleep(self.next());
    }
}

/// Blocks until `condition` holds. Panics with `what` if it does not hold within `within`.
#[track_caller]
pub fn until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let (deadline, mut pace) = (Instant::now() + within, Pace::new());
    while !condition() {
        assert!(Instant::now() < deadline, "waited {within:?} in vain until {what}");
        pace.sleep();
    }
}

/// Like [`until`] for async conditions.
///
/// It uses wall time, not tokio's clock, so a paused tokio clock does not end it early.
pub async fn until_async<F, R>(what: &str, within: Duration, mut condition: F)
where
    F: FnMut() -> R,
    R: Future<Output = bool>,
{
    let (deadline, mut pace) = (Instant::now() + within, Pace::new());
    while !condition().await {
        assert!(Instant::now() < deadline, "waited {within:?} in vain until {what}");
        tokio::time::sleep(pace.next()).await;
    }
}

/// How many times longer than usual soaks are to run: `TENURE_SOAK` (default 1).
///
/// # Panics
/// If the variable is not a number.
#[must_use]
pub fn soak_factor() -> u32 {
    let factor = std::env::var("TENURE_SOAK").ok().map(|value| {
        let number = value.parse();
        number.unwrap_or_else(|_| panic!("TENURE_SOAK: {value:?} is not a number"))
    });
    factor.unwrap_or(1)
}

/// The length of a soak: `short` times `TENURE_SOAK` (default 1).
///
/// # Panics
/// As [`soak_factor`].
#[must_use]
pub fn soak(short: Duration) -> Duration {
    short * soak_factor()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_as_soon_as_the_condition_holds() {
        let mut looks = 0;
        until("the third look", Duration::from_secs(5), || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "in vain until pigs fly")]
    fn a_timeout_names_the_condition() {
        until("pigs fly", Duration::from_millis(5), || false);
    }

    #[tokio::test]
    async fn waits_in_async_tests_too() {
        let mut looks = 0;
        until_async("the second look", Duration::from_secs(5), || {
            looks += 1;
            let done = looks == 2;
            async move { done }
        })
        .await;
        assert_eq!(looks, 2);
    }
}
