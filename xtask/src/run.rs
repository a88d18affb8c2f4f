//! Runs other programs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The features of the program that is packed, and that the tests run: traces are in it, and off until a setting asks for
/// them. A build without them is what the other steps of CI compile.
pub(crate) const FEATURES: [&str; 2] = ["--features", "tenure-cli/otel"];

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs this program, in the root of the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // Cargo's variables about this package are inputs of some build scripts (ring's). Inherited, they would cause a
    // rebuild here and again in the user's next command.
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

/// Builds programs of the workspace as its tests do. The example makes cargo select the features of dependencies that tests
/// need; without them it would build the whole tree a second time.
pub(crate) fn build(programs: &[&str]) -> Result<()> {
    let mut build = cargo(&["build", "--locked", "--workspace", "--example", "leases"]);
    must(
        build
            .args(FEATURES)
            .args(programs.iter().flat_map(|program| ["--bin", program])),
    )
}

/// The path of a program, from `PATH`, the folders of system daemons, and Debian's folders of Postgres.
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

/// The output of a program, or nothing if it cannot run or fails.
pub(crate) fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stderr(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program, and fails if it does.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("run {shown}"))?;
    ensure!(status.success(), "{shown} failed: {status}");
    Ok(())
}

/// Whether an environment variable is set to a true value.
pub(crate) fn is_set(name: &str) -> bool {
    env::var(name).is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}
