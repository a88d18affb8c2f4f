//! The machine and programs that the figures depend on.

use std::path::Path;
use std::process::Command;

use serde::Serialize;
use tenure_testkit::{Availability, have};

/// ZooKeeper as Debian installs it. Its manifest names the libraries that it needs.
pub const ZOOKEEPER_JAR: &str = "/usr/share/java/zookeeper.jar";

/// The machine and the programs of a run.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Cores this process may use.
    pub cores: usize,
    /// The processor's name.
    pub cpu: String,
    /// Main memory in GiB.
    pub memory_gib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The first line of each program's version output.
    pub programs: Vec<String>,
    /// The measured revision.
    pub revision: String,
    /// The load average over one, five and fifteen minutes at the start of the run.
    pub load_before: String,
}

impl Machine {
    /// Reads all of it.
    #[must_use]
    pub fn look() -> Self {
        let programs = [
            ("valkey-server", "--version"),
            ("redis-benchmark", "--version"),
            ("consul", "version"),
            ("etcd", "--version"),
            ("java", "--version"),
            ("rustc", "--version"),
        ];
        Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            memory_gib: field("/proc/meminfo", "MemTotal")
                .and_then(|kib| kib.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib.div_ceil(1 << 20)),
            kernel: read("/proc/sys/kernel/osrelease"),
            programs: programs
                .into_iter()
                .filter_map(|(program, flag)| version(program, flag))
                .chain(zookeeper())
                .collect(),
            revision: output(Command::new("git").args(["describe", "--always", "--dirty"])).unwrap_or_default(),
            load_before: load(),
        }
    }
}

/// The current load average over one, five and fifteen minutes.
#[must_use]
pub fn load() -> String {
    read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn version(program: &str, flag: &str) -> Option<String> {
    let Availability::Found(file) = have(program) else {
        return None;
    };
    output(Command::new(file).arg(flag))
}

/// Debian has a link with the version in its name beside the file.
fn zookeeper() -> Option<String> {
    let is_version = |name: &String| {
        let rest = name.strip_prefix("zookeeper-").unwrap_or_default();
        rest.starts_with(|first: char| first.is_ascii_digit())
    };
    let beside = std::fs::read_dir(Path::new(ZOOKEEPER_JAR).parent()?).ok()?;
    let mut names = beside.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.find(is_version)
}

/// The first line that a command prints.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The value of `name: value` in a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}
