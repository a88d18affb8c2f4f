//! Waiting for a condition by name, in place of sleeping a guess.

use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(2);

/// Blocks until `condition` holds; panics with `what` when it does not within `within`.
#[track_caller]
pub fn until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {within:?} in vain until {what}");
        thread::sleep(POLL);
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
    let deadline = Instant::now() + within;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited {within:?} in vain until {what}");
        tokio::time::sleep(POLL).await;
    }
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
