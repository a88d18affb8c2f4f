//! Structured logs on stderr, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::exit::Usage;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging. `filter` is a level, or targets with levels.
///
/// # Errors
/// `Usage` when the filter cannot be read.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<(), Usage> {
    let parsed = EnvFilter::try_new(filter).map_err(|error| {
        Usage::new(format!("the log filter {filter:?} cannot be read: {error}; write a level like info, or targets like info,tenure=debug"))
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr)
        // A reader of our stderr that went away must not take us with it.
        .log_internal_errors(false);
    // Fails only when logging was started before.
    let _ = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).try_init(),
    };
    Ok(())
}

/// Starts logging for a command that is not the daemon: as text from `level` up, or what `TENURE_LOG` and
/// `TENURE_LOG_FORMAT` say.
///
/// # Errors
/// `Usage` when one of them cannot be read.
pub(crate) fn start_quiet(level: &str) -> Result<(), Usage> {
    let given = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let format = match given("TENURE_LOG_FORMAT").as_deref() {
        None | Some("text") => LogFormat::Text,
        Some("json") => LogFormat::Json,
        Some(other) => {
            return Err(Usage::new(format!(
                "TENURE_LOG_FORMAT: {other:?} is not a log format; there are text and json"
            )));
        }
    };
    start(given("TENURE_LOG").as_deref().unwrap_or(level), format)
}
