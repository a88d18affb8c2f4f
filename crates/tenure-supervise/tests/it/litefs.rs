//! Leadership by LiteFS, on real FUSE mounts: one that is frozen hangs, one whose server is killed is dead.
#![cfg(target_os = "linux")]

mod events;
mod file;
mod mount;
mod stream;

use std::time::Duration;

use tenure_core::clock::SystemClock;
use tenure_supervise::leadership::litefs::{Events, LiteFsSettings, watch};
use tenure_supervise::leadership::{Evidence, Leadership};
use tokio::sync::watch::Receiver;

/// How long a test waits for what comes in a fraction of a second on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// The settings of the tests: what takes seconds takes a tenth of them.
fn quick(dir: impl Into<std::path::PathBuf>) -> LiteFsSettings {
    LiteFsSettings {
        events: Events::Off,
        poll: Duration::from_millis(25),
        window: Duration::from_millis(300),
        deadline: Duration::from_millis(200),
        ..LiteFsSettings::new(dir)
    }
}

/// A source that is watched, and what it says.
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

    /// Waits for evidence; panics when `never` comes first, or nothing does.
    async fn wait(&mut self, what: &str, wanted: impl Fn(&Evidence) -> bool, never: impl Fn(&Evidence) -> bool) {
        let wait = self.said.wait_for(|said| {
            assert!(!never(said) || wanted(said), "{said:?} instead of {what}");
            wanted(said)
        });
        let found = tokio::time::timeout(PATIENCE, wait)
            .await
            .map(|found| found.unwrap().clone());
        assert!(found.is_ok(), "waited in vain for {what}: {:?}", *self.said.borrow());
    }

    async fn primary(&mut self) {
        self.wait("primary", is_primary, |_| false).await;
    }

    async fn replica(&mut self) {
        self.wait("replica", |said| *said == Evidence::Replica, |_| false).await;
    }

    /// Waits for a doubt with these words in it, and would not be told "primary" first.
    async fn doubt(&mut self, words: &str) {
        let wanted = |said: &Evidence| matches!(said, Evidence::Uncertain(why) if why.contains(words));
        self.wait(words, wanted, |_| false).await;
    }

    /// Waits for a doubt, or for "replica" when `words` is empty; "primary" fails the test.
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
