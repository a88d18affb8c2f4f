//! Structured logs on stderr, as text or JSON.

mod escape;
mod lines;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::panic;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use tenure_core::escape::Escaped;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::escape::EscapedLog;
use self::lines::Lines;
use crate::exit::Usage;
use crate::style::{self, Line};

/// How long the process waits at its end for stderr.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The log writer of a process that runs until a signal; other processes write to stderr directly.
static LINES: OnceLock<Lines> = OnceLock::new();

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

fn start_on<W>(out: W, filter: &str, format: LogFormat) -> Result<(), Usage>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let targets: Targets = filter.parse().map_err(|error| {
        Usage::new(format!("the log filter {filter:?} cannot be read: {error}; write a level like info, or targets like info,tenure=debug"))
    })?;
    let in_colour = io::stderr().is_terminal() && style::on_stderr();
    let out = EscapedLog { out, format, in_colour };
    let lines = fmt::layer()
        .with_writer(out)
        .with_ansi(false)
        // A reader of our stderr that went away must not take us with it.
        .log_internal_errors(false);
    // Fails only when logging was started before.
    let _ = match format {
        LogFormat::Text => tracing_subscriber::registry().with(targets).with(lines).try_init(),
        LogFormat::Json => {
            // Without the module: lines about leases have a field of that name.
            let lines = lines.json().flatten_event(true).with_target(false);
            tracing_subscriber::registry().with(targets).with(lines).try_init()
        }
    };
    Ok(())
}

/// Starts logging for a command that is not the daemon: as text from `level` up, or what `TENURE_LOG` and
/// `TENURE_LOG_FORMAT` say.
///
/// # Errors
/// `Usage` when one of them cannot be read.
pub(crate) fn start_quiet(level: &str) -> Result<(), Usage> {
    let (filter, format) = asked_for(level)?;
    start_on(io::stderr, &filter, format)
}

/// Starts logging as [`start_quiet`] does, for a command that supervises another one: see [`start_unhindered`].
///
/// # Errors
/// As there.
pub(crate) fn start_supervisor(level: &str) -> anyhow::Result<()> {
    let (filter, format) = asked_for(level)?;
    start_unhindered(&filter, format)
}

/// Starts logging for a process that must not wait for a stalled reader of stderr. `filter` is a level, or targets with
/// levels. Lines that do not fit into the buffer are lost, and so are the last ones if they are not read in time. Panics are
/// logged in the same way.
///
/// # Errors
/// `Usage` when the filter cannot be read; when the system gives no thread.
pub(crate) fn start_unhindered(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    // Without the standard library's lock on stderr, which a stuck write holds.
    let stderr = io::stderr().as_fd().try_clone_to_owned().context("stderr is closed")?;
    let lines = Lines::to(File::from(stderr), format).context("no thread for the log")?;
    let its = lines.clone();
    panic::set_hook(Box::new(move |panic| {
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            its.say_at("ERROR", format_args!("{panic}\n{trace}"));
        } else {
            its.say_at("ERROR", panic);
        }
        its.flush(LAST_WORDS);
    }));
    let lines = LINES.get_or_init(|| lines);
    start_on(|| lines.clone(), filter, format)?;
    Ok(())
}

/// One line for people, on stderr; what a terminal would obey is escaped. Nothing can be done when that fails.
pub(crate) fn say(line: impl Display) {
    put(Escaped(line));
}

/// The same with colours.
pub(crate) fn say_coloured(line: &Line) {
    put(line.as_str());
}

fn put(line: impl Display) {
    match LINES.get() {
        Some(lines) => lines.say(line),
        None => _ = writeln!(io::stderr(), "tenure: {line}"),
    }
}

/// Writes the remaining lines, if stderr is read.
pub(crate) fn finish() {
    if let Some(lines) = LINES.get() {
        lines.flush(LAST_WORDS);
    }
}

/// The filter and the format of `TENURE_LOG` and `TENURE_LOG_FORMAT`.
fn asked_for(level: &str) -> Result<(String, LogFormat), Usage> {
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
    let filter = given("TENURE_LOG").unwrap_or_else(|| level.to_owned());
    Ok((filter, format))
}
