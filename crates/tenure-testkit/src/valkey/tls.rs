//! A server with a TLS port beside the plain port that tests use to inspect it.

use std::path::Path;

use super::{Flavour, Server};
use crate::certs::Certs;
use crate::port::Port;

/// A server with a second port for TLS.
#[derive(Debug)]
pub struct TlsServer {
    server: Server,
    port: Port,
}

impl TlsServer {
    /// Starts a server with the server's certificate. With `client_certs` it accepts only clients with a certificate of
    /// the same authority. Prints a message and returns `None` if the server is not installed.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    #[track_caller]
    pub fn start(flavour: Flavour, certs: &Certs, client_certs: bool) -> Option<TlsServer> {
        TlsServer::with(flavour, certs, client_certs, &[])
    }

    /// Starts a server with additional settings, like [`Server::with`].
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    #[track_caller]
    pub fn with(flavour: Flavour, certs: &Certs, client_certs: bool, settings: &[&str]) -> Option<TlsServer> {
        let port = Port::reserve();
        let number = port.number().to_string();
        let text = |path: &Path| path.display().to_string();
        let (cert, key, ca) = (text(&certs.server_cert()), text(&certs.server_key()), text(&certs.ca()));
        let clients = if client_certs { "yes" } else { "no" };
        let tls = [
            "--tls-port",
            &number,
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &ca,
            "--tls-auth-clients",
            clients,
        ];
        let server = Server::with(flavour, &[&tls, settings].concat())?;
        Some(TlsServer { server, port })
    }

    /// The server, on its plain port.
    #[must_use]
    pub fn plain(&self) -> &Server {
        &self.server
    }

    /// The TLS port.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.port.number()
    }
}
