//! Tests with a real agent behind TLS.

use tenure_core::clock::{SystemClock, within};
use tenure_testkit::certs::Certs;
use tenure_testkit::consul::Agent;
use tenure_testkit::port::Port;

use super::*;
use crate::catalog::Phase;
use crate::catalog::agent::Agent as _;

const PATIENCE: Duration = Duration::from_secs(60);

/// An agent that requires a client certificate of its authority.
fn agent(certs: &Certs, port: &Port) -> Option<Agent> {
    let (ca, cert, key) = (certs.ca(), certs.server_cert(), certs.server_key());
    let settings = format!(
        "ports {{ https = {} }}\naddresses {{ https = \"127.0.0.1\" }}\n\
         ca_file = {ca:?}\ncert_file = {cert:?}\nkey_file = {key:?}\nverify_incoming_https = true",
        port.number()
    );
    Agent::with(&["-hcl", &settings])
}

#[tokio::test]
async fn tls_agent_and_client_authenticate_each_other() {
    let (certs, port) = (Certs::new(), Port::reserve());
    let Some(_agent) = agent(&certs, &port) else { return };
    let clock: Arc<dyn Clock> = SystemClock::shared();
    let address = format!("consul+tls://127.0.0.1:{}", port.number());
    let ours = ClientTls {
        ca: Some(certs.ca()),
        cert: Some(certs.client_cert()),
        key: Some(certs.client_key()),
    };
    let settings = ConsulSettings {
        tls: ours.clone(),
        ..ConsulSettings::new(&address)
    };
    let catalog = catalog(settings, Service::new("web-1", "web", 80), &clock).unwrap();
    catalog.want(true);
    let mut status = catalog.watch();
    let passing = status.wait_for(|status| status.phase == Phase::Passing);
    assert!(
        within(&*clock, PATIENCE, passing).await.is_some(),
        "{}",
        catalog.status()
    );
    assert_eq!(catalog.place(), format!("https://127.0.0.1:{}", port.number()));

    let look = async |tls: ClientTls| {
        let api = Api::new(&address, &tls, Token::none(), PATIENCE, Arc::clone(&clock)).unwrap();
        api.look("web-1", None).await
    };
    assert!(look(ours.clone()).await.unwrap().is_some());
    let anonymous = ClientTls {
        ca: ours.ca.clone(),
        ..ClientTls::default()
    };
    let foreign = ClientTls {
        ca: Some(certs.other_ca()),
        ..ours
    };
    for refused in [anonymous, foreign] {
        let answer = look(refused).await;
        assert!(matches!(&answer, Err(failure) if failure.is_away()), "{answer:?}");
    }
}

#[tokio::test]
async fn rotated_certificate_is_used() {
    let (certs, port) = (Certs::new(), Port::reserve());
    let Some(_agent) = agent(&certs, &port) else { return };
    let clock: Arc<dyn Clock> = SystemClock::shared();
    let address = format!("consul+tls://127.0.0.1:{}", port.number());
    let (cert, key) = (certs.dir().join("own.pem"), certs.dir().join("own.key"));
    let install = |from: PathBuf, key_from: PathBuf| {
        std::fs::copy(from, &cert).unwrap();
        std::fs::copy(key_from, &key).unwrap();
    };
    install(certs.other_client_cert(), certs.other_client_key());
    let files = ClientTls {
        ca: Some(certs.ca()),
        cert: Some(cert.clone()),
        key: Some(key.clone()),
    };
    let api = Api::new(&address, &files, Token::none(), PATIENCE, Arc::clone(&clock)).unwrap();
    let answer = api.look("web-1", None).await;
    assert!(matches!(&answer, Err(failure) if failure.is_away()), "{answer:?}");
    install(certs.client_cert(), certs.client_key());
    assert_eq!(api.look("web-1", None).await, Ok(None));
    // An unusable file changes nothing.
    std::fs::write(&key, "no key").unwrap();
    assert_eq!(api.look("web-1", None).await, Ok(None));
}

#[tokio::test]
async fn unusable_certificate_is_named_at_start() {
    let clock: Arc<dyn Clock> = SystemClock::shared();
    let settings = ConsulSettings::new("consul+tls://127.0.0.1:1?tls_ca=/nowhere/ca.pem");
    let error = catalog(settings, Service::new("web-1", "web", 80), &clock).unwrap_err();
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
}
