//! What a supervisor needs of a catalog.

use std::fmt;
use std::future::Future;

/// The registration of one service: an actor that pursues what is wanted, by itself and for as long as it takes. It is
/// never in the way of the child.
pub trait Registration: fmt::Debug + Send {
    /// The service shall be in the catalog, or shall not be. Comes back at once.
    fn want(&mut self, registered: bool);

    /// Completes when the catalog has confirmed that the service is not in it, after the latest `want(false)`. May be
    /// dropped and called again; it is not called while the service is wanted.
    fn absent(&mut self) -> impl Future<Output = ()> + Send;

    /// How things stand, in a few words for people.
    fn status(&self) -> String;
}

/// For programs that nobody has to find.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCatalog;

impl Registration for NoCatalog {
    fn want(&mut self, _registered: bool) {}

    async fn absent(&mut self) {}

    fn status(&self) -> String {
        "none".to_owned()
    }
}
