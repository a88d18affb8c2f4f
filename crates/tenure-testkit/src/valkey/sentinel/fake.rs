//! Sentinels that watch nothing and tell what they were told to tell: to show a client what the real ones say for a moment
//! only, or when they are cut off.

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

/// What a sentinel tells about the primary called [`NAME`].
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// What `SENTINEL GET-MASTER-ADDR-BY-NAME` answers.
    pub named: SocketAddr,
    /// The address that `SENTINEL MASTER` prints.
    pub printed: SocketAddr,
    /// The epoch that it prints.
    pub epoch: u64,
}

impl Told {
    /// What a sentinel tells while there is no failover.
    #[must_use]
    pub fn at_rest(at: SocketAddr, epoch: u64) -> Told {
        Told {
            named: at,
            printed: at,
            epoch,
        }
    }
}

/// One such sentinel; dropping it closes its connections and frees its port.
#[derive(Debug)]
pub struct FakeSentinel {
    port: Port,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    told: Told,
    open: Vec<TcpStream>,
    closed: bool,
}

impl FakeSentinel {
    /// Starts one.
    ///
    /// # Panics
    /// When nobody can listen.
    #[must_use]
    #[track_caller]
    pub fn start(told: Told) -> FakeSentinel {
        must(FakeSentinel::launch(told))
    }

    fn launch(told: Told) -> Result<FakeSentinel> {
        let port = Port::reserve();
        let listener = TcpListener::bind(port.addr()).context("listen")?;
        let shared = Arc::new(Mutex::new(Shared {
            told,
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
                // Whoever goes away is nobody's concern.
                thread::spawn(move || serve(stream, &ours));
            }
        })?;
        Ok(FakeSentinel { port, shared })
    }

    /// `valkey-sentinel://127.0.0.1:PORT,…/main` for these, in their order.
    #[must_use]
    pub fn url(these: &[&FakeSentinel]) -> String {
        let at: Vec<_> = these.iter().map(|one| one.port.addr()).collect();
        url_of(Flavour::Valkey, &at)
    }

    /// From now on it tells this.
    pub fn tell(&self, told: Told) {
        lock(&self.shared).told = told;
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
        // Wakes the listener, so that it sees that it is over.
        drop(TcpStream::connect(self.port.addr()));
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: TcpStream, shared: &Mutex<Shared>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let command = read_reply(&mut stream)?.texts();
        let told = lock(shared).told;
        stream.get_mut().write_all(answer(&command, told).as_bytes())?;
    }
}

fn answer(command: &[String], told: Told) -> String {
    let words: Vec<String> = command.iter().map(|word| word.to_ascii_uppercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (named, printed) = (told.named, told.printed);
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
            &told.epoch.to_string(),
        ]),
        // What clients say of themselves.
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
    fn it_tells_what_it_was_told() {
        let (old, new) = (
            SocketAddr::from(([127, 0, 0, 1], 1)),
            SocketAddr::from(([127, 0, 0, 1], 2)),
        );
        let sentinel = FakeSentinel::start(Told::at_rest(old, 7));
        let mut client = Client::connect(sentinel.port.addr()).unwrap();
        let mut ask = |about| client.call(&["sentinel", about, NAME]).unwrap().texts();
        assert_eq!(ask("get-master-addr-by-name"), ["127.0.0.1", "1"]);
        sentinel.tell(Told {
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
