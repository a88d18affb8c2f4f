//! The clients: the checks of each package in another language, and the conformance suite.
//!
//! Tools are installed from the package registries of the languages into `target/clients`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{self, find, is_set, must, output, root};

/// The tools for Python, in their versions.
const PYTHON_TOOLS: [&str; 4] = ["build==1.6.1", "mypy==2.4.1", "ruff==0.17.6", "setuptools==84.2.1"];
/// Conformance cases at a time: they wait for most of their time.
const CASES: &str = "12";

/// A client and how to test it.
struct Client {
    name: &'static str,
    /// Installs what its checks need.
    prepare: fn(&Path) -> Result<()>,
    /// Runs its format, lint, types and tests.
    check: fn(&Path) -> Result<()>,
    /// The drivers for the conformance suite, as command lines.
    drivers: fn(&Path) -> Vec<Vec<PathBuf>>,
    /// Cases that do not apply to it, each with the reason.
    exceptions: &'static [(&'static str, &'static str)],
}

const CLIENTS: [Client; 4] = [
    Client {
        name: "rust",
        // Its checks are those of the workspace, and its driver is built with the other programs.
        prepare: |_| Ok(()),
        check: |_| Ok(()),
        drivers: |_| vec![vec![run::target().join("debug/conformance-driver")]],
        exceptions: &[(
            "acquire_again_keeps",
            "a lease has one guard in a process, so that two of its tasks never both work; a second acquire is Held",
        )],
    },
    Client {
        name: "python",
        prepare: prepare_python,
        check: |dir| must(shell(dir, "./check.sh").env("PYTHON", python())),
        drivers: |dir| {
            let driver = dir.join("conformance/driver.py");
            let plain = vec!["python3".into(), driver];
            let asyncio = [plain.clone(), vec!["--asyncio".into()]].concat();
            vec![plain, asyncio]
        },
        exceptions: &[],
    },
    Client {
        name: "typescript",
        prepare: prepare_typescript,
        check: |dir| {
            let mut npm = Command::new("npm");
            npm.env("TENURE_BIN", run::target().join("debug/tenure"));
            must(npm.args(["run", "--silent", "check"]).current_dir(dir))
        },
        drivers: |dir| vec![vec!["node".into(), dir.join("build/conformance/driver.js")]],
        exceptions: &[],
    },
    Client {
        name: "go",
        prepare: |_| find("go").map(|_| ()).context("this machine has no go"),
        check: |dir| must(shell(dir, "./check.sh").env("TENURE_BIN", run::target().join("debug/tenure"))),
        drivers: |dir| {
            // It builds the driver and prints its path.
            let script = dir.join("check.sh");
            let path = output("sh", &[&script.to_string_lossy(), "driver"]).unwrap_or_default();
            vec![vec![path.trim().into()]]
        },
        exceptions: &[],
    },
];

/// Tests every client. Returns those that could not be tested, because their tools cannot be installed; in CI that is
/// an error.
pub(crate) fn test() -> Result<Vec<&'static str>> {
    run::build(&["tenure", "conformance-driver"])?;
    let mut missing = Vec::new();
    for client in &CLIENTS {
        let dir = root().join("clients").join(client.name);
        println!("\nclient: {}", client.name);
        match prepare(client, &dir) {
            Ok(()) => test_one(client, &dir)?,
            Err(error) if is_set("CI") => return Err(error.context(format!("the tools of {}", client.name))),
            Err(error) => {
                eprintln!("warning: the client for {} is NOT TESTED: {error:#}\n", client.name);
                missing.push(client.name);
            }
        }
    }
    Ok(missing)
}

fn prepare(client: &Client, dir: &Path) -> Result<()> {
    if is_set("TENURE_NO_INSTALL") && !is_prepared(client, dir) {
        bail!("TENURE_NO_INSTALL is set, and its tools are not installed");
    }
    (client.prepare)(dir)
}

fn is_prepared(client: &Client, dir: &Path) -> bool {
    match client.name {
        "python" => python().is_file(),
        "typescript" => dir.join("node_modules").is_dir(),
        _ => true,
    }
}

fn test_one(client: &Client, dir: &Path) -> Result<()> {
    (client.check)(dir)?;
    for driver in (client.drivers)(dir) {
        must(&mut suite(&driver, client.exceptions))?;
    }
    Ok(())
}

/// The conformance suite against one driver.
fn suite(driver: &[PathBuf], exceptions: &[(&str, &str)]) -> Command {
    let mut command = Command::new("python3");
    command.arg(root().join("clients/conformance/run.py"));
    command.arg("--tenure").arg(run::target().join("debug/tenure"));
    for (case, reason) in exceptions {
        command.args(["--except", &format!("{case}={reason}")]);
    }
    command.args(["-j", CASES, "--"]).args(driver);
    command
}

fn shell(dir: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg(script).current_dir(dir);
    command
}

fn target() -> PathBuf {
    run::target().join("clients")
}

/// The interpreter of the virtual environment with the tools.
fn python() -> PathBuf {
    target().join("python/bin/python")
}

/// Installs the tools of the package.
pub(crate) fn prepare_typescript(dir: &Path) -> Result<()> {
    let npm = find("npm").context("this machine has no npm")?;
    // Not `npm ci`: it refuses the lock file where the registry lacks a linter for another platform.
    let keep = ["install", "--no-save", "--omit-lockfile-registry-resolved"];
    let quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
    must(Command::new(npm).args(keep).args(quiet).current_dir(dir))
}

fn prepare_python(_: &Path) -> Result<()> {
    let stamp = target().join("python/installed");
    let wanted = PYTHON_TOOLS.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let place = target().join("python");
    fs::create_dir_all(target()).with_context(|| format!("create {}", target().display()))?;
    must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
    must(
        Command::new(python())
            .args(["-m", "pip", "install", "--quiet"])
            .args(PYTHON_TOOLS),
    )?;
    fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))
}
