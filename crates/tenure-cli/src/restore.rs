//! `tenure restore`: puts a backup in the place of an embedded store.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tenure::connect::restore_sqlite;

use crate::cli::FormatArgs;
use crate::exit::{DONE, Usage, say};
use crate::output;

/// Replaces an embedded store (tenure.db) by a copy of a backup.
///
/// Stop the daemon first. The backup is checked and left unchanged; the replaced file is kept beside the new one. Leases
/// granted after the backup are not in it, so the store grants no lease for one max_ttl after its next start.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  tenure restore /backup/tenure.db --data-dir /var/lib/tenure\n  \
                        tenure restore copy.db --store sqlite:/srv/tenure.db"
)]
pub(crate) struct Restore {
    /// The backup: a copy of the store's file.
    #[arg(value_name = "FILE")]
    backup: PathBuf,
    /// The store, if it is not tenure.db in the data directory: sqlite:PATH.
    #[arg(
        long,
        value_name = "URL",
        env = "TENURE_STORE",
        hide_env_values = true,
        conflicts_with = "data_dir"
    )]
    store: Option<String>,
    /// The data directory of the daemon.
    #[arg(long, value_name = "DIR", env = "TENURE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

impl Restore {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        crate::logging::start_quiet("off")?;
        let restored = restore_sqlite(&self.backup, &self.url()?)?;
        if self.format.json {
            output::json(&json!({ "path": restored.path, "set_aside": restored.set_aside }))?;
            return Ok(DONE);
        }
        output::line(format_args!(
            "{} is now a copy of {}",
            restored.path.display(),
            self.backup.display()
        ))?;
        if let Some(aside) = &restored.set_aside {
            say(format_args!("the file that was there is {}", aside.display()));
        }
        say(
            "start the daemon now: it grants no lease for one max ttl, since leases may have been granted after the backup",
        );
        Ok(DONE)
    }

    fn url(&self) -> Result<String, Usage> {
        match (&self.store, &self.data_dir) {
            (Some(url), _) if url.starts_with("sqlite:") => Ok(url.clone()),
            (Some(url), _) if !url.is_empty() => {
                let scheme = url.split(':').next().unwrap_or_default();
                Err(Usage::new(format!(
                    "--store {scheme}:… is not an embedded store; expected sqlite:PATH (a server has its own restore)"
                )))
            }
            (_, Some(directory)) => Ok(format!("sqlite:{}", directory.join("tenure.db").display())),
            _ => Err(Usage::new(
                "which store? name it with --store sqlite:PATH, or the daemon's data directory with --data-dir DIR",
            )),
        }
    }
}
