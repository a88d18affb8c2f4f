//! A server with a token file and rosters.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::loops::Loops;
use tenure::roster::{Rosters, RostersSettings};
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::ledger::{Ledger, MemoryLedger};
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};
use tenure_server::auth::{Scope, Secret, TokenEntry, TokenSettings};
use tenure_server::jwt::Verifier;
use tenure_server::{Parts, RosterParts, Settings};
use tokio::runtime::Handle;

use crate::common::{Answer, Daemon};

/// The time limit for an expected event.
pub const SOON: Duration = Duration::from_secs(20);

/// A directory with a file of tokens.
pub struct Tokens {
    dir: TempDir,
    entries: Vec<TokenEntry>,
}

impl Tokens {
    pub fn none() -> Self {
        let tokens = Self {
            dir: TempDir::new().unwrap(),
            entries: Vec::new(),
        };
        tokens.write();
        tokens
    }

    /// Adds a token, and writes the file.
    pub fn add(&mut self, name: &str, scopes: &[Scope], groups: &[&str], rosters: &[&str]) -> Secret {
        let secret = Secret::draw().unwrap();
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        self.entries.push(TokenEntry {
            name: name.to_owned(),
            sha256: secret.sha256(),
            scopes: scopes.iter().copied().collect(),
            groups: owned(groups),
            rosters: owned(rosters),
            expires: None,
        });
        self.write();
        secret
    }

    /// Takes a token out, and writes the file.
    pub fn remove(&mut self, name: &str) {
        self.entries.retain(|entry| entry.name != name);
        self.write();
    }

    /// Changes a token, and writes the file.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut TokenEntry)) {
        change(self.entries.iter_mut().find(|entry| entry.name == name).unwrap());
        self.write();
    }

    pub fn write(&self) {
        let text: String = self.entries.iter().map(ToString::to_string).collect();
        self.write_text(&text);
    }

    /// Writes something else.
    pub fn write_text(&self, text: &str) {
        // As a careful editor does: the file is never half written.
        let new = self.dir.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("tokens.toml")
    }

    pub fn settings(&self) -> Settings {
        Settings {
            tokens: Some(TokenSettings {
                file: self.file(),
                refresh: Duration::from_millis(50),
            }),
            ..Settings::default()
        }
    }

    /// A server that asks for one of these.
    pub async fn serve(&self) -> Daemon {
        serve(self.settings(), None).await
    }
}

/// A server with rosters.
pub async fn serve(settings: Settings, jwt: Option<Arc<Verifier>>) -> Daemon {
    let clock: Arc<dyn Clock> = SystemClock::shared();
    let store: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), Arc::clone(&clock));
    let ledger: Arc<dyn Ledger> = MemoryLedger::new(Arc::clone(&clock));
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let (store_, ledger_, clock_) = (Arc::clone(&store), Arc::clone(&ledger), Arc::clone(&clock));
    let rosters = Rosters::start(store_, ledger_, clock_, RostersSettings::default(), &loops).unwrap();
    let parts = Parts {
        loops,
        rosters: Some(RosterParts { rosters, ledger, jwt }),
        ..Parts::new(store, clock)
    };
    Daemon::of(parts, settings).await
}

/// Asks with a token, or without.
pub async fn ask(daemon: &Daemon, method: &str, path: &str, token: Option<&str>) -> Answer {
    let request = daemon.request(method, path);
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    Answer::read(request.send().await.unwrap()).await
}
