//! Installs Debian packages, also from a suite that the machine does not list yet.
//!
//! A suite is added as a copy of the machine's own entry for its Debian mirror with another suite's name, so that the
//! machine's mirror and its trusted signature are used. A package that the machine's suites have is taken from there,
//! so newer systems get no extra suite.

mod sources;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{must, output};

/// The origin of a package that the machine's suites lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// None.
    Own,
    /// The backports of this release.
    Backports,
    /// Another release of Debian, with a low priority, so that no other package comes from it.
    Debian(&'static str),
}

/// The files to write and the packages to install.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    files: Vec<(PathBuf, String)>,
    packages: Vec<String>,
}

/// Installs the packages without starting their services.
pub(crate) fn install(packages: &[(&str, Origin)]) -> Result<()> {
    update();
    let plan = Plan::of_this_machine(packages);
    for (path, text) in &plan.files {
        println!("writing {}", path.display());
        fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    if !plan.files.is_empty() {
        update();
    }
    // A package without a source would keep apt from installing the others.
    let (there, nowhere): (Vec<_>, Vec<_>) = plan.packages.iter().partition(|package| has_candidate(package));
    ensure!(!there.is_empty(), "no package source of this machine has {nowhere:?}");
    println!("installing {there:?}");
    let _quiet = NoServices::begin()?;
    let mut install = apt_get();
    install
        .args(["install", "--yes", "--no-install-recommends"])
        .args(there);
    must(&mut install)
}

/// Updates the lists. A failing source is not fatal: another may have the packages, and otherwise the installation
/// fails.
fn update() {
    if let Err(error) = must(apt_get().arg("update")) {
        eprintln!("warning: {error:#}");
    }
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    // Waits for another running apt, and retries a busy mirror.
    for option in ["DPkg::Lock::Timeout=300", "Acquire::Retries=5", "Dpkg::Use-Pty=0"] {
        command.args(["-o", option]);
    }
    command.arg("--quiet=2");
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command
}

impl Plan {
    /// The plan for this machine, from apt's current lists.
    pub(crate) fn of_this_machine(packages: &[(&str, Origin)]) -> Plan {
        let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let own = sources::of_machine(Path::new("/etc/apt"));
        Plan::new(packages, &os, &own, has_candidate)
    }

    fn new(packages: &[(&str, Origin)], os: &str, own: &[sources::Source], known: impl Fn(&str) -> bool) -> Plan {
        let mut plan = Plan::default();
        let release = os_field(os, "VERSION_CODENAME").unwrap_or_default();
        let is_debian = os_field(os, "ID") == Some("debian");
        for (package, origin) in packages {
            plan.packages.push((*package).to_owned());
            let suite = match origin {
                Origin::Backports => format!("{release}-backports"),
                Origin::Debian(suite) if is_debian => (*suite).to_owned(),
                Origin::Debian(_) | Origin::Own => continue,
            };
            if known(package) {
                continue;
            }
            let Some(source) = own.iter().find(|source| source.is_for(release)) else {
                continue;
            };
            let file = format!("/etc/apt/sources.list.d/tenure-{suite}.{}", source.extension());
            plan.add(file, source.with_suite(&suite));
            if matches!(origin, Origin::Debian(_)) {
                let pin = format!("Package: *\nPin: release n={suite}\nPin-Priority: 100\n");
                plan.add(format!("/etc/apt/preferences.d/tenure-{suite}.pref"), pin);
            }
        }
        plan
    }

    fn add(&mut self, path: String, text: String) {
        let file = (PathBuf::from(path), text);
        if !self.files.contains(&file) {
            self.files.push(file);
        }
    }

    /// The plan as shell commands.
    pub(crate) fn as_commands(&self) -> String {
        let write = |(path, text): &(PathBuf, String)| format!("sudo tee {} <<'END'\n{text}END\n", path.display());
        let files: String = self.files.iter().map(write).collect();
        let packages = self.packages.join(" ");
        format!("{files}sudo apt-get update\nsudo apt-get install --no-install-recommends {packages}\n")
    }
}

fn has_candidate(package: &str) -> bool {
    let policy = output("apt-cache", &["policy", package]).unwrap_or_default();
    policy.lines().any(|line| {
        line.trim()
            .strip_prefix("Candidate:")
            .is_some_and(|version| version.trim() != "(none)")
    })
}

fn os_field<'a>(os: &'a str, name: &str) -> Option<&'a str> {
    let value = os.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"'))
}

/// While it exists, packages do not start their services. An existing policy is kept.
struct NoServices {
    ours: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoServices {
    fn begin() -> Result<NoServices> {
        let ours = !Path::new(POLICY).exists();
        if ours {
            fs::write(POLICY, "#!/bin/sh\nexit 101\n").context("write a policy against starting services")?;
            fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        }
        Ok(NoServices { ours })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(POLICY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OS: &str = "ID=debian\nVERSION_CODENAME=bookworm\n";
    const WANTED: &[(&str, Origin)] = &[
        ("redis-server", Origin::Own),
        ("valkey-server", Origin::Backports),
        ("consul", Origin::Debian("bullseye")),
    ];

    fn own() -> Vec<sources::Source> {
        sources::parse_list("deb http://mirror.invalid/debian bookworm main\n")
    }

    #[test]
    fn packages_of_the_machines_suites_come_from_there() {
        let plan = Plan::new(WANTED, OS, &own(), |_| true);
        assert_eq!(plan.files, []);
        assert_eq!(plan.packages, ["redis-server", "valkey-server", "consul"]);
    }

    #[test]
    fn other_suites_are_added_and_foreign_ones_pinned_low() {
        let plan = Plan::new(WANTED, OS, &own(), |_| false);
        let names: Vec<_> = plan
            .files
            .iter()
            .map(|(path, _)| path.file_name().and_then(|n| n.to_str()).unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "tenure-bookworm-backports.list",
                "tenure-bullseye.list",
                "tenure-bullseye.pref"
            ]
        );
        assert_eq!(
            plan.files[0].1,
            "deb http://mirror.invalid/debian bookworm-backports main\n"
        );
        assert!(plan.files[2].1.contains("n=bullseye\nPin-Priority: 100"));
        assert!(
            plan.as_commands()
                .contains("apt-get install --no-install-recommends redis-server valkey-server consul")
        );
    }

    #[test]
    fn another_distribution_gets_no_debian_suite() {
        let ubuntu = "ID=ubuntu\nVERSION_CODENAME=\"noble\"\n";
        let plan = Plan::new(&[("consul", Origin::Debian("bullseye"))], ubuntu, &own(), |_| false);
        assert_eq!(plan.files, []);
    }
}
