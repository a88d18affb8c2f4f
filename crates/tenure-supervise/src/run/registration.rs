//! The catalog, as the event loop sees it.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;

use crate::catalog::Catalog;

/// The registration of one service: an actor that pursues the desired state in the background, for as long as it takes.
/// It never blocks the child.
pub trait Registration: fmt::Debug + Send {
    /// Sets whether the service shall be in the catalog. Returns immediately.
    fn want(&mut self, registered: bool);

    /// Completes when the catalog has confirmed that the service is not in it, after the latest `want(false)`.
    /// Cancel-safe, may be called again; not called while the service is wanted.
    fn absent(&mut self) -> impl Future<Output = ()> + Send;

    /// Whether clients may be routed to the service, as far as is known here.
    fn is_listed(&self) -> bool;

    /// The state in a few words, for people.
    fn status(&self) -> String;

    /// Completes when [`Registration::status`] differs from `reported`. The default never completes; the status is then
    /// read after each other event.
    fn changed(&self, reported: &str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let _ = reported;
        Box::pin(pending())
    }
}

/// `None`: no catalog.
impl Registration for Option<Catalog> {
    fn want(&mut self, registered: bool) {
        if let Some(catalog) = self {
            Catalog::want(catalog, registered);
        }
    }

    async fn absent(&mut self) {
        if let Some(catalog) = self {
            Catalog::absent(catalog).await;
        }
    }

    fn is_listed(&self) -> bool {
        self.as_ref().is_some_and(|catalog| Catalog::status(catalog).listed)
    }

    fn status(&self) -> String {
        self.as_ref()
            .map_or_else(|| "none".to_owned(), |catalog| Catalog::status(catalog).to_string())
    }

    fn changed(&self, reported: &str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (watch, reported) = (self.as_ref().map(Catalog::watch), reported.to_owned());
        Box::pin(async move {
            let Some(mut watch) = watch else { return pending().await };
            if watch.wait_for(|status| status.to_string() != reported).await.is_err() {
                // The actor is gone, so the status no longer changes.
                pending::<()>().await;
            }
        })
    }
}
