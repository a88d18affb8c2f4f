//! In-memory handshakes between pairs of configurations, and the errors of bad files.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection};

use crate::{ClientTls, Reload, ReloadingTls, ServerTls, TlsError};

struct Files(tempfile::TempDir);

impl Files {
    /// Creates authorities `a` and `b`; each signs a server certificate and a client certificate.
    fn new() -> Self {
        let files = Self(tempfile::tempdir().expect("a directory"));
        for name in ["a", "b"] {
            let mut params = CertificateParams::new(Vec::new()).expect("params");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
            files.write(&format!("{name}.ca"), authority.pem());
            files.leaf(
                &format!("{name}.server"),
                &authority,
                ExtendedKeyUsagePurpose::ServerAuth,
            );
            files.leaf(
                &format!("{name}.client"),
                &authority,
                ExtendedKeyUsagePurpose::ClientAuth,
            );
        }
        files
    }

    fn leaf(&self, name: &str, by: &CertifiedIssuer<'_, KeyPair>, usage: ExtendedKeyUsagePurpose) {
        let mut params = CertificateParams::new(vec!["tenure.test".to_owned()]).expect("params");
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, by).expect("a certificate");
        self.write(name, certificate.pem());
        self.write(&format!("{name}.key"), key.serialize_pem());
    }

    fn write(&self, name: &str, text: String) {
        fs::write(self.path(name), text).expect("written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn server(&self, client_ca: Option<&str>) -> ServerTls {
        ServerTls {
            cert: self.path("a.server"),
            key: self.path("a.server.key"),
            client_ca: client_ca.map(|name| self.path(name)),
        }
    }

    fn client(&self, ca: &str, who: Option<&str>) -> ClientTls {
        ClientTls {
            ca: Some(self.path(ca)),
            cert: who.map(|name| self.path(name)),
            key: who.map(|name| self.path(&format!("{name}.key"))),
        }
    }
}

/// Runs a handshake and exchanges a byte in each direction; returns the first error of either side.
fn talk(server: &ServerTls, client: &ClientTls, name: &'static str) -> Result<(), rustls::Error> {
    let server = Arc::new(server.config().expect("a server's configuration"));
    let client = Arc::new(client.config().expect("a client's configuration"));
    shake(&server, &client, ServerName::try_from(name).expect("a name"))
}

fn shake(
    server: &Arc<rustls::ServerConfig>,
    client: &Arc<rustls::ClientConfig>,
    name: ServerName<'static>,
) -> Result<(), rustls::Error> {
    let mut server = ServerConnection::new(Arc::clone(server)).expect("a server");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a client");
    server.writer().write_all(b"!").expect("a word");
    client.writer().write_all(b"?").expect("a word");
    for _ in 0..10 {
        pass(&mut client, |bytes| server.read_tls(bytes));
        server.process_new_packets()?;
        pass(&mut server, |bytes| client.read_tls(bytes));
        client.process_new_packets()?;
    }
    let mut heard = [0; 2];
    assert_eq!(server.reader().read(&mut heard).expect("a word"), 1);
    assert_eq!(client.reader().read(&mut heard[1..]).expect("a word"), 1);
    assert_eq!(&heard, b"?!");
    Ok(())
}

fn pass<D>(from: &mut rustls::ConnectionCommon<D>, mut to: impl FnMut(&mut dyn Read) -> std::io::Result<usize>) {
    let mut wire = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut wire).expect("written");
    }
    let mut wire = wire.as_slice();
    while !wire.is_empty() {
        to(&mut wire).expect("read");
    }
}

#[test]
fn server_is_trusted_only_by_its_own_authority() {
    let files = Files::new();
    talk(&files.server(None), &files.client("a.ca", None), "tenure.test").expect("a talk");
    let stranger = talk(&files.server(None), &files.client("b.ca", None), "tenure.test");
    assert!(
        matches!(stranger, Err(rustls::Error::InvalidCertificate(_))),
        "{stranger:?}"
    );
    let other = talk(&files.server(None), &files.client("a.ca", None), "other.test");
    assert!(matches!(other, Err(rustls::Error::InvalidCertificate(_))), "{other:?}");
}

#[test]
fn client_without_roots_rejects_every_server() {
    let files = Files::new();
    let server = Arc::new(files.server(None).config().expect("a server's configuration"));
    let client = Arc::new(crate::without_roots().expect("a client's configuration"));
    let name = ServerName::try_from("tenure.test").expect("a name");
    let refused = shake(&server, &client, name);
    assert!(
        matches!(refused, Err(rustls::Error::InvalidCertificate(_))),
        "{refused:?}"
    );
}

#[test]
fn server_rejects_clients_without_a_certificate_of_its_ca() {
    let files = Files::new();
    let server = files.server(Some("b.ca"));
    talk(&server, &files.client("a.ca", Some("b.client")), "tenure.test").expect("a talk");
    for who in [None, Some("a.client")] {
        talk(&server, &files.client("a.ca", who), "tenure.test").expect_err("let in");
    }
}

#[test]
fn errors_name_the_file_and_the_defect() {
    let files = Files::new();
    files.write("empty", String::new());
    files.write(
        "rubbish",
        "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n".to_owned(),
    );
    let says = |result: Result<(), TlsError>, words: &[&str]| {
        let said = result.expect_err("a complaint").to_string();
        for word in words {
            assert!(said.contains(word), "{said:?} does not say {word:?}");
        }
    };
    let server = |cert: &str, key: &str, client_ca: Option<&str>| {
        let settings = ServerTls {
            cert: files.path(cert),
            key: files.path(key),
            client_ca: client_ca.map(|name| files.path(name)),
        };
        settings.config().map(drop)
    };
    let client = |ca: &str, cert: Option<&str>, key: Option<&str>| {
        let settings = ClientTls {
            ca: Some(files.path(ca)),
            cert: cert.map(|name| files.path(name)),
            key: key.map(|name| files.path(name)),
        };
        settings.config().map(drop)
    };
    says(
        server("gone", "a.server.key", None),
        &["gone", "server's certificate", "No such file"],
    );
    says(
        server("empty", "a.server.key", None),
        &["empty", "server's certificate", "no certificate in it"],
    );
    says(server("rubbish", "a.server.key", None), &["rubbish", "PEM"]);
    says(
        server("a.server", "a.server", None),
        &["a.server holds no PEM for a server's key"],
    );
    says(server("a.server", "b.server.key", None), &["a.server", "b.server.key"]);
    says(
        server("a.server", "a.server.key", Some("empty")),
        &["empty", "authority of clients"],
    );
    says(client("empty", None, None), &["empty", "authority"]);
    says(client("a.ca", Some("a.client"), None), &["without its key"]);
    says(client("a.ca", None, Some("a.client.key")), &["without its certificate"]);
    says(client("a.ca", Some("a.client"), Some("gone.key")), &["gone.key"]);
}

#[test]
fn files_are_read_again_when_they_have_changed() {
    let files = Files::new();
    let put = |from: &str, to: &str| {
        fs::copy(files.path(from), files.path(to)).expect("copied");
    };
    let install = |who: &str| {
        put(who, "own");
        put(&format!("{who}.key"), "own.key");
    };
    install("a.client");
    let (reloading, first) = ReloadingTls::new(files.client("a.ca", Some("own"))).expect("usable files");
    assert!(matches!(reloading.reload(), Reload::Unchanged));
    install("b.client");
    let Reload::Changed(second) = reloading.reload() else {
        panic!("not noticed")
    };
    assert!(matches!(reloading.reload(), Reload::Unchanged));
    let server = Arc::new(files.server(Some("b.ca")).config().expect("a server's configuration"));
    let name = || ServerName::try_from("tenure.test").expect("a name");
    shake(&server, &Arc::new(first), name()).expect_err("let in");
    shake(&server, &Arc::new(*second), name()).expect("a talk");
}

#[test]
fn files_that_cannot_be_used_are_reported_once_and_read_again() {
    let files = Files::new();
    let (reloading, _) = ReloadingTls::new(files.client("a.ca", Some("a.client"))).expect("usable files");
    let key = fs::read_to_string(files.path("a.client.key")).expect("a key");
    // Half of a rotation: the certificate is another one, and its key is not there yet.
    fs::copy(files.path("b.client"), files.path("a.client")).expect("copied");
    assert!(matches!(reloading.reload(), Reload::Unusable(_)));
    assert!(matches!(reloading.reload(), Reload::Unchanged));
    fs::remove_file(files.path("a.client.key")).expect("removed");
    let Reload::Unusable(error) = reloading.reload() else {
        panic!("not noticed")
    };
    assert!(error.to_string().contains("a.client.key"), "{error}");
    fs::copy(files.path("b.client.key"), files.path("a.client.key")).expect("copied");
    assert!(matches!(reloading.reload(), Reload::Changed(_)));
    files.write("a.client.key", key);
    assert!(matches!(reloading.reload(), Reload::Unusable(_)));
}
