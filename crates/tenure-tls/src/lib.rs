//! TLS for every connection and listener of Tenure: PEM certificates and keys, rustls with ring.
//!
//! All crates read certificates here, so options and errors are the same for a daemon, Valkey, Postgres and Consul.
//! Verification cannot be turned off: to trust a self-signed server, name its authority.
//!
//! This crate opens no sockets. Building a configuration reads the files; [`ReloadingTls`] rebuilds it when they
//! change.

mod client;
mod error;
mod files;
mod reload;
mod server;

pub use client::{ClientTls, without_roots};
pub use error::{Result, TlsError};
pub use reload::{Reload, ReloadingTls};
pub use rustls::ClientConfig;
pub use server::ServerTls;

#[cfg(test)]
mod tests;
