//! TLS to a real Postgres: server and client certificates, error messages, and cancelled statements.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::error::Outcome;
use tenure_core::ledger::ProviderSpec;
use tenure_core::{Error, ErrorKind, Ledger, ProviderId, RosterName};
use tenure_testkit::certs::Certs;
use tenure_testkit::postgres::Server;
use tenure_testkit::wait::until_async;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::servers::{cell, connect, ledger, long_timeouts};

/// By host name, which the certificate contains, like the address.
fn url(server: &Server, certs: &Certs, more: &str) -> String {
    format!(
        "postgres://postgres@localhost:{}/postgres?sslmode=verify-full&tls_ca={}{more}",
        server.port(),
        certs.ca().display()
    )
}

async fn put(ledger: &dyn Ledger) -> Result<(), Error> {
    let (roster, ann) = (RosterName::new("care")?, ProviderId::new("ann")?);
    let spec = ProviderSpec {
        display_name: None,
        capacity: Some(1).into(),
    };
    ledger.put_provider(&roster, &ann, &spec).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_connects_over_tls_with_a_trusted_certificate() {
    let certs = Certs::new();
    let Some(server) = Server::with_tls(&certs, false) else {
        return;
    };
    let over_tls = ledger(long_timeouts(&url(&server, &certs, "")));
    put(&*over_tls).await.expect("a provider");
    let admin = connect(&server.url()).await;
    let encrypted = "SELECT count(*) > 0 FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
        WHERE s.ssl AND a.application_name = 'tenure'";
    assert_eq!(cell(&admin, encrypted).await, "true");

    let mut wrong = url(&server, &certs, "");
    wrong = wrong.replace(
        &certs.ca().display().to_string(),
        &certs.other_ca().display().to_string(),
    );
    let error = ledger(long_timeouts(&wrong))
        .now()
        .await
        .expect_err("another authority");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.message().contains("tls_ca"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_for_another_name_is_rejected() {
    let certs = Certs::new();
    let Some(server) = Server::with_tls(&certs, false) else {
        return;
    };
    // The same server under a name that is in its certificate, and under one that is not.
    let right = url(&server, &certs, "&hostaddr=127.0.0.1");
    ledger(long_timeouts(&right)).now().await.expect("the time");
    let wrong = right.replace("@localhost:", "@elsewhere.example:");
    let error = ledger(long_timeouts(&wrong)).now().await.expect_err("another name");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.message().contains("by a name that is in it"), "{error:?}");
}

/// Relays to a server. Once `spoilt` is set, it corrupts the last byte of each client message.
async fn spoiling(upstream: SocketAddr, spoilt: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(upstream).await.expect("the server");
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let spoilt = Arc::clone(&spoilt);
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                    buffer[read - 1] ^= u8::from(spoilt.load(Ordering::Relaxed));
                    if to_server.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    addr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_during_a_statement_has_an_unknown_outcome() {
    let certs = Certs::new();
    let Some(server) = Server::with_tls(&certs, false) else {
        return;
    };
    let spoilt = Arc::new(AtomicBool::new(false));
    let relay = spoiling(server.addr(), Arc::clone(&spoilt)).await;
    let (port, through) = (format!(":{}/", server.port()), format!(":{}/", relay.port()));
    let ledger = ledger(long_timeouts(&url(&server, &certs, "").replace(&port, &through)));
    put(&*ledger).await.expect("a provider");
    spoilt.store(true, Ordering::Relaxed);
    let error = put(&*ledger).await.expect_err("the server ends it");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unknown),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_sent_on_request() {
    let certs = Certs::new();
    let Some(server) = Server::with_tls(&certs, true) else {
        return;
    };
    let files = |cert: std::path::PathBuf, key: std::path::PathBuf| {
        format!("&tls_cert={}&tls_key={}", cert.display(), key.display())
    };
    let ours = files(certs.client_cert(), certs.client_key());
    let shown = ledger(long_timeouts(&url(&server, &certs, &ours)));
    put(&*shown).await.expect("a provider");
    let stranger = files(certs.other_client_cert(), certs.other_client_key());
    for more in ["", stranger.as_str()] {
        let error = ledger(long_timeouts(&url(&server, &certs, more)))
            .now()
            .await
            .expect_err("let in");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    }
    let plain = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
    let error = ledger(long_timeouts(&plain))
        .now()
        .await
        .expect_err("let in without TLS");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_reported() {
    let certs = Certs::new();
    let Some(server) = Server::start() else { return };
    let error = ledger(long_timeouts(&url(&server, &certs, "")))
        .now()
        .await
        .expect_err("no TLS");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.message().contains("sslmode=disable"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timed_out_statement_is_cancelled_over_tls() {
    let certs = Certs::new();
    let Some(server) = Server::with_tls(&certs, false) else {
        return;
    };
    let first = ledger(long_timeouts(&url(&server, &certs, "")));
    put(&*first).await.expect("a provider");
    let mut options = long_timeouts(&url(&server, &certs, ""));
    options.call_timeout = Duration::from_secs(1);
    let short_timeouts = ledger(options);
    until_async("the first answer", Duration::from_secs(30), || async {
        put(&*short_timeouts).await.is_ok()
    })
    .await;
    let (holder, admin) = (connect(&server.url()).await, connect(&server.url()).await);
    holder
        .batch_execute("BEGIN; LOCK TABLE tenure.providers")
        .await
        .expect("the lock");
    put(&*short_timeouts).await.expect_err("the table is locked");
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    until_async("no statement waits for the lock", Duration::from_secs(30), || async {
        cell(&admin, waiting).await == "0"
    })
    .await;
    holder.batch_execute("ROLLBACK").await.expect("the end");
    until_async("it writes again", Duration::from_secs(30), || async {
        put(&*short_timeouts).await.is_ok()
    })
    .await;
}
