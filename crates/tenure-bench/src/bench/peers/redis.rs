//! By hand on Redis, as most libraries do: a key with a time to live for each member and lock. The server is Valkey.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use async_trait::async_trait;
use tenure_testkit::resp::Reply as Resp;
use tenure_testkit::{Availability, have};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::peer::{Holder, Locks, Peer, share};
use crate::load::{Connection, Lane, Reply};
use crate::subject::member;
use crate::valkey::ValkeyServer;

/// How often a waiter asks for the lock.
const POLL: Duration = Duration::from_millis(100);
/// The time to live of a waiter's key: it needs no renewal.
const WAITER: Duration = Duration::from_secs(60);
const OK: &[u8] = b"+OK\r\n";

pub(super) struct Redis {
    server: ValkeyServer,
    ttl: Duration,
}

impl Redis {
    pub(super) async fn start(ttl: Duration) -> Result<Option<Self>> {
        if let Availability::Missing { .. } = have("valkey-server") {
            return Ok(None);
        }
        let server = spawn_blocking(ValkeyServer::start).await??;
        Ok(Some(Self { server, ttl }))
    }
}

#[async_trait]
impl Peer for Redis {
    fn processes(&self) -> Result<Vec<u32>> {
        Ok(vec![self.server.pid()])
    }

    async fn join(&self, members: usize) -> Result<()> {
        let set = |number| beat(number, self.ttl).to_vec();
        ValkeyServer::pipeline(&mut self.server.client()?, &(0..members).map(set).collect::<Vec<_>>())
    }

    async fn lanes(&self, members: Range<usize>, lanes: usize) -> Result<Vec<Lane>> {
        let mut all = Vec::new();
        for lane in 0..lanes {
            let requests = share(members.clone(), lane, lanes).map(|number| command(&beat(number, self.ttl)));
            let connection = Connection::connect(self.server.addr()).await?;
            all.push(Lane::new(vec![connection], requests.collect(), 0.., Arc::new(is_ok)));
        }
        Ok(all)
    }

    /// All keys by SCAN, each read by a GET.
    async fn alive(&self) -> Result<usize> {
        let mut client = self.server.client()?;
        spawn_blocking(move || {
            let (mut cursor, mut alive) = ("0".to_owned(), BTreeSet::new());
            loop {
                let page = client.call(&["SCAN", &cursor, "MATCH", "member:*", "COUNT", "100"])?;
                let [next, keys] = page.items() else {
                    bail!("SCAN was answered with {page:?}")
                };
                for key in keys.texts() {
                    if client.call(&["GET", &key])? != Resp::Nil {
                        alive.insert(key);
                    }
                }
                cursor = next.text();
                if cursor == "0" {
                    return Ok(alive.len());
                }
            }
        })
        .await?
    }

    fn locks(&self) -> Vec<(&'static str, Arc<dyn Locks>)> {
        vec![("", Arc::new(Keys(self.server.addr())))]
    }
}

fn beat(number: usize, ttl: Duration) -> [String; 5] {
    let (key, seconds) = (format!("member:{}", member(number)), ttl.as_secs().to_string());
    ["SET".to_owned(), key, "v".to_owned(), "EX".to_owned(), seconds]
}

fn command<W: AsRef<str>>(words: &[W]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words.iter().map(AsRef::as_ref) {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    request.into_bytes()
}

fn is_ok(bytes: &[u8]) -> Result<Option<Reply>> {
    let whole = bytes.ends_with(b"\r\n").then(|| Reply {
        bad: (bytes != OK).then(|| String::from_utf8_lossy(bytes).into_owned()),
        ..Reply::good(bytes.len())
    });
    Ok(whole)
}

/// Keys that one client can set.
struct Keys(SocketAddr);

#[async_trait]
impl Locks for Keys {
    async fn hold(&self, lock: &str, ttl: Duration) -> Result<Box<dyn Holder>> {
        let mut connection = Connection::connect(self.0).await?;
        ensure!(set_absent(&mut connection, lock, ttl).await?, "the lock is not free");
        let lock = lock.to_owned();
        Ok(Box::new(KeyHolder { connection, lock, ttl }))
    }

    /// Tries every 100 ms.
    async fn wait(&self, lock: &str) -> Result<Instant> {
        let mut connection = Connection::connect(self.0).await?;
        while !set_absent(&mut connection, lock, WAITER).await? {
            sleep(POLL).await;
        }
        Ok(Instant::now())
    }
}

struct KeyHolder {
    connection: Connection,
    lock: String,
    ttl: Duration,
}

#[async_trait]
impl Holder for KeyHolder {
    async fn renew(&mut self) -> Result<()> {
        let ttl = self.ttl.as_millis().to_string();
        let reply = call(&mut self.connection, &["PEXPIRE", &self.lock, &ttl]).await?;
        ensure!(reply == ":1", "the holder's key has expired: {reply}");
        Ok(())
    }
}

async fn set_absent(connection: &mut Connection, lock: &str, ttl: Duration) -> Result<bool> {
    let ttl = ttl.as_millis().to_string();
    let reply = call(connection, &["SET", lock, "holder", "NX", "PX", &ttl]).await?;
    Ok(reply == "+OK")
}

/// A command whose reply is one line.
async fn call(connection: &mut Connection, words: &[&str]) -> Result<String> {
    let line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        Ok(text.strip_suffix("\r\n").map(|line| (bytes.len(), line.to_owned())))
    };
    connection.exchange(&command(words), line).await
}
