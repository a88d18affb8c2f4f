//! TLS: who is believed, who is let in, and what a slow or a silent client costs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure::AccessToken;
use tenure::http::{HttpSettings, HttpStore};
use tenure_core::clock::SystemClock;
use tenure_core::error::{Error, ErrorKind};
use tenure_core::store::Store;
use tenure_core::time::StoreTime;
use tenure_server::auth::Scope;
use tenure_server::{Settings, TlsSettings};
use tenure_testkit::certs::Certs;
use tenure_testkit::wait::until_async;
use tenure_tls::ServerTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::common::Daemon;
use crate::token_server::{SOON, Tokens, serve};

fn settings(certs: &Certs, client_ca: bool) -> Settings {
    let files = ServerTls {
        cert: certs.server_cert(),
        key: certs.server_key(),
        client_ca: client_ca.then(|| certs.ca()),
    };
    Settings {
        tls: Some(TlsSettings {
            files,
            refresh: Duration::from_millis(50),
        }),
        ..Settings::default()
    }
}

fn client(daemon: &Daemon, query: &str, token: Option<AccessToken>) -> HttpStore {
    let port = daemon.server.addr().port();
    client_of(&format!("https://127.0.0.1:{port}{query}"), token)
}

fn client_of(url: &str, token: Option<AccessToken>) -> HttpStore {
    let patient = HttpSettings {
        request_timeout: SOON,
        connect_timeout: SOON,
        ..HttpSettings::default()
    };
    HttpStore::with_token(url, SystemClock::shared(), Handle::current(), patient, token).unwrap()
}

async fn now(daemon: &Daemon, query: &str) -> Result<StoreTime, Error> {
    client(daemon, query, None).now().await
}

fn named(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

#[tokio::test]
async fn client_trusts_the_daemons_ca_and_explains_a_mismatch() {
    let certs = Certs::new();
    let daemon = Daemon::with(settings(&certs, false)).await;
    now(&daemon, &format!("?{}", named("tls_ca", &certs.ca())))
        .await
        .unwrap();
    let error = now(&daemon, &format!("?{}", named("tls_ca", &certs.other_ca())))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let said = error.chain();
    assert!(said.contains("unknown authority") && said.contains("tls_ca"), "{said}");
    let status = client(&daemon, &format!("?{}", named("tls_ca", &certs.ca())), None)
        .status()
        .await
        .unwrap();
    assert!(status.access.tls && !status.access.client_certificates);
    // Plain HTTP gets no answer of ours.
    let plain = daemon.client.get(daemon.url("/livez")).send().await;
    assert!(plain.is_err(), "{plain:?}");
}

#[tokio::test]
async fn client_without_trusted_certificate_is_refused() {
    let certs = Certs::new();
    let daemon = Daemon::with(settings(&certs, true)).await;
    let ca = named("tls_ca", &certs.ca());
    let own = format!(
        "?{ca}&{}&{}",
        named("tls_cert", &certs.client_cert()),
        named("tls_key", &certs.client_key())
    );
    now(&daemon, &own).await.unwrap();
    let strangers = format!(
        "?{ca}&{}&{}",
        named("tls_cert", &certs.other_client_cert()),
        named("tls_key", &certs.other_client_key())
    );
    for (query, must_say) in [(format!("?{ca}"), "tls_cert"), (strangers, "cannot be reached")] {
        let said = now(&daemon, &query).await.unwrap_err().chain();
        assert!(said.contains(must_say), "{said}");
    }
}

#[tokio::test]
async fn tokens_are_required_with_tls() {
    let certs = Certs::new();
    let mut tokens = Tokens::none();
    let one = tokens.add("one", &[Scope::Read], &[], &[]);
    let settings = Settings {
        tokens: tokens.settings().tokens,
        ..settings(&certs, false)
    };
    let daemon = serve(settings, None).await;
    let query = format!("?{}", named("tls_ca", &certs.ca()));
    let error = client(&daemon, &query, None).now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("--token-file"), "{error}");
    let token = AccessToken::new(one.text()).unwrap();
    client(&daemon, &query, Some(token)).now().await.unwrap();
}

#[tokio::test]
async fn client_reloads_a_replaced_token_file() {
    let mut tokens = Tokens::none();
    let old = tokens.add("old", &[Scope::Read], &[], &[]);
    let daemon = tokens.serve().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), old.text()).unwrap();
    let token = AccessToken::from_file(file.path()).unwrap();
    let store = client_of(&daemon.base, Some(token));
    store.now().await.unwrap();
    let new = tokens.add("new", &[Scope::Read], &[], &[]);
    tokens.remove("old");
    let refused = || async { store.now().await.is_err_and(|error| error.kind() == ErrorKind::Denied) };
    until_async("the old token does not do any more", SOON, refused).await;
    std::fs::write(file.path(), new.text()).unwrap();
    store.now().await.expect("the new token");
}

#[tokio::test]
async fn certificate_reloads_and_invalid_one_is_ignored() {
    let (certs, other) = (Certs::new(), Certs::new());
    let daemon = Daemon::with(settings(&certs, false)).await;
    let query = |ca: &Path| format!("?{}", named("tls_ca", ca));
    let old_ca = certs.dir().join("kept-ca.pem");
    std::fs::copy(certs.ca(), &old_ca).unwrap();
    let kept = client(&daemon, &query(&old_ca), None);
    kept.now().await.unwrap();

    std::fs::write(certs.server_cert(), "rubbish").unwrap();
    let trouble = || async { kept.status().await.unwrap().access.tls_trouble.is_some() };
    until_async("the error is reported", SOON, trouble).await;
    now(&daemon, &query(&old_ca)).await.expect("the old certificate");

    std::fs::copy(other.server_key(), certs.server_key()).unwrap();
    std::fs::copy(other.server_cert(), certs.server_cert()).unwrap();
    let shown = || async { now(&daemon, &query(&other.ca())).await.is_ok() };
    until_async("the new certificate is shown", SOON, shown).await;
    now(&daemon, &query(&old_ca)).await.expect_err("the old one is not");
    kept.now().await.expect("a connection that was open stays so");
}

#[tokio::test]
async fn stalled_handshake_times_out_and_delays_no_other() {
    let certs = Certs::new();
    let settings = Settings {
        // Long enough for a real handshake.
        handshake_timeout: Duration::from_secs(4),
        ..settings(&certs, false)
    };
    let daemon = Daemon::with(settings).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(daemon.server.addr()).await.unwrap());
    }
    now(&daemon, &format!("?{}", named("tls_ca", &certs.ca())))
        .await
        .expect("an answer beside them");
    for mut socket in silent {
        let mut nothing = [0; 1];
        let ended = tokio::time::timeout(SOON, socket.read(&mut nothing)).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    }
    let mut rubbish = TcpStream::connect(daemon.server.addr()).await.unwrap();
    rubbish
        .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(SOON, rubbish.read_to_end(&mut answer))
        .await
        .expect("an end")
        .ok();
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_handshakes() {
    let certs = Certs::new();
    let daemon = Daemon::with(settings(&certs, false)).await;
    let _silent = TcpStream::connect(daemon.server.addr()).await.unwrap();
    now(&daemon, &format!("?{}", named("tls_ca", &certs.ca())))
        .await
        .unwrap();
    let drained = tokio::time::timeout(SOON, daemon.shut_down()).await.expect("an end");
    assert_eq!(drained.cut, 0);
    drop(Arc::new(certs));
}
