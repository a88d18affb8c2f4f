//! Running other programs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The cargo that runs us, in the workspace's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // What cargo says to us about our package is an input of some build scripts (ring's): with it, much would be built
    // again, here and by the next command that a person types.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"]
            .iter()
            .any(|of_package| text.starts_with(of_package))
        {
            command.env_remove(&name);
        }
    }
    command
}

/// Where a program is, among the places of `PATH`, of system daemons, and of Debian's versions of Postgres.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
    let postgres = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    env::split_paths(&path)
        .chain(sbin)
        .chain(postgres.filter_map(|version| Some(version.ok()?.path().join("bin"))))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// What a program prints, or nothing when it can't be run or fails.
pub(crate) fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stderr(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program to its success.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("run {shown}"))?;
    ensure!(status.success(), "{shown} failed: {status}");
    Ok(())
}

/// Whether an environment variable is switched on.
pub(crate) fn is_set(name: &str) -> bool {
    env::var(name).is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}
