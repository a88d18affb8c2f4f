//! A primary with two replicas, and three sentinels, which speak TLS with each other and with their clients.

use super::{NAME, Sentinel, sees_all};
use crate::certs::Certs;
use crate::port::Port;
use crate::server::must;
use crate::valkey::tls::TlsServer;
use crate::valkey::{Flavour, START};
use crate::wait;

/// The servers and the sentinels. Dropping it ends them all.
#[derive(Debug)]
pub struct TlsSentinels {
    flavour: Flavour,
    servers: Vec<TlsServer>,
    _sentinels: Vec<Sentinel>,
    ports: Vec<Port>,
}

impl TlsSentinels {
    /// Starts them; they name the servers by `127.0.0.1`. `None`, after a loud word, when the server isn't installed.
    ///
    /// # Panics
    /// When they don't find each other.
    #[must_use]
    #[track_caller]
    pub fn start(flavour: Flavour, certs: &Certs) -> Option<TlsSentinels> {
        let path = |path: std::path::PathBuf| path.display().to_string();
        let (cert, key) = (path(certs.client_cert()), path(certs.client_key()));
        // What a server shows to another.
        let own = [
            "--tls-replication",
            "yes",
            "--tls-client-cert-file",
            &cert,
            "--tls-client-key-file",
            &key,
        ];
        let server = |_| TlsServer::with(flavour, certs, false, &own);
        let servers: Vec<TlsServer> = (0..3).map(server).collect::<Option<_>>()?;
        let watched = servers[0].tls_port();
        for replica in &servers[1..] {
            replica.plain().replica_of_port(watched);
        }
        let ports: Vec<Port> = (0..3).map(|_| Port::reserve()).collect();
        let launch = |port: &Port| {
            // They take nobody for dead on a busy machine.
            let settings = format!(
                "sentinel down-after-milliseconds {NAME} 30000\nbind 127.0.0.1 127.0.0.2\ntls-port {}\ntls-replication yes\ntls-auth-clients no\ntls-cert-file {}\n\
                 tls-key-file {}\ntls-ca-cert-file {}\ntls-client-cert-file {cert}\ntls-client-key-file {key}",
                port.number(),
                path(certs.server_cert()),
                path(certs.server_key()),
                path(certs.ca()),
            );
            must(Sentinel::launch(flavour, watched, &settings))
        };
        let sentinels: Vec<Sentinel> = ports.iter().map(launch).collect();
        wait::until("the sentinels know each other and the replicas", 3 * START, || {
            sentinels.iter().all(sees_all)
        });
        Some(TlsSentinels {
            flavour,
            servers,
            _sentinels: sentinels,
            ports,
        })
    }

    /// `valkey-sentinel://HOST:PORT,…/main`, or `redis-sentinel://…`, without settings. They listen on `127.0.0.1` and
    /// `127.0.0.2`.
    #[must_use]
    pub fn url(&self, host: &str) -> String {
        let at: Vec<String> = self
            .ports
            .iter()
            .map(|port| format!("{host}:{}", port.number()))
            .collect();
        format!("{}-sentinel://{}/{NAME}", self.flavour.scheme(), at.join(","))
    }

    /// The servers; the first is the primary.
    #[must_use]
    pub fn servers(&self) -> &[TlsServer] {
        &self.servers
    }
}
