//! The account that the server runs under: Postgres refuses to run as root.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Tried in this order. `initdb` needs an account with a name.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// An account of this machine, or that of the test process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account(Option<(u32, u32)>);

impl Account {
    /// The test's own account, unless it is root.
    pub(super) fn for_servers() -> Result<Account> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Account(None));
        }
        let passwd = fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
        let found = CANDIDATES.iter().find_map(|name| find(&passwd, name));
        let ids = found.with_context(|| format!("Postgres does not run as root, and none of {CANDIDATES:?} exists"))?;
        Ok(Account(Some(ids)))
    }

    /// Makes a command run under this account, without other groups.
    pub(super) fn run<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self.0 {
            Some((user, group)) => command.uid(user).gid(group),
            None => command,
        }
    }

    /// Makes this account the owner of a directory.
    pub(super) fn give(&self, dir: &Path) -> Result<()> {
        let Some((user, group)) = self.0 else { return Ok(()) };
        chown(dir, Some(user), Some(group)).with_context(|| format!("change the owner of {}", dir.display()))
    }
}

/// The user and group of a line `name:password:user:group:…`.
fn find(passwd: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = passwd
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?
        .skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0:root:/:/bin/sh\npostgresql:x:7:8::/:/bin/sh\npostgres:x:101:104:,,,:/:/bin/sh\n";
        assert_eq!(find(passwd, "postgres"), Some((101, 104)));
        assert_eq!(find(passwd, "nobody"), None);
        assert_eq!(find("postgres:x", "postgres"), None);
    }

    #[test]
    fn only_root_needs_another_account() {
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(Account::for_servers().unwrap().0.is_some(), is_root);
    }
}
