//! Sentinels with scripted replies, to show a client states that real sentinels have only for a moment or behind a
//! partition.

use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};

use super::{NAME, url_of};
use crate::port::Port;
use crate::resp::read_reply;
use crate::server::must;
use crate::valkey::Flavour;

/// A sentinel's view of the primary named [`NAME`].
#[derive(Clone, Copy, Debug)]
pub struct SentinelReply {
    /// The reply to `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    pub named: SocketAddr,
    /// The address in the reply to `SENTINEL MASTER`.
    pub printed: SocketAddr,
    /// The epoch in that reply.
    pub epoch: u64,
}

impl SentinelReply {
    /// The replies while there is no failover.
    #[must_use]
    pub fn steady(at: SocketAddr, epoch: u64) -> SentinelReply {
        SentinelReply {
            named: at,
            printed: at,
            epoch,
        }
    }
}

/// A scripted sentinel; dropping it closes its connections and frees its port.
#[derive(Debug)]
pub struct FakeSentinel {
    port: Port,
    shared: Arc<Mutex<FakeState>>,
}

#[derive(Debug)]
struct FakeState {
    reply: SentinelReply,
    open: Vec<TcpStream>,
    closed: bool,
}

impl FakeSentinel {
    /// Starts one.
    ///
    /// # Panics
    /// If the port cannot be bound.
    #[must_use]
    #[track_caller]
    pub fn start(reply: SentinelReply) -> FakeSentinel {
        must(FakeSentinel::launch(reply))
    }

    fn launch(reply: SentinelReply) -> Result<FakeSentinel> {
        let port = Port::reserve();
        let listener = TcpListener::bind(port.addr()).context("listen")?;
        let shared = Arc::new(Mutex::new(FakeState {
            reply,
            open: Vec::new(),
            closed: false,
        }));
        let ours = Arc::clone(&shared);
        thread::Builder::new().name("sentinel".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                {
                    let mut shared = lock(&ours);
                    if shared.closed {
                        return;
                    }
                    shared.open.extend(stream.try_clone());
                }
                let ours = Arc::clone(&ours);
                // The error of a closed connection does not matter.
                thread::spawn(move || serve(stream, &ours));
            }
        })?;
        Ok(FakeSentinel { port, shared })
    }

    /// The URL of several sentinels, in the given order: `valkey-sentinel://127.0.0.1:PORT,…/main`.
    #[must_use]
    pub fn url(these: &[&FakeSentinel]) -> String {
        let at: Vec<_> = these.iter().map(|one| one.port.addr()).collect();
        url_of(Flavour::Valkey, &at)
    }

    /// Sets the replies from now on.
    pub fn set_reply(&self, reply: SentinelReply) {
        lock(&self.shared).reply = reply;
    }
}

impl Drop for FakeSentinel {
    fn drop(&mut self) {
        {
            let mut shared = lock(&self.shared);
            shared.closed = true;
            for stream in shared.open.drain(..) {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        // Wakes the listener, which then sees `closed`.
        drop(TcpStream::connect(self.port.addr()));
    }
}

fn lock(shared: &Mutex<FakeState>) -> std::sync::MutexGuard<'_, FakeState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: TcpStream, shared: &Mutex<FakeState>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let command = read_reply(&mut stream)?.texts();
        let reply = lock(shared).reply;
        stream.get_mut().write_all(answer(&command, reply).as_bytes())?;
    }
}

fn answer(command: &[String], reply: SentinelReply) -> String {
    let words: Vec<String> = command.iter().map(|word| word.to_ascii_uppercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (named, printed) = (reply.named, reply.printed);
    match words[..] {
        ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", _] => array(&[&named.ip().to_string(), &named.port().to_string()]),
        ["SENTINEL", "MASTER", _] => array(&[
            "name",
            NAME,
            "ip",
            &printed.ip().to_string(),
            "port",
            &printed.port().to_string(),
            "flags",
            "master",
            "config-epoch",
            &reply.epoch.to_string(),
        ]),
        // Commands by which clients introduce themselves.
        _ => "+OK\r\n".to_owned(),
    }
}

fn array(texts: &[&str]) -> String {
    let mut wire = format!("*{}\r\n", texts.len());
    for text in texts {
        wire += &format!("${}\r\n{text}\r\n", text.len());
    }
    wire
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Client, Reply};

    #[test]
    fn it_returns_the_scripted_replies() {
        let (old, new) = (
            SocketAddr::from(([127, 0, 0, 1], 1)),
            SocketAddr::from(([127, 0, 0, 1], 2)),
        );
        let sentinel = FakeSentinel::start(SentinelReply::steady(old, 7));
        let mut client = Client::connect(sentinel.port.addr()).unwrap();
        let mut ask = |about| client.call(&["sentinel", about, NAME]).unwrap().texts();
        assert_eq!(ask("get-master-addr-by-name"), ["127.0.0.1", "1"]);
        sentinel.set_reply(SentinelReply {
            named: new,
            printed: old,
            epoch: 8,
        });
        assert_eq!(ask("get-master-addr-by-name"), ["127.0.0.1", "2"]);
        let fields = ask("master");
        assert_eq!((&fields[5][..], &fields[9][..]), ("1", "8"));
        assert_eq!(client.call(&["CLIENT", "ID"]).unwrap(), Reply::Simple("OK".to_owned()));
    }
}
