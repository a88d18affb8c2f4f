//! PgBouncer in transaction mode in front of a test server, and its specifics.
#![expect(
    clippy::disallowed_methods,
    reason = "that a freeze lasts for seconds is about real time"
)]

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use tenure_core::ledger::ProviderSpec;
use tenure_core::{Ledger, ProviderId, RosterName};
use tenure_testkit::port::Port;
use tenure_testkit::postgres::{Endpoint, Server, USER, shared};
use tenure_testkit::wait::{soak_factor, until_async};
use tenure_testkit::{Process, have};

use crate::servers::{cell, connect, ledger, long_timeouts};

/// A running pooler; dropping it stops it.
pub(crate) struct Pooler {
    port: Port,
    _process: Process,
}

impl Pooler {
    /// Starts a pooler. Prints a message and returns `None` if PgBouncer is not installed.
    pub(crate) fn start(server: &Endpoint) -> Option<Pooler> {
        let program = have("pgbouncer").or_skip()?;
        let port = Port::reserve();
        let process = Process::spawn("pgbouncer", |dir| {
            let settings = format!(
                "[databases]\n* = host=127.0.0.1 port={} user={USER}\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={}\n\
                 unix_socket_dir=\nauth_type=any\npool_mode=transaction\ndefault_pool_size=4\nmax_client_conn=400\n\
                 server_idle_timeout=5\n",
                server.port(),
                port.number()
            );
            let file = dir.join("pgbouncer.ini");
            fs::write(&file, settings).expect("its settings");
            let mut command = Command::new(program);
            command.arg(&file);
            // Like the server, it refuses to run as root.
            if rustix_is_root() {
                command.args(["-u", USER]);
            }
            command
        });
        let process = process.expect("a pooler");
        let ready = process.wait_ready(Duration::from_secs(20), || {
            std::net::TcpStream::connect(port.addr()).map(drop).map_err(Into::into)
        });
        ready.expect("a pooler that listens");
        Some(Pooler {
            port,
            _process: process,
        })
    }

    /// The URL of one of the server's databases, through this pooler.
    pub(crate) fn url(&self, database: &str) -> String {
        let name = database.rsplit('/').next().unwrap_or_default();
        format!("postgres://{USER}@{}/{name}", self.port.addr())
    }
}

fn rustix_is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("an id");
    output.stdout.trim_ascii() == b"0"
}

/// A server connection serves many clients in turn, and no session state of one reaches the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_state_remains_behind_a_pooler() {
    let Some(server) = shared() else { return };
    let Some(pooler) = Pooler::start(server) else { return };
    let database = server.database();
    let mut options = long_timeouts(&pooler.url(&database));
    options.pool_size = 20;
    let ledger = ledger(options);
    ledger.prepare().await.expect("a schema");
    let mut tasks = Vec::new();
    for n in 0..200 {
        let ledger = std::sync::Arc::clone(&ledger);
        tasks.push(tokio::spawn(async move {
            let roster = RosterName::new("care").expect("a name");
            let name = ProviderId::new(format!("p{}", n % 50)).expect("a name");
            let put = ledger.put_provider(&roster, &name, &ProviderSpec::default()).await;
            put.expect("a provider");
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    // On a server connection of the pooler, as the next client gets it.
    let url = pooler.url(&database);
    let (through, direct) = (connect_simple(&url).await, connect(&database).await);
    assert_eq!(through("SELECT count(*) FROM pg_prepared_statements").await, "0");
    assert_eq!(
        through("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").await,
        "0"
    );
    assert_eq!(through("SELECT current_setting('lock_timeout')").await, "0");
    assert_eq!(
        through("SELECT coalesce(current_setting('tenure.reason', true), '')").await,
        ""
    );
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND state LIKE 'idle in transaction%'";
    assert_eq!(cell(&direct, open).await, "0");
    let backends = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    assert!(
        cell(&direct, backends).await.parse::<u32>().expect("a number") <= 4,
        "the pooler's size"
    );
}

/// How long a freeze lasts.
const FROZEN: Duration = Duration::from_secs(8);

/// A server that freezes under load, repeatedly: PgBouncer 1.18 crashed on cancel requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pooler_outlives_a_server_that_freezes() {
    let Some(server) = Server::start() else { return };
    let Some(pooler) = Pooler::start(&server) else { return };
    let database = server.database();
    let mut options = long_timeouts(&pooler.url(&database));
    options.pool_size = 20;
    let first = ledger(options.clone());
    first.prepare().await.expect("a schema");
    options.call_timeout = Duration::from_millis(300);
    options.batch_timeout = options.call_timeout;
    let ledger = ledger(options);
    let (roster, name) = (
        RosterName::new("care").expect("a name"),
        ProviderId::new("ann").expect("a name"),
    );
    let working = || async {
        let spec = ProviderSpec::default();
        ledger.put_provider(&roster, &name, &spec).await.is_ok()
    };
    let crowd = async |frozen: bool| {
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..400u32 {
            let (ledger, roster, name) = (std::sync::Arc::clone(&ledger), roster.clone(), name.clone());
            calls.spawn(async move {
                match n % 2 {
                    0 => ledger.provider(&roster, &name).await.map(drop),
                    _ => ledger.activate(&roster, &name).await.map(drop),
                }
            });
            if n == 60 && !frozen {
                server.pause();
            }
        }
        let failed = calls.join_all().await.into_iter().filter_map(Result::err);
        // A daemon answers 503.
        failed.map(|error| assert!(error.is_unavailable(), "{error:?}")).count()
    };
    for round in 0..2 * soak_factor() {
        until_async("it works", Duration::from_secs(30), working).await;
        let since = Instant::now();
        let mut unavailable = crowd(false).await;
        while since.elapsed() < FROZEN {
            unavailable += crowd(true).await;
        }
        assert!(unavailable > 0, "round {round} froze nothing");
        server.resume();
        std::net::TcpStream::connect(pooler.port.addr()).expect("the pooler lives");
        let resumed = Instant::now();
        until_async("it works again", Duration::from_secs(30), working).await;
        println!(
            "round {round}: {unavailable} calls unavailable, works after {:?}",
            resumed.elapsed()
        );
    }
}

/// Queries without a prepared statement, which this version of the pooler does not support.
async fn connect_simple(url: &str) -> impl Fn(&'static str) -> std::pin::Pin<Box<dyn Future<Output = String> + Send>> {
    let client = std::sync::Arc::new(connect(url).await);
    move |statement| {
        let client = std::sync::Arc::clone(&client);
        Box::pin(async move {
            let messages = client.simple_query(statement).await.expect("an answer");
            let row = messages.iter().find_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
                _ => None,
            });
            row.expect("a row")
        })
    }
}
