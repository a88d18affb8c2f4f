//! The export of traces in a build without the feature `otel`: refused, never ignored.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::Result;
use tenure_core::store::Store;

use super::TraceSettings;

/// There are none.
pub(in crate::daemon) struct Traces;

impl Traces {
    pub(in crate::daemon) fn start(settings: &TraceSettings, _: &Arc<dyn Clock>) -> Result<Self> {
        settings.check().map(|()| Self)
    }

    pub(in crate::daemon) fn of_calls(store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }

    pub(in crate::daemon) async fn finish(self, _: Duration) {}
}
