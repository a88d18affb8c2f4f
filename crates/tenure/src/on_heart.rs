//! A store whose every call runs on the heart.
//!
//! A connection belongs to the runtime that first used it: when that is the user's and the user blocks it, every call
//! over the same connection stalls, beats included. So user calls travel through the heart as well.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::call::{Ask, Reply};
use tenure_core::error::Result;
use tenure_core::store::around::Around;
use tenure_core::store::{Finding, Store};
use tokio::runtime::Handle;

use crate::heart::run_on;

/// The store.
pub(crate) struct OnHeart {
    store: Arc<dyn Store>,
    runtime: Handle,
}

impl OnHeart {
    pub(crate) fn new(store: Arc<dyn Store>, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { store, runtime })
    }
}

impl fmt::Debug for OnHeart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnHeart({})", self.store.place())
    }
}

impl Around for OnHeart {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn around(&self, ask: Ask) -> Result<Reply> {
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
        // It fails only when the heart has stopped, and then there is nothing left to close.
        drop(run_on(&self.runtime, async move { store.close().await }).await);
    }
}
