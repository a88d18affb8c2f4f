//! TLS for everything that Tenure connects to and listens on: certificates and keys in PEM files, rustls with ring.
//!
//! One room for it, so that a certificate is named, read and complained about in the same way whether it belongs to a
//! daemon, a Valkey, a Postgres or a Consul. There is no switch that turns checking off: a server with a certificate of
//! one's own is trusted by naming its authority.
//!
//! It opens no sockets. Files are read when a configuration is made; [`Followed`] makes a new one when they have changed.

mod client;
mod error;
mod files;
mod followed;
mod server;

pub use client::{ClientTls, believing_nobody};
pub use error::{Result, TlsError};
pub use followed::{Followed, Look};
pub use rustls::ClientConfig;
pub use server::ServerTls;

#[cfg(test)]
mod tests;
