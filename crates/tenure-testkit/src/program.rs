//! Finds the programs of servers, and skips a test if one is missing.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The programs of the tests and benchmarks, each with its Debian package.
const PACKAGES: &[(&str, &str)] = &[
    ("valkey-server", "valkey-server"),
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("valkey-benchmark", "valkey-tools"),
    ("consul", "consul"),
    ("etcd", "etcd-server"),
    ("wrk", "wrk"),
    ("postgres", "postgresql"),
    ("pgbouncer", "pgbouncer"),
    ("promtool", "prometheus"),
    ("chromium", "chromium"),
    ("python3", "python3"),
    ("node", "nodejs"),
    ("go", "golang-go"),
    ("spin", "spin"),
    ("gcc", "gcc"),
];

/// Whether a program is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It is installed at this path.
    Found(PathBuf),
    /// It is neither in `PATH` nor in a usual folder of servers.
    Missing {
        /// The program.
        program: String,
    },
}

/// A command that runs one test of the current test binary in a new process, for a test that needs a program to kill.
/// `module` is the caller's `module_path!()`.
///
/// # Panics
/// If the current program has no path.
#[must_use]
#[track_caller]
pub fn own_test(module: &str, test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("the running program has a path"));
    // The test runner's names omit the binary's name.
    let module = module
        .split_once("::")
        .map_or(String::new(), |(_, inner)| format!("{inner}::"));
    command.args([
        "--exact",
        &format!("{module}{test}"),
        "--include-ignored",
        "--nocapture",
    ]);
    command
}

/// Looks for `program` in `PATH`, in the `sbin` folders and in Debian's folders of Postgres.
#[must_use]
pub fn have(program: &str) -> Availability {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
    match env::split_paths(&path)
        .chain(sbin)
        .chain(postgres_folders())
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
    {
        Some(file) => Availability::Found(file),
        None => Availability::Missing {
            program: program.to_owned(),
        },
    }
}

/// Debian installs each version of Postgres into its own folder, none of which is in `PATH`. The newest comes first.
fn postgres_folders() -> Vec<PathBuf> {
    let Ok(versions) = fs::read_dir("/usr/lib/postgresql") else {
        return Vec::new();
    };
    let mut versions: Vec<PathBuf> = versions.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions.sort_by_key(|path| std::cmp::Reverse(number(path)));
    versions.iter().map(|version| version.join("bin")).collect()
}

impl Availability {
    /// Returns the program's path, or prints to stderr what is missing and how to install it and returns `None`.
    ///
    /// # Panics
    /// If it is missing and servers are required: `CI` or `TENURE_REQUIRE_SERVERS` is set to anything but `0`, `false`
    /// or nothing. Otherwise a skipped test would look like one that passed.
    #[track_caller]
    pub fn or_skip(self) -> Option<PathBuf> {
        let required = is_set("CI") || is_set("TENURE_REQUIRE_SERVERS");
        self.or_skip_unless(required)
    }

    #[track_caller]
    fn or_skip_unless(self, required: bool) -> Option<PathBuf> {
        match self {
            Availability::Found(file) => Some(file),
            Availability::Missing { program } => {
                let advice = advice(&program);
                assert!(!required, "{advice}");
                eprintln!("SKIPPED: {advice}");
                None
            }
        }
    }
}

fn advice(program: &str) -> String {
    let package = PACKAGES
        .iter()
        .find(|(name, _)| *name == program)
        .map_or(program, |(_, package)| package);
    format!(
        "`{program}` is not installed and this test needs it; install the package `{package}`, or let `cargo xtask \
         test` do so"
    )
}

fn is_set(name: &str) -> bool {
    env::var(name).is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_an_installed_program() {
        assert!(matches!(have("sh"), Availability::Found(path) if path.is_absolute()));
    }

    #[test]
    fn skips_a_missing_program_that_is_optional() {
        assert_eq!(have("no-such-server").or_skip_unless(false), None);
    }

    #[test]
    #[should_panic(expected = "install the package `etcd-server`")]
    fn names_the_package_of_a_missing_required_program() {
        let missing = Availability::Missing {
            program: "etcd".to_owned(),
        };
        missing.or_skip_unless(true);
    }
}
