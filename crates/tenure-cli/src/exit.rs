//! Exit codes: 0 done, 1 failed, 2 wrong usage, 74 the disk of `serve` failed, 75 `lock` did not get the lock; `join` and
//! `lock` pass on the code of their child.

use std::fmt;
use std::io;

use tenure_core::error::{Error, ErrorKind};

use crate::cli::DEFAULT_STORE;
pub(crate) use crate::logging::say;
use crate::logging::say_coloured;
use crate::style::{Line, Tone};

/// Done.
pub(crate) const DONE: u8 = 0;
/// Failed.
pub(crate) const FAILED: u8 = 1;
/// A write or a sync of the store's file failed, so the daemon ends for the next one to read the disk again. As `EX_IOERR` of
/// `sysexits.h`.
pub(crate) const DISK_FAILED: u8 = 74;
/// Wrong usage.
pub(crate) const USAGE: u8 = 2;

/// A mistake in flags, variables or the configuration file. Nothing was done.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl Usage {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// `lock` did not get the lock: as `EX_TEMPFAIL` of `sysexits.h`, another attempt may succeed.
pub(crate) const NOT_ACQUIRED: u8 = 75;

/// Prints the error with all its causes and returns the exit code.
pub(crate) fn report(result: anyhow::Result<u8>) -> u8 {
    match result {
        Ok(code) => code,
        // The reader of our output has closed it, like `head`.
        Err(error) if is_broken_pipe(&error) => DONE,
        Err(error) => {
            let word = Line::on_stderr().toned(Some(Tone::Bad), "error:");
            say_coloured(&word.text(format_args!(" {error:#}")));
            say_how_to_start(&error);
            code_of(&error)
        }
    }
}

/// After an error that says that there is no daemon.
pub(crate) fn say_how_to_start(error: &anyhow::Error) {
    if is_without_daemon(error) {
        say("start a daemon with `tenure serve`, or name one with --store or TENURE_STORE");
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    let usage = error.is::<Usage>()
        || error
            .downcast_ref::<Error>()
            .is_some_and(|e| e.kind() == ErrorKind::Invalid);
    if usage { USAGE } else { FAILED }
}

/// The default address refuses connections: most likely no daemon was started.
fn is_without_daemon(error: &anyhow::Error) -> bool {
    let of_store = error.downcast_ref::<Error>().is_some_and(Error::is_unavailable);
    of_store && format!("{error:#}").contains(&format!("{DEFAULT_STORE}/ cannot be reached"))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use tenure_core::error::Outcome;

    use super::*;

    #[test]
    fn invalid_input_exits_2_and_failures_exit_1() {
        let code = |error: anyhow::Error| code_of(&error);
        assert_eq!(code(Usage::new("x").into()), USAGE);
        assert_eq!(code(Error::invalid("x").into()), USAGE);
        assert_eq!(code(anyhow::Error::from(Error::invalid("x")).context("while")), USAGE);
        assert_eq!(code(Error::too_late().into()), FAILED);
        assert_eq!(code(anyhow::anyhow!("x")), FAILED);
    }

    #[test]
    fn error_without_a_daemon_says_how_to_start_one() {
        let away = |place: &str| Error::unavailable(format!("{place}/ cannot be reached"), Outcome::Unchanged);
        assert!(is_without_daemon(&away(DEFAULT_STORE).into()));
        assert!(!is_without_daemon(&away("http://elsewhere:1").into()));
    }

    #[test]
    fn broken_pipe_is_not_an_error() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("write");
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("x")));
    }
}
