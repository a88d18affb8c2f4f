//! Waiting for a condition by name, in place of sleeping a guess.

use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is looked at: soon at first, then every 20 ms, since a look may cost a request or a process, and
/// many tests wait at a time.
#[derive(Debug)]
pub(crate) struct Pace(Duration);

impl Pace {
    const FIRST: Duration = Duration::from_millis(1);
    const LAST: Duration = Duration::from_millis(20);

    pub(crate) fn new() -> Self {
        Self(Self::FIRST)
    }

    /// How long until the next look.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 5 / 4).min(Self::LAST);
        now
    }

    /// Sleeps until the next look.
    pub(crate) fn sleep(&mut self) {
        thread::sleep(self.next());
    }
}

/// Blocks until `condition` holds; panics with `what` when it does not within `within`.
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
/// It looks at the wall, not at tokio's clock, so a paused tokio clock can't make it give up early.
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

/// How long a soak lasts: `short`, times the factor in `TENURE_SOAK` (1 unless set).
///
/// # Panics
/// When that is not a number.
#[must_use]
pub fn soak(short: Duration) -> Duration {
    let factor = std::env::var("TENURE_SOAK").ok().map(|value| {
        let number = value.parse();
        number.unwrap_or_else(|_| panic!("TENURE_SOAK: {value:?} is not a number"))
    });
    short * factor.unwrap_or(1)
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
    fn names_what_did_not_happen() {
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
