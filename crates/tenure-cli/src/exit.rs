//! How the program ends: 0 done, 1 failed, 2 wrong usage, 74 the disk of `serve` failed; `join` passes on what its child ended with.

use std::fmt;
use std::io;
use std::process::ExitCode;

use tenure_core::error::{Error, ErrorKind};

use crate::cli::DEFAULT_STORE;
pub(crate) use crate::logging::say;
use crate::style::{self, Tone, painted};

/// Done.
pub(crate) const DONE: u8 = 0;
/// Failed.
pub(crate) const FAILED: u8 = 1;
/// A write or a sync of the store's file failed, so the daemon ends for the next one to read the disk again. As `EX_IOERR` of
/// `sysexits.h`.
pub(crate) const DISK_FAILED: u8 = 74;
/// Wrong usage.
pub(crate) const USAGE: u8 = 2;

/// A mistake in flags, variables or the configuration file: the command was not even tried.
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

/// Prints what went wrong with all its causes, and picks the exit code.
pub(crate) fn report(result: anyhow::Result<u8>) -> ExitCode {
    ExitCode::from(match result {
        Ok(code) => code,
        // Whoever read our output has seen enough, like `head`.
        Err(error) if is_broken_pipe(&error) => DONE,
        Err(error) => {
            let word = if style::on_stderr() {
                painted(Tone::Bad, "error:")
            } else {
                "error:".to_owned()
            };
            say(format_args!("{word} {error:#}"));
            if is_without_daemon(&error) {
                say("`tenure serve` starts a daemon here; --store or TENURE_STORE names another");
            }
            code_of(&error)
        }
    })
}

fn code_of(error: &anyhow::Error) -> u8 {
    let usage = error.is::<Usage>()
        || error
            .downcast_ref::<Error>()
            .is_some_and(|e| e.kind() == ErrorKind::Invalid);
    if usage { USAGE } else { FAILED }
}

/// Nobody listens where a daemon is looked for unless one is named: most likely nobody has started one.
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
    fn wrong_input_is_wrong_usage_and_everything_else_is_a_failure() {
        let code = |error: anyhow::Error| code_of(&error);
        assert_eq!(code(Usage::new("x").into()), USAGE);
        assert_eq!(code(Error::invalid("x").into()), USAGE);
        assert_eq!(code(anyhow::Error::from(Error::invalid("x")).context("while")), USAGE);
        assert_eq!(code(Error::too_late().into()), FAILED);
        assert_eq!(code(anyhow::anyhow!("x")), FAILED);
    }

    #[test]
    fn without_a_daemon_one_is_told_how_to_start_it() {
        let away = |place: &str| Error::unavailable(format!("{place}/ cannot be reached"), Outcome::Unchanged);
        assert!(is_without_daemon(&away(DEFAULT_STORE).into()));
        assert!(!is_without_daemon(&away("http://elsewhere:1").into()));
    }

    #[test]
    fn a_reader_that_went_away_is_no_error() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("write");
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("x")));
    }
}
