//! Servers with data of other programs, and connections to them.

use std::sync::{Arc, Mutex};

use tenure_core::clock::SystemClock;
use tenure_testkit::resp::{Client, Reply};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_valkey::connection::{Connection, ConnectionOptions};

/// A server with data that other programs write.
pub(crate) struct World {
    pub(crate) server: Server,
    client: Mutex<Client>,
}

impl World {
    pub(crate) fn start(flavour: Flavour) -> Option<Arc<World>> {
        World::with(flavour, &[])
    }

    pub(crate) fn with(flavour: Flavour, settings: &[&str]) -> Option<Arc<World>> {
        let server = Server::with(flavour, settings)?;
        let client = Mutex::new(server.client().unwrap());
        Some(Arc::new(World { server, client }))
    }

    /// Runs one command as another program. Reconnects if the connection is lost.
    pub(crate) fn run<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        let mut client = self.client.lock().unwrap();
        let reply = match client.call(args) {
            Ok(reply) => reply,
            Err(_) => {
                *client = self.server.client().unwrap();
                client.call(args).unwrap()
            }
        };
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
        reply
    }
}

/// A connection that is up, if the server is.
pub(crate) async fn connected(url: &str, options: ConnectionOptions) -> Connection {
    let connection = Connection::open(url, options, SystemClock::shared()).unwrap();
    connection.first_try().await;
    connection
}
