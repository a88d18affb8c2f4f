//! Leadership by LiteFS on real FUSE mounts: a frozen server hangs its callers, a killed one leaves a dead mount.
#![cfg(target_os = "linux")]

mod events;
mod file;
mod mount;
mod stream;

use std::time::Duration;

use tenure_core::clock::SystemClock;
use tenure_supervise::leadership::litefs::{EventStream, LiteFsSettings, watch};
use tenure_supervise::leadership::{Evidence, Leadership};
use tokio::sync::watch::Receiver;

/// The timeout for events that take a fraction of a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Test settings: a tenth of the default durations.
fn quick(dir: impl Into<std::path::PathBuf>) -> LiteFsSettings {
    LiteFsSettings {
        events: EventStream::Off,
        poll: Duration::from_millis(25),
        window: Duration::from_millis(300),
        deadline: Duration::from_millis(200),
        ..LiteFsSettings::new(dir)
    }
}

/// A watched source and its evidence.
struct Watched {
    _source: Leadership,
    said: Receiver<Evidence>,
}

impl Watched {
    fn new(settings: LiteFsSettings) -> Self {
        let source = watch(settings, &SystemClock::shared()).unwrap();
        let said = source.evidence();
        Self { _source: source, said }
    }

    /// Waits for evidence. Panics if `never` comes first, or on a timeout.
    async fn wait(&mut self, what: &str, wanted: impl Fn(&Evidence) -> bool, never: impl Fn(&Evidence) -> bool) {
        let wait = self.said.wait_for(|said| {
            assert!(!never(said) || wanted(said), "{said:?} instead of {what}");
            wanted(said)
        });
        let found = tokio::time::timeout(PATIENCE, wait)
            .await
            .map(|found| found.unwrap().clone());
        assert!(found.is_ok(), "timed out waiting for {what}: {:?}", *self.said.borrow());
    }

    async fn primary(&mut self) {
        self.wait("primary", is_primary, |_| false).await;
    }

    async fn replica(&mut self) {
        self.wait("replica", |said| *said == Evidence::Replica, |_| false).await;
    }

    /// Waits for an *uncertain* with these words. Panics on "primary".
    async fn doubt(&mut self, words: &str) {
        let wanted = |said: &Evidence| matches!(said, Evidence::Uncertain(why) if why.contains(words));
        self.wait(words, wanted, |_| false).await;
    }

    /// Waits for an *uncertain* with these words, or for "replica" if `words` is empty. Panics on "primary".
    async fn never_primary_until(&mut self, words: &str) {
        let wanted = |said: &Evidence| match said {
            Evidence::Uncertain(why) => !words.is_empty() && why.contains(words),
            said => words.is_empty() && *said == Evidence::Replica,
        };
        self.wait(words, wanted, is_primary).await;
    }
}

fn is_primary(said: &Evidence) -> bool {
    matches!(said, Evidence::Primary(_))
}
