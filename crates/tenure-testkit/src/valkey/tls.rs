//! A server that speaks TLS on a port of its own, beside the plain one that a test looks at it by.

use std::path::Path;

use super::{Flavour, Server};
use crate::certs::Certs;
use crate::port::Port;

/// A server with a second port, for TLS.
#[derive(Debug)]
pub struct TlsServer {
    server: Server,
    port: Port,
}

impl TlsServer {
    /// Starts a server with the server's certificate; with `client_certs` it lets only those in who show one by the same
    /// authority. `None`, after a loud word, when it isn't installed.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    #[track_caller]
    pub fn start(flavour: Flavour, certs: &Certs, client_certs: bool) -> Option<TlsServer> {
        TlsServer::with(flavour, certs, client_certs, &[])
    }

    /// The same with more settings, as [`Server::with`].
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

    /// The server, by its plain port.
    #[must_use]
    pub fn plain(&self) -> &Server {
        &self.server
    }

    /// The port for TLS.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.port.number()
    }
}
