//! What all packages of a release share: version, architecture, time and folder.

use std::env;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::run::{output, root};

/// The earliest time that a zip archive can contain: 1980-01-01.
const EARLIEST: u64 = 315_532_800;

/// How well packages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// For publication.
    Full,
    /// For a check.
    Quick,
}

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) out: PathBuf,
    pub(crate) version: &'static str,
    /// The time of every file in every package, in seconds since 1970.
    pub(crate) epoch: u64,
    pub(crate) effort: Effort,
}

/// The names of an architecture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arch {
    pub(crate) rust: &'static str,
    pub(crate) debian: &'static str,
    pub(crate) node: &'static str,
}

impl Release {
    pub(crate) fn new(out: PathBuf, effort: Effort) -> Release {
        Release {
            out,
            version: env!("CARGO_PKG_VERSION"),
            epoch: epoch(env::var("SOURCE_DATE_EPOCH").ok()),
            effort,
        }
    }

    pub(crate) fn binary(&self) -> PathBuf {
        self.out.join("tenure")
    }

    /// The symbols of the program; backtraces use them while they are next to it.
    pub(crate) fn symbols(&self) -> PathBuf {
        self.out.join("tenure.debug")
    }

    /// The options of gzip: without names and times.
    pub(crate) fn gzip(&self) -> &'static str {
        match self.effort {
            Effort::Full => "gzip --no-name -9",
            Effort::Quick => "gzip --no-name -1",
        }
    }
}

impl Arch {
    /// The architecture of this machine, which packages are made for.
    pub(crate) fn of_this_machine() -> Result<Arch> {
        let (debian, node) = match env::consts::ARCH {
            "x86_64" => ("amd64", "x64"),
            "aarch64" => ("arm64", "arm64"),
            other => bail!("no packages are made on {other}; known: x86_64, aarch64"),
        };
        Ok(Arch {
            rust: env::consts::ARCH,
            debian,
            node,
        })
    }
}

/// The given time, or else that of the last commit.
fn epoch(given: Option<String>) -> u64 {
    let of_commit = || {
        let root = root().to_string_lossy();
        output("git", &["-C", &root, "log", "-1", "--format=%ct"])
    };
    let text = given.or_else(of_commit).unwrap_or_default();
    text.trim().parse().unwrap_or(EARLIEST).max(EARLIEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_is_the_given_time_but_not_before_zip() {
        assert_eq!(epoch(Some("1700000000\n".to_owned())), 1_700_000_000);
        assert_eq!(epoch(Some("0".to_owned())), EARLIEST);
        assert_eq!(epoch(Some("soon".to_owned())), EARLIEST);
    }
}
