//! The three sinks of a holder, each behind its fence and with a log of the admitted writes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use tenure::fence::{Fence, POSTGRES, Token, VALKEY};
use tenure_testkit::resp::{Client, Reply};
use tenure_testkit::{postgres, valkey};
use tokio_postgres::NoTls;

pub(crate) const NAMES: [&str; 3] = ["postgres", "valkey", "rust"];
/// The resource, and the lease that guards it.
pub(crate) const DEVICE: &str = "device-7";
const MARK: &str = "{device-7}:fence";
const LOG: &str = "{device-7}:log";

/// The servers behind the sinks.
pub(crate) struct Sinks {
    /// A database of its own.
    postgres: String,
    pub(crate) valkey: valkey::Server,
    pub(crate) local: Arc<LocalSink>,
}

impl Sinks {
    /// Starts them; `None` if this machine lacks a server.
    pub(crate) fn start() -> Option<Sinks> {
        Some(Sinks {
            postgres: postgres::shared()?.database(),
            valkey: valkey::Server::start(valkey::Flavour::Valkey)?,
            local: LocalSink::start(),
        })
    }

    /// Creates the fence and a log in Postgres, and makes Valkey an old store.
    pub(crate) async fn prepare(&self) {
        // A new store grants no lease before its first max ttl is over.
        self.valkey.cli(&["HSET", "tenure:store", "born", "1"]).unwrap();
        let client = connect(&self.postgres).await;
        client.batch_execute(POSTGRES).await.unwrap();
        client
            .batch_execute("CREATE TABLE readings (at bigserial, token bigint)")
            .await
            .unwrap();
    }

    /// The addresses for a writer, in one string.
    pub(crate) fn addresses(&self) -> String {
        format!("{} {} {}", self.postgres, self.valkey.addr(), self.local.addr)
    }

    /// The tokens of the admitted writes, in the order of [`NAMES`] and of arrival.
    pub(crate) async fn logs(&self) -> [Vec<u64>; 3] {
        let client = connect(&self.postgres).await;
        let rows = client
            .query("SELECT token FROM readings ORDER BY at", &[])
            .await
            .unwrap();
        let in_postgres = rows.iter().map(|row| row.get::<_, i64>(0).try_into().unwrap());
        let in_valkey = self.valkey.cli(&["LRANGE", LOG, "0", "-1"]).unwrap().texts();
        let in_valkey = in_valkey.iter().map(|token| token.parse().unwrap());
        let local = self.local.log.lock().unwrap().clone();
        [in_postgres.collect(), in_valkey.collect(), local]
    }
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Writes to all three sinks.
pub(crate) struct Writer {
    postgres: tokio_postgres::Client,
    valkey: Client,
    local: BufReader<TcpStream>,
}

impl Writer {
    pub(crate) async fn new(addresses: &str) -> Writer {
        let addresses: Vec<&str> = addresses.split(' ').collect();
        Writer {
            postgres: connect(addresses[0]).await,
            valkey: Client::connect(addresses[1].parse().unwrap()).unwrap(),
            local: BufReader::new(TcpStream::connect(addresses[2]).unwrap()),
        }
    }

    /// Sends a write to each sink and returns the outcomes.
    pub(crate) async fn write(&mut self, token: Token) -> [Result<(), String>; 3] {
        let number = i64::try_from(token.get()).unwrap();
        let statement = "INSERT INTO readings (token) SELECT $1 FROM tenure_fence('device-7', $1)";
        let in_postgres = self.postgres.execute(statement, &[&number]).await;
        let in_postgres = in_postgres.map(drop).map_err(|error| {
            let error = error.as_db_error().unwrap();
            format!("{}: {}", error.code().code(), error.message())
        });
        let token = token.to_string();
        let call = ["EVAL", VALKEY, "2", MARK, LOG, &token, "RPUSH", &token];
        let in_valkey = match self.valkey.call(&call).unwrap() {
            Reply::Error(refusal) => Err(refusal),
            _ => Ok(()),
        };
        let local = self.ask_local(&token);
        [in_postgres, in_valkey, if local == "ok" { Ok(()) } else { Err(local) }]
    }

    /// Waits until the test opens the gate.
    pub(crate) fn wait_at_gate(&mut self) {
        assert_eq!(self.ask_local("gate"), "open");
    }

    fn ask_local(&mut self, line: &str) -> String {
        writeln!(self.local.get_mut(), "{line}").unwrap();
        let mut answer = String::new();
        self.local.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

/// The sink in the test's own process: a line is a token, the answer is `ok` or the rejection.
pub(crate) struct LocalSink {
    addr: SocketAddr,
    fence: Fence,
    log: Mutex<Vec<u64>>,
    /// The number of waiting connections, and whether the gate is open.
    gate: Mutex<(usize, bool)>,
    opened: Condvar,
}

impl LocalSink {
    fn start() -> Arc<LocalSink> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = Arc::new(LocalSink {
            addr: listener.local_addr().unwrap(),
            fence: Fence::default(),
            log: Mutex::default(),
            gate: Mutex::default(),
            opened: Condvar::new(),
        });
        let serving = local.clone();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (local, connection) = (serving.clone(), connection.unwrap());
                thread::spawn(move || local.serve(connection));
            }
        });
        local
    }

    fn serve(&self, connection: TcpStream) {
        let mut answers = connection.try_clone().unwrap();
        for line in BufReader::new(connection).lines() {
            let Ok(line) = line else { return };
            let answer = if line == "gate" { self.hold() } else { self.take(&line) };
            if writeln!(answers, "{answer}").is_err() {
                return;
            }
        }
    }

    fn take(&self, token: &str) -> String {
        let token = Token::new(token.parse().unwrap()).unwrap();
        let written = self
            .fence
            .pass(DEVICE, token, || self.log.lock().unwrap().push(token.get()));
        written.map_or_else(|fenced| fenced.to_string(), |()| "ok".to_owned())
    }

    fn hold(&self) -> String {
        let mut gate = self.gate.lock().unwrap();
        gate.0 += 1;
        while !gate.1 {
            gate = self.opened.wait(gate).unwrap();
        }
        "open".to_owned()
    }

    pub(crate) fn has_waiter(&self) -> bool {
        self.gate.lock().unwrap().0 > 0
    }

    pub(crate) fn open(&self) {
        self.gate.lock().unwrap().1 = true;
        self.opened.notify_all();
    }
}
