//! Installs every package into an empty place and runs it there, up to the first eviction.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::release::Release;
use crate::run::{find, is_set, must, output};

/// The time in which a new user sees the first eviction.
const LIMIT: Duration = Duration::from_secs(60);
/// From an installed program to the first eviction.
const FIRST_EVICTION: &str = include_str!("first-eviction.sh");
/// A real installation in a copy of this system's files that is thrown away.
const IN_THROWAWAY_ROOT: &str = include_str!("deb-in-throwaway-root.sh");

/// Exit code of the script when this system cannot have such a root.
const NOT_HERE: i32 = 77;

/// How one package is installed: its suffix, a program and a Python module that are needed, and the installation into an
/// empty folder. That returns the installed program.
struct Install {
    suffix: &'static str,
    program: &'static str,
    module: Option<&'static str>,
    install: fn(&Path, &Path) -> Result<PathBuf>,
}

const INSTALLS: &[Install] = &[
    Install {
        suffix: ".tar.gz",
        program: "tar",
        module: None,
        install: unpack,
    },
    Install {
        suffix: ".deb",
        program: "dpkg",
        module: None,
        install: debian,
    },
    Install {
        suffix: ".whl",
        program: "python3",
        module: Some("ensurepip"),
        install: pip,
    },
    Install {
        suffix: ".tgz",
        program: "npm",
        module: None,
        install: npm,
    },
];

impl Install {
    /// What this machine lacks for it.
    fn missing(&self) -> Option<String> {
        if find(self.program).is_none() {
            return Some(format!("{} is not installed", self.program));
        }
        let module = self.module?;
        let found = output(self.program, &["-c", &format!("import {module}")]).is_some();
        (!found).then(|| format!("{} has no module {module} (Debian: install python3-venv)", self.program))
    }
}

/// Checks the packages in the release's folder. Returns whether all could be checked; in CI, whatever could not is a failure.
pub(crate) fn installs(release: &Release) -> Result<bool> {
    must(
        Command::new("sha256sum")
            .args(["--check", "--quiet", "SHA256SUMS"])
            .current_dir(&release.out),
    )?;
    let mut is_whole = true;
    for install in INSTALLS {
        let suffix = install.suffix;
        let package = with_suffix(&release.out, suffix)?;
        let missing = install.missing();
        if let (Some(package), None) = (&package, &missing) {
            try_out(release, package, install.install).with_context(|| format!("install {}", package.display()))?;
        } else {
            let why = missing.unwrap_or("it was not made".to_owned());
            eprintln!("NOT TESTED: the package *{suffix}: {why}");
            is_whole = false;
        }
    }
    Ok(is_whole || !is_set("CI"))
}

fn try_out(release: &Release, package: &Path, install: fn(&Path, &Path) -> Result<PathBuf>) -> Result<()> {
    let place = release.out.join("installed");
    fs::remove_dir_all(&place).ok();
    fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
    let begun = Instant::now();
    let tenure = install(package, &place)?;
    let installed = begun.elapsed();
    let version = output(&tenure.to_string_lossy(), &["--version"]).context("run tenure --version")?;
    ensure!(
        version.starts_with(&format!("tenure {}", release.version)),
        "expected tenure {}, got {version:?}",
        release.version
    );
    first_eviction(&tenure)?;
    let name = package.file_name().unwrap_or_default().to_string_lossy();
    println!(
        "{name}: installed in {:.1} s, first eviction after {:.1} s more",
        installed.as_secs_f64(),
        (begun.elapsed() - installed).as_secs_f64()
    );
    fs::remove_dir_all(&place).with_context(|| format!("remove {}", place.display()))
}

fn first_eviction(tenure: &Path) -> Result<()> {
    // `timeout` ends the script with everything that it started.
    must(
        Command::new("timeout")
            .arg(LIMIT.as_secs().to_string())
            .args(["sh", "-c", FIRST_EVICTION, "first-eviction.sh"])
            .arg(tenure),
    )
}

fn unpack(package: &Path, place: &Path) -> Result<PathBuf> {
    must(
        Command::new("tar")
            .args(["--extract", "--strip-components=1", "--file"])
            .arg(package)
            .arg("--directory")
            .arg(place),
    )?;
    Ok(place.join("bin/tenure"))
}

/// Installed for real in a root that is thrown away, where that is possible; then unpacked, to run it here as well.
fn debian(package: &Path, place: &Path) -> Result<PathBuf> {
    if !installs_in_throwaway_root(package, place)? {
        let package = package.display();
        eprintln!(
            "NOT TESTED: the scripts of {package}: they need Debian, root and the right to mount. It is unpacked."
        );
    }
    let unpacked = place.join("unpacked");
    must(Command::new("dpkg-deb").arg("--extract").args([package, &unpacked]))?;
    Ok(unpacked.join("usr/bin/tenure"))
}

/// Installs a package, runs it as its user, and purges it. Returns whether this system allows that.
fn installs_in_throwaway_root(package: &Path, place: &Path) -> Result<bool> {
    let namespace = ["--mount", "--propagation=private"];
    let is_root = output("id", &["-u"]).is_some_and(|id| id.trim() == "0");
    if !is_root || output("unshare", &[&namespace[..], &["true"]].concat()).is_none() {
        return Ok(false);
    }
    let status = Command::new("unshare")
        .args(namespace)
        .arg("timeout")
        .arg((2 * LIMIT.as_secs()).to_string())
        .args(["sh", "-c", IN_THROWAWAY_ROOT, "deb-in-throwaway-root.sh"])
        .args([package, place])
        .arg(FIRST_EVICTION)
        .status()
        .context("run unshare")?;
    ensure!(
        status.success() || status.code() == Some(NOT_HERE),
        "the installation failed: {status}"
    );
    Ok(status.success())
}

fn pip(package: &Path, place: &Path) -> Result<PathBuf> {
    let environment = place.join("venv");
    must(Command::new("python3").args(["-m", "venv"]).arg(&environment)).context("install python3-venv")?;
    must(
        Command::new(environment.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-index",
                "--disable-pip-version-check",
            ])
            .arg(package),
    )?;
    Ok(environment.join("bin/tenure"))
}

fn npm(package: &Path, place: &Path) -> Result<PathBuf> {
    fs::write(place.join("package.json"), "{}\n").context("write package.json")?;
    let options = ["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error"];
    must(
        Command::new("npm")
            .args(options)
            .arg(package)
            .current_dir(place)
            .stdout(Stdio::null()),
    )?;
    Ok(place.join("node_modules/.bin/tenure"))
}

/// The one file of a folder with this suffix.
fn with_suffix(folder: &Path, suffix: &str) -> Result<Option<PathBuf>> {
    let mut found = None;
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let is_one = path.to_string_lossy().ends_with(suffix);
        if is_one && let Some(other) = found.replace(path) {
            bail!("two packages end with {suffix}: one is {}", other.display());
        }
    }
    Ok(found)
}
