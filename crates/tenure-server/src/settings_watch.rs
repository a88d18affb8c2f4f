//! Settings of the store's server that endanger what it keeps. They do not make the daemon unready.

use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use tenure_core::clock::within;
use tenure_core::store::Severity;

use crate::app::App;

/// How often a server is examined; its settings can change while it runs.
const EVERY: Duration = Duration::from_secs(60);
/// The check of the examination that matters while the daemon runs: an evicted key reads as a dead member.
const CHECK: &str = "eviction";
/// Stores without a server, whose examination reads the whole file.
const LOCAL: [&str; 2] = ["sqlite:", "memory:"];

/// What was found last.
#[derive(Debug, Default)]
pub(crate) struct StoreWarnings(Mutex<Vec<String>>);

impl StoreWarnings {
    pub(crate) fn get(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs what is new.
    fn set(&self, found: Vec<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for new in found.iter().filter(|new| !known.contains(new)) {
            tracing::warn!("the store can lose keys: {new}");
        }
        *known = found;
    }
}

/// Examines the store until the server is gone. A check that is denied or not answered warns of nothing.
pub(crate) async fn watch(app: Weak<App>) {
    while let Some(app) = app.upgrade() {
        if LOCAL.iter().any(|local| app.store.place().starts_with(local)) {
            return;
        }
        if let Some(found) = within(&*app.clock, app.settings.request_timeout, app.store.examine()).await {
            let wrong = found
                .into_iter()
                .filter(|finding| finding.check == CHECK && finding.severity == Severity::Error);
            app.store_warnings.set(wrong.map(|finding| finding.detail).collect());
        }
        let (clock, draining) = (std::sync::Arc::clone(&app.clock), app.draining.clone());
        drop(app);
        tokio::select! {
            () = draining.cancelled() => return,
            () = clock.sleep(EVERY) => {}
        }
    }
}
