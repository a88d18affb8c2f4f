//! What a supervisor needs of a catalog.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;

use crate::catalog::Catalog;

/// The registration of one service: an actor that pursues what is wanted, by itself and for as long as it takes. It is
/// never in the way of the child.
pub trait Registration: fmt::Debug + Send {
    /// The service shall be in the catalog, or shall not be. Comes back at once.
    fn want(&mut self, registered: bool);

    /// Completes when the catalog has confirmed that the service is not in it, after the latest `want(false)`. May be
    /// dropped and called again; it is not called while the service is wanted.
    fn absent(&mut self) -> impl Future<Output = ()> + Send;

    /// Whether others may be sent to the service, as far as is known here.
    fn is_listed(&self) -> bool;

    /// How things stand, in a few words for people.
    fn status(&self) -> String;

    /// Completes when [`Registration::status`] says something else than `told`. Never, by default: then it is asked
    /// whenever something else has happened.
    fn news(&self, told: &str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let _ = told;
        Box::pin(pending())
    }
}

/// `None`: nobody has to find the program.
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

    fn news(&self, told: &str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (watch, told) = (self.as_ref().map(Catalog::watch), told.to_owned());
        Box::pin(async move {
            let Some(mut watch) = watch else { return pending().await };
            if watch.wait_for(|status| status.to_string() != told).await.is_err() {
                // The actor is gone, and says nothing any more.
                pending::<()>().await;
            }
        })
    }
}
