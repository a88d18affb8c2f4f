//! TLS against a real server: trust, client certificates, and error messages.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::store::{Backend, Health};
use tenure_testkit::certs::Certs;
use tenure_testkit::valkey::Flavour;
use tenure_testkit::valkey::tls::TlsServer;
use tenure_testkit::wait;
use tenure_valkey::ConnectionOptions;

use crate::relay::Relay;
use crate::world::*;

on_both! {
    store_works_over_tls,
    mutual_tls_works,
    certificate_for_another_name_is_refused,
    tls_errors_name_the_fix,
    new_certificate_is_used_without_restart,
}

fn server(flavour: Flavour, certs: &Certs, client_certs: bool) -> TlsServer {
    TlsServer::start(flavour, certs, client_certs).expect("these tests need their servers")
}

fn url(server: &TlsServer, ca: &Path, client: Option<(&Path, &Path)>) -> String {
    let mut url = format!("rediss://localhost:{}?tls_ca={}", server.tls_port(), ca.display());
    if let Some((cert, key)) = client {
        url = format!("{url}&tls_cert={}&tls_key={}", cert.display(), key.display());
    }
    url
}

async fn store_works_over_tls(flavour: Flavour) {
    let certs = Certs::new();
    let server = server(flavour, &certs, false);
    let store = open(&url(&server, &certs.ca(), None)).await;
    let tenure = join(&store, "a").await;
    claim(&store, &tenure, "k").await.unwrap();
    beat(&store, &tenure).await;
    assert_eq!(store.health(), Health::Up);
    assert_eq!(store.place(), format!("rediss://localhost:{}", server.tls_port()));
    // The connection is lost and re-established, as without TLS.
    server.plain().kill();
    until_down(&store).await;
    server.plain().restart_empty();
    until_up(&store).await;
}

async fn mutual_tls_works(flavour: Flavour) {
    let certs = Certs::new();
    let server = server(flavour, &certs, true);
    let client = (certs.client_cert(), certs.client_key());
    let store = open(&url(&server, &certs.ca(), Some((&client.0, &client.1)))).await;
    join(&store, "a").await;
}

async fn certificate_for_another_name_is_refused(flavour: Flavour) {
    let certs = Certs::new();
    let server = server(flavour, &certs, false);
    let tls = SocketAddr::from(([127, 0, 0, 1], server.tls_port()));
    // The same server, by a name in its certificate and by another one.
    for (ip, believed) in [("127.0.0.1", true), ("127.0.0.2", false)] {
        let relay = Relay::start(ip, tls).await;
        let url = format!("rediss://{}?tls_ca={}", relay.addr(), certs.ca().display());
        if believed {
            join(&*open(&url).await, "a").await;
            continue;
        }
        let wrong = refusal(&url).await;
        assert_eq!(wrong.kind(), ErrorKind::Misconfigured, "{wrong:?}");
        assert!(wrong.chain().contains("by a name that is in it"), "{wrong:?}");
    }
}

async fn refusal(url: &str) -> Error {
    refusal_with(url, options()).await
}

async fn refusal_with(url: &str, options: ConnectionOptions) -> Error {
    let store = open_with(url, options).await;
    let error = try_join(&store, "a").await.expect_err("it is refused");
    assert_eq!(error.outcome(), Outcome::Unchanged, "{error:?}");
    error
}

/// A server closes the connection while refusing: one attempt may see only that, and the next one follows soon.
async fn denial(url: &str) -> Error {
    let (store, heard) = (open(url).await, RefCell::new(None));
    wait::until_async("the refusal is heard", PATIENCE, || async {
        let error = try_join(&store, "a").await.expect_err("it is refused");
        assert_eq!(error.outcome(), Outcome::Unchanged, "{error:?}");
        let denied = error.kind() == ErrorKind::Denied;
        heard.replace(Some(error));
        denied
    })
    .await;
    heard.into_inner().expect("an error")
}

async fn tls_errors_name_the_fix(flavour: Flavour) {
    let certs = Certs::new();
    let server = server(flavour, &certs, true);
    let wrong = refusal(&url(&server, &certs.other_ca(), None)).await;
    assert_eq!(wrong.kind(), ErrorKind::Misconfigured, "{wrong:?}");
    assert!(wrong.chain().contains("tls_ca"), "{wrong:?}");
    let stranger = (certs.other_client_cert(), certs.other_client_key());
    for client in [None, Some((stranger.0.as_path(), stranger.1.as_path()))] {
        let denied = denial(&url(&server, &certs.ca(), client)).await;
        assert!(denied.chain().contains("tls_cert"), "{denied:?}");
    }
    let plain = server.plain().port();
    // Only the connect timeout shows it.
    let no_tls = format!("rediss://localhost:{plain}?tls_ca={}", certs.ca().display());
    let no_tls = refusal_with(&no_tls, hasty()).await;
    assert!(no_tls.chain().contains("TLS"), "{no_tls:?}");
    let no_plain = refusal(&format!("redis://localhost:{}", server.tls_port())).await;
    assert!(no_plain.chain().contains("rediss://"), "{no_plain:?}");
}

async fn new_certificate_is_used_without_restart(flavour: Flavour) {
    let certs = Certs::new();
    let server = server(flavour, &certs, false);
    let believed = certs.dir().join("believed.pem");
    fs::copy(certs.other_ca(), &believed).unwrap();
    let store = open(&url(&server, &believed, None)).await;
    assert_ne!(store.health(), Health::Up);
    fs::copy(certs.ca(), &believed).unwrap();
    wait::until_async("the new authority is believed", PATIENCE, || async {
        store.health() == Health::Up
    })
    .await;
}
