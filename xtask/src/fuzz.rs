//! Fuzzes the whole HTTP surface with schemathesis, from the daemon's own OpenAPI document.
//!
//! It runs on demand (`cargo xtask fuzz`), takes minutes, and is not part of the tests. Two rounds: a daemon without
//! authentication, and one with a token of full access.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::run::{self, find, must};

/// The checks of a response: it must not be an error, and must match the document.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,unsupported_method,allow_header_conformance";
/// The time-out of a response in seconds; longer than the longest poll.
const HANG: &str = "40";
/// The duration of one round in seconds.
const ROUND: &str = "240";

/// Runs the fuzzer, or prints why it cannot.
///
/// # Errors
/// If the daemon cannot be built or started.
pub(crate) fn fuzz(args: &[String]) -> Result<bool> {
    let Some(fuzzer) = fuzzer() else {
        eprintln!(
            "SKIPPED: there is no schemathesis. It is a program in Python; to have it:\n  python3 -m venv .fuzz && \
             .fuzz/bin/pip install schemathesis\nand name it: SCHEMATHESIS=.fuzz/bin/schemathesis cargo xtask fuzz"
        );
        return Ok(env::var_os("CI").is_none());
    };
    run::build(&["tenure"])?;
    let tenure = run::target().join("debug/tenure");
    let dir = env::temp_dir().join(format!("tenure-fuzz-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    let done = rounds(&fuzzer, &tenure, &dir, args);
    fs::remove_dir_all(&dir).ok();
    done
}

fn fuzzer() -> Option<PathBuf> {
    let named = env::var_os("SCHEMATHESIS").map(PathBuf::from);
    named.or_else(|| find("schemathesis")).filter(|file| file.is_file())
}

fn rounds(fuzzer: &Path, tenure: &Path, dir: &Path, args: &[String]) -> Result<bool> {
    eprintln!("fuzz: a daemon without authentication");
    let open = round(fuzzer, tenure, dir, &[], None, args)?;
    eprintln!("fuzz: a daemon with authentication");
    let file = dir.join("tokens.toml");
    let mut new = Command::new(tenure);
    new.args(["token", "new", "--name", "fuzz", "--scope", "read,beat,write,operate"]);
    new.arg("--add").arg(&file).arg("--out").arg(dir.join("token"));
    must(&mut new)?;
    let token = fs::read_to_string(dir.join("token")).context("read the token")?;
    let flags = ["--tokens".to_owned(), file.display().to_string()];
    let guarded = round(fuzzer, tenure, dir, &flags, Some(token.trim()), args)?;
    Ok(open && guarded)
}

/// Starts a daemon, fuzzes it, and checks that it still runs.
fn round(
    fuzzer: &Path,
    tenure: &Path,
    dir: &Path,
    flags: &[String],
    token: Option<&str>,
    args: &[String],
) -> Result<bool> {
    let mut daemon = Daemon::start(tenure, dir, flags)?;
    let mut command = Command::new(fuzzer);
    command.args(["run", &format!("{}/openapi.json", daemon.url), "--checks", CHECKS]);
    if let Some(token) = token {
        // Open access is safe here: the daemon listens on loopback for some minutes.
        command.args(["--checks", &format!("{CHECKS},ignored_auth")]);
        command.args(["--header", &format!("Authorization: Bearer {token}")]);
    }
    command.args([
        "--phases",
        "examples,coverage,fuzzing",
        "--max-time",
        ROUND,
        "--request-timeout",
        HANG,
    ]);
    command.args([
        "--suppress-health-check",
        "all",
        "--warnings",
        "off",
        "--continue-on-failure",
    ]);
    let found_nothing = command.args(args).current_dir(dir).status()?.success();
    ensure!(daemon.runs()?, "the daemon ended during the fuzzing");
    Ok(found_nothing)
}

/// A daemon that is killed with its handle.
struct Daemon {
    child: Child,
    url: String,
}

impl Daemon {
    fn start(tenure: &Path, dir: &Path, flags: &[String]) -> Result<Self> {
        let mut command = Command::new(tenure);
        command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--data-dir",
                "data",
                "--log",
                "error",
            ])
            .args(flags);
        let mut child = command
            .current_dir(dir)
            .stdout(Stdio::piped())
            .spawn()
            .context("start the daemon")?;
        let out = child.stdout.take().context("the daemon's output")?;
        let mut url = String::new();
        BufReader::new(out).read_line(&mut url)?;
        let url = url.trim().to_owned();
        ensure!(url.starts_with("http"), "the daemon did not start");
        Ok(Self { child, url })
    }

    fn runs(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
