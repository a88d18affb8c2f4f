//! A cluster of three primaries without replicas that uses TLS between nodes and with clients.

use super::{PATIENCE, PRIMARIES, info, introduce, run};
use crate::certs::Certs;
use crate::port::Port;
use crate::valkey::Flavour;
use crate::valkey::tls::TlsServer;
use crate::wait;

/// A running cluster of three nodes; dropping it stops them all.
#[derive(Debug)]
pub struct TlsCluster {
    flavour: Flavour,
    nodes: Vec<TlsServer>,
    _buses: Vec<Port>,
}

impl TlsCluster {
    /// Starts a cluster whose nodes announce `announced`, an address of this machine, to clients. Prints a message and
    /// returns `None` if the server is not installed.
    ///
    /// # Panics
    /// If the nodes do not find each other.
    #[must_use]
    #[track_caller]
    pub fn start(flavour: Flavour, certs: &Certs, announced: &str) -> Option<TlsCluster> {
        let (cert, key) = (certs.client_cert(), certs.client_key());
        let (cert, key) = (cert.display().to_string(), key.display().to_string());
        let buses: Vec<Port> = (0..PRIMARIES).map(|_| Port::reserve()).collect();
        let node = |bus: &Port| {
            let bus = bus.number().to_string();
            let settings = [
                "--bind",
                "127.0.0.1",
                "127.0.0.2",
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1500",
                "--cluster-announce-ip",
                announced,
                "--tls-cluster",
                "yes",
                // The certificate that a node presents to another.
                "--tls-client-cert-file",
                &cert,
                "--tls-client-key-file",
                &key,
            ];
            TlsServer::with(flavour, certs, false, &settings)
        };
        let nodes: Vec<TlsServer> = buses.iter().map(node).collect::<Option<_>>()?;
        let plain = || nodes.iter().map(TlsServer::plain);
        for (at, node) in plain().enumerate() {
            run(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            let (first, last) = (at * 16_384 / PRIMARIES, (at + 1) * 16_384 / PRIMARIES - 1);
            run(
                node,
                &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()],
            );
        }
        introduce(&plain().collect::<Vec<_>>(), |n| {
            [nodes[n].tls_port(), buses[n].number()]
        });
        wait::until("the cluster is whole", PATIENCE, || {
            plain().all(|node| {
                info(node, "cluster_state") == "ok"
                    && info(node, "cluster_slots_ok") == "16384"
                    && info(node, "cluster_size") == "3"
            })
        });
        Some(TlsCluster {
            flavour,
            nodes,
            _buses: buses,
        })
    }

    /// `valkey-cluster://localhost:PORT,localhost:PORT`, or `redis-cluster://…`: two of the nodes, without settings.
    #[must_use]
    pub fn url(&self) -> String {
        let (scheme, at) = (self.flavour.scheme(), |n: usize| self.nodes[n].tls_port());
        format!("{scheme}-cluster://localhost:{},localhost:{}", at(0), at(1))
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[TlsServer] {
        &self.nodes
    }
}
