//! Connecting to a store by its URL, for every command but `serve`.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use tenure::AccessToken;
use tenure::client::{ClientSettings, Tenure};
use tenure::connect::OpenOptions;
use tenure::sweeper::SweeperSettings;
use tenure_core::Store;
use tenure_core::error::{Error, ErrorKind};
use tenure_core::store::StoreOptions;
use tokio::runtime::Builder;

use crate::cli::{DEFAULT_STORE, StoreArgs};
use crate::daemon::PATIENCE;
use crate::exit::Usage;
use crate::settings::LONGEST_TTL;

/// How long the runtime waits at the end for threads that hang in a call.
const LAST_WAIT: Duration = Duration::from_millis(100);

/// The variable that has the token itself.
pub(crate) const TOKEN: &str = "TENURE_TOKEN";

/// The file of `--token-file`: a process sends one token to every daemon.
static TOKEN_FILE: OnceLock<PathBuf> = OnceLock::new();

/// Sets the file with the token for all daemons.
pub(crate) fn show_token_of(file: PathBuf) {
    // Command lines are read once.
    let _ = TOKEN_FILE.set(file);
}

/// The file of `--token-file`, for other processes of this program.
pub(crate) fn token_file() -> Option<&'static PathBuf> {
    TOKEN_FILE.get()
}

/// The token for daemons: the one in `--token-file`, else in the file that `TENURE_TOKEN_FILE` names, else in
/// `TENURE_TOKEN`. There is no flag with the token itself, because command lines are visible to every user of the machine.
///
/// # Errors
/// `Usage` for a file that cannot be read, or has no token in it.
pub(crate) fn token() -> Result<Option<AccessToken>, Usage> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let usage = |error: Error| Usage::new(error.chain());
    let file = TOKEN_FILE.get().cloned();
    if let Some(file) = file.or_else(|| variable("TENURE_TOKEN_FILE").map(PathBuf::from)) {
        return AccessToken::from_file(file).map(Some).map_err(usage);
    }
    let given = variable(TOKEN);
    let token = given.map(|text| AccessToken::new(&text)).transpose();
    token.map_err(|error| Usage::new(format!("{TOKEN}: {}", error.chain())))
}

/// Whether a URL is that of a daemon.
pub(crate) fn is_daemon(url: &str) -> bool {
    url.starts_with("http:") || url.starts_with("https:")
}

/// A client, and the URL by which other processes reach the same store.
pub(crate) struct Connected {
    pub(crate) tenure: Tenure,
    pub(crate) url: String,
}

/// Runs the work on a runtime whose one thread is the calling one.
///
/// # Errors
/// Those of the work, and when the system gives no runtime.
pub(crate) fn block_on(work: impl Future<Output = anyhow::Result<u8>>) -> anyhow::Result<u8> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    // One type for all commands: each future of its own would be a copy of the runtime's code.
    let work: Pin<Box<dyn Future<Output = _> + '_>> = Box::pin(work);
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_WAIT);
    done
}

/// Connects for reading and for single calls, without a janitor. The time-out is longer than that of a member, which retries
/// within its ttl: here nothing retries. (The file of a running daemon is reached through the daemon.)
async fn for_looking(url: &str) -> anyhow::Result<Connected> {
    let is_asked = is_daemon(url_or_default(url)) || url.starts_with("sqlite:");
    connect(url, StoreOptions::default(), None, is_asked.then_some(PATIENCE)).await
}

/// Connects for a membership: a store that has no daemon is swept by this process. `max_ttl` is that of such a store; a
/// daemon has its own.
///
/// # Errors
/// `Usage` for a store that lives in this process alone, and what connecting answers.
pub(crate) async fn for_membership(url: &str, max_ttl: Duration) -> anyhow::Result<Connected> {
    let max_ttl = if is_daemon(url_or_default(url)) {
        LONGEST_TTL
    } else {
        max_ttl
    };
    connect(
        url,
        StoreOptions {
            max_ttl,
            ..StoreOptions::default()
        },
        Some(SweeperSettings::default()),
        None,
    )
    .await
}

async fn connect(
    url: &str,
    store: StoreOptions,
    sweeper: Option<SweeperSettings>,
    request_timeout: Option<Duration>,
) -> anyhow::Result<Connected> {
    let url = url_or_default(url);
    if url.starts_with("memory:") {
        return Err(Usage::new(
            "--store memory: lives in one process and ends with it; name a daemon or a store that others can reach",
        )
        .into());
    }
    let options = OpenOptions {
        store,
        request_timeout,
        token: token()?,
        ..OpenOptions::default()
    };
    let settings = ClientSettings {
        sweeper,
        ..ClientSettings::default()
    };
    let tenure = Tenure::connect_with(url, options, settings)
        .await
        .map_err(|error| refused(url, error))?;
    // A SQLite file that a daemon owns is reached through the daemon.
    let place = tenure.store().place();
    let url = if is_daemon(&place) && !is_daemon(url) {
        place
    } else {
        url.to_owned()
    };
    Ok(Connected { tenure, url })
}

/// A URL that names no store is wrong usage. Only a file may be misconfigured in other ways: another process owns it.
pub(crate) fn refused(url: &str, error: Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::Misconfigured | ErrorKind::Unsupported if !url.starts_with("sqlite:") => {
            Usage::new(format!("--store: {}", error.chain())).into()
        }
        _ => error.into(),
    }
}

/// A URL that names no ledger is wrong usage, as that of a store is.
pub(crate) fn refused_ledger(url: &str, error: Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::Misconfigured | ErrorKind::Unsupported if !url.starts_with("sqlite:") => {
            Usage::new(format!("--ledger: {}", error.chain())).into()
        }
        _ => error.into(),
    }
}

/// An empty variable counts as not set.
fn url_or_default(url: &str) -> &str {
    if url.is_empty() { DEFAULT_STORE } else { url }
}

impl StoreArgs {
    /// Connects, does the work, and closes the store.
    ///
    /// # Errors
    /// Those of connecting and of the work.
    pub(crate) fn with(&self, work: impl AsyncFnOnce(&dyn Store) -> anyhow::Result<u8>) -> anyhow::Result<u8> {
        self.with_client(async |client| work(&**client.store()).await)
    }

    /// The same, for work that needs the client.
    ///
    /// # Errors
    /// Those of connecting and of the work.
    pub(crate) fn with_client(&self, work: impl AsyncFnOnce(&Tenure) -> anyhow::Result<u8>) -> anyhow::Result<u8> {
        crate::logging::start_quiet("error")?;
        block_on(async {
            let connected = for_looking(&self.url).await?;
            let done = work(&connected.tenure).await;
            connected.tenure.close().await;
            done
        })
    }

    /// Connects, for commands that report connection errors themselves.
    ///
    /// # Errors
    /// Those of connecting.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connected> {
        for_looking(&self.url).await
    }
}
