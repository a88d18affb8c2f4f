//! A store wrapper that runs each call on the heartbeat runtime.
//!
//! A connection belongs to the runtime that first used it. If that is the user's runtime and the user blocks it, every
//! call over the connection stalls, beats included. User calls therefore run on the heartbeat runtime, too.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::call::{Reply, StoreRequest};
use tenure_core::error::Result;
use tenure_core::store::middleware::Middleware;
use tenure_core::store::{Finding, Store};
use tokio::runtime::Handle;

use crate::heartbeat::run_on;

/// Runs each call of `store` on `runtime`.
pub(crate) struct OnRuntime {
    store: Arc<dyn Store>,
    runtime: Handle,
}

impl OnRuntime {
    pub(crate) fn new(store: Arc<dyn Store>, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { store, runtime })
    }
}

impl fmt::Debug for OnRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnRuntime({})", self.store.place())
    }
}

impl Middleware for OnRuntime {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn handle(&self, ask: StoreRequest) -> Result<Reply> {
        let store = self.store();
        run_on(&self.runtime, async move { store.call(ask).await }).await?
    }

    fn answers_within(&self) -> Option<Duration> {
        self.store.answers_within()
    }

    async fn examine(&self) -> Vec<Finding> {
        let store = self.store();
        run_on(&self.runtime, async move { store.examine().await })
            .await
            .unwrap_or_default()
    }

    async fn close(&self) {
        let store = self.store();
        // This fails only when the runtime has stopped; nothing is left to close then.
        drop(run_on(&self.runtime, async move { store.close().await }).await);
    }
}
