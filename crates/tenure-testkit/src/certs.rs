//! Test certificates: an authority with certificates for a server and a client, and an untrusted authority.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;

use crate::server::must;

/// Certificates and keys as PEM files in a temporary directory that is removed with the handle.
///
/// Keys are readable by their owner only, because Postgres rejects others.
#[derive(Debug)]
pub struct Certs {
    dir: TempDir,
}

impl Certs {
    /// Creates an authority with a server's and a client's certificate, and another authority with a client's
    /// certificate.
    ///
    /// # Panics
    /// If the files cannot be written.
    #[must_use]
    #[track_caller]
    pub fn new() -> Certs {
        must(Certs::make())
    }

    fn make() -> Result<Certs> {
        let dir = tempfile::Builder::new()
            .prefix("tenure-certs-")
            .tempdir()
            .context("create a directory")?;
        let certs = Certs { dir };
        let ours = certs.authority("ca", "Tenure test authority")?;
        let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
        certs.leaf("server", names, "localhost", ExtendedKeyUsagePurpose::ServerAuth, &ours)?;
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        certs.leaf("client", Vec::new(), "tenure", client.clone(), &ours)?;
        let other = certs.authority("other-ca", "Another authority")?;
        certs.leaf("other-client", Vec::new(), "stranger", client, &other)?;
        Ok(certs)
    }

    /// The certificate of the authority.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// The server's certificate, for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn server_cert(&self) -> PathBuf {
        self.path("server.pem")
    }

    /// Its key.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.path("server.key")
    }

    /// The client's certificate; its common name is `tenure`.
    #[must_use]
    pub fn client_cert(&self) -> PathBuf {
        self.path("client.pem")
    }

    /// Its key.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.path("client.key")
    }

    /// The certificate of the other authority, which has signed only [`Certs::other_client_cert`].
    #[must_use]
    pub fn other_ca(&self) -> PathBuf {
        self.path("other-ca.pem")
    }

    /// A client's certificate signed by the other authority; its common name is `stranger`.
    #[must_use]
    pub fn other_client_cert(&self) -> PathBuf {
        self.path("other-client.pem")
    }

    /// Its key.
    #[must_use]
    pub fn other_client_key(&self) -> PathBuf {
        self.path("other-client.key")
    }

    /// The directory of the files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn authority(&self, file: &str, name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        self.write(&format!("{file}.pem"), &authority.pem())?;
        Ok(authority)
    }

    fn leaf(
        &self,
        file: &str,
        names: Vec<String>,
        common_name: &str,
        usage: ExtendedKeyUsagePurpose,
        by: &CertifiedIssuer<'_, KeyPair>,
    ) -> Result<()> {
        let mut params = CertificateParams::new(names)?;
        params.extended_key_usages = vec![usage];
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, by)?;
        self.write(&format!("{file}.pem"), &certificate.pem())?;
        self.write(&format!("{file}.key"), &key.serialize_pem())?;
        fs::set_permissions(self.path(&format!("{file}.key")), fs::Permissions::from_mode(0o600))
            .context("protect a key")
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.path(name), text).with_context(|| format!("write {name}"))
    }
}

impl Default for Certs {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_exists_and_is_pem() {
        let certs = Certs::new();
        let at = [
            certs.ca(),
            certs.server_cert(),
            certs.client_cert(),
            certs.other_ca(),
            certs.other_client_cert(),
        ];
        for path in at {
            let text = fs::read_to_string(&path).expect("a certificate");
            assert!(text.starts_with("-----BEGIN CERTIFICATE-----"), "{}", path.display());
        }
        for path in [certs.server_key(), certs.client_key(), certs.other_client_key()] {
            let text = fs::read_to_string(&path).expect("a key");
            assert!(text.contains("PRIVATE KEY-----"), "{}", path.display());
            let mode = fs::metadata(&path).expect("a file").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", path.display());
        }
    }
}
