//! A relay in front of a server that controls each connection separately, and runs a hook between two requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The treatment of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    /// Packets are dropped without an error, as after a NAT entry has expired.
    Swallow,
    /// Both ends are closed.
    Cut,
}

type Hook = Box<dyn FnMut(&[u8]) + Send>;

/// Relays connections, numbered from zero in the order of arrival.
pub(crate) struct Relay {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    lines: Mutex<Vec<watch::Sender<Fate>>>,
    hook: Mutex<Option<Hook>>,
}

impl Relay {
    /// Relays from a free port of a local address.
    pub(crate) async fn start(ip: &str, upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(upstream).await else {
                    continue;
                };
                let (line, fate) = watch::channel(Fate::Pass);
                accepting.lines().push(line);
                client.set_nodelay(true).expect("an open socket");
                server.set_nodelay(true).expect("an open socket");
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                let up = Some(Arc::clone(&accepting));
                tokio::spawn(carry(from_client, to_server, fate.clone(), up));
                tokio::spawn(carry(from_server, to_client, fate, None));
            }
        });
        Self { addr, shared }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many connections there were.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.lines().len()
    }

    /// Sets the treatment of one connection.
    pub(crate) fn set(&self, nth: usize, fate: Fate) {
        self.shared.lines()[nth].send_replace(fate);
    }

    /// Shows client data to a hook before it is relayed.
    pub(crate) fn before_requests(&self, hook: impl FnMut(&[u8]) + Send + 'static) {
        *self.shared.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
    }
}

impl Shared {
    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<watch::Sender<Fate>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut fate: watch::Receiver<Fate>,
    hooked: Option<Arc<Shared>>,
) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = tokio::select! {
            biased;
            () = async { fate.wait_for(|fate| *fate == Fate::Cut).await.map(drop).unwrap_or_default() } => return,
            read = from.read(&mut buffer) => read,
        };
        let Ok(read @ 1..) = read else { return };
        if *fate.borrow() == Fate::Swallow {
            continue;
        }
        if let Some(shared) = &hooked
            && let Some(hook) = shared.hook.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
        {
            hook(&buffer[..read]);
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
