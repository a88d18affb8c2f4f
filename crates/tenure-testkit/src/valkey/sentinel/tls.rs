//! A primary with two replicas and three sentinels that use TLS among themselves and with clients.

use super::{NAME, Sentinel, sees_all};
use crate::certs::Certs;
use crate::port::Port;
use crate::server::must;
use crate::valkey::tls::TlsServer;
use crate::valkey::{Flavour, START};
use crate::wait;

/// The servers and the sentinels; dropping it stops them all.
#[derive(Debug)]
pub struct TlsSentinels {
    flavour: Flavour,
    servers: Vec<TlsServer>,
    _sentinels: Vec<Sentinel>,
    ports: Vec<Port>,
}

impl TlsSentinels {
    /// Starts them; the sentinels announce the servers as `127.0.0.1`. Prints a message and returns `None` if the
    /// server is not installed.
    ///
    /// # Panics
    /// If they do not find each other.
    #[must_use]
    #[track_caller]
    pub fn start(flavour: Flavour, certs: &Certs) -> Option<TlsSentinels> {
        let path = |path: std::path::PathBuf| path.display().to_string();
        let (cert, key) = (path(certs.client_cert()), path(certs.client_key()));
        // The certificate that a server presents to another.
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
            // A busy machine must not cause a failover.
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

    /// The URL without settings: `valkey-sentinel://HOST:PORT,…/main`, or `redis-sentinel://…`. The sentinels listen on
    /// `127.0.0.1` and `127.0.0.2`.
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
