//! The servers that tests and benchmarks need, and their installation.

use std::fmt::Write;

use anyhow::{Result, bail};

use crate::apt::{self, Origin, Plan};
use crate::run::{find, is_set, output};

/// The purpose of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Test,
    Bench,
}

/// A server, its Debian package, the origin of the package if the machine's suites lack it, and its purposes.
#[derive(Debug)]
pub(crate) struct Server {
    program: &'static str,
    package: &'static str,
    origin: Origin,
    needs: &'static [Need],
}

const BOTH: &[Need] = &[Need::Test, Need::Bench];
const TEST: &[Need] = &[Need::Test];
const BENCH: &[Need] = &[Need::Bench];

#[rustfmt::skip]
const SERVERS: &[Server] = &[
    Server { program: "valkey-server",   package: "valkey-server", origin: Origin::Backports,          needs: BOTH },
    Server { program: "redis-server",    package: "redis-server",  origin: Origin::Own,                needs: BOTH },
    Server { program: "postgres",        package: "postgresql",    origin: Origin::Own,                needs: TEST },
    // Checks the alert rules; its server is never started.
    Server { program: "promtool",        package: "prometheus",    origin: Origin::Own,                needs: TEST },
    Server { program: "pgbouncer",       package: "pgbouncer",     origin: Origin::Own,                needs: TEST },
    // Runs the tests of the dashboard.
    Server { program: "chromium",        package: "chromium",      origin: Origin::Own,                needs: TEST },
    // The languages of the packages in clients.
    Server { program: "python3",         package: "python3",       origin: Origin::Own,                needs: TEST },
    Server { program: "node",            package: "nodejs",        origin: Origin::Own,                needs: TEST },
    // Installs the tools that check the description of the API.
    Server { program: "npm",             package: "npm",           origin: Origin::Own,                needs: TEST },
    Server { program: "go",              package: "golang-go",     origin: Origin::Own,                needs: TEST },
    // Checks the specification, with a C compiler.
    Server { program: "spin",            package: "spin",          origin: Origin::Own,                needs: TEST },
    Server { program: "gcc",             package: "gcc",           origin: Origin::Own,                needs: TEST },
    Server { program: "redis-benchmark", package: "redis-tools",   origin: Origin::Own,                needs: BENCH },
    // A load generator that is not ours.
    Server { program: "wrk",             package: "wrk",           origin: Origin::Own,                needs: BENCH },
    Server { program: "etcd",            package: "etcd-server",   origin: Origin::Own,                needs: BENCH },
    // The only program in `PATH` of the package; the server is a library that `java` runs.
    Server { program: "zooinspector",    package: "zookeeper",     origin: Origin::Own,                needs: BENCH },
    // Not in later releases of Debian. The catalog of the supervisor.
    Server { program: "consul",          package: "consul",        origin: Origin::Debian("bullseye"), needs: BOTH },
];

/// Installs the missing programs if possible and allowed; otherwise prints how to, and fails in CI. Returns the
/// programs that are still missing.
pub(crate) fn ensure(need: Need) -> Result<Vec<&'static str>> {
    let wanted = missing(need);
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let packages: Vec<(&str, Origin)> = wanted.iter().map(|server| (server.package, server.origin)).collect();
    let refusal = match reason_not_to_install() {
        Some(reason) => reason.to_owned(),
        None => match apt::install(&packages) {
            Ok(()) => "no package source of this machine has them".to_owned(),
            Err(error) => format!("{error:#}"),
        },
    };
    let programs: Vec<&str> = missing(need).iter().map(|server| server.program).collect();
    if programs.is_empty() {
        return Ok(programs);
    }
    let advice = advice(&programs, &refusal, &packages);
    if is_set("CI") {
        bail!("{advice}");
    }
    eprintln!("warning: {advice}\nContinuing; tests that need them are skipped.\n");
    Ok(programs)
}

fn missing(need: Need) -> Vec<&'static Server> {
    let needed = SERVERS.iter().filter(|server| server.needs.contains(&need));
    needed.filter(|server| find(server.program).is_none()).collect()
}

fn reason_not_to_install() -> Option<&'static str> {
    if is_set("TENURE_NO_INSTALL") {
        Some("TENURE_NO_INSTALL is set")
    } else if find("apt-get").is_none() {
        Some("this machine has no apt-get")
    } else if output("id", &["-u"]).is_none_or(|id| id.trim() != "0") {
        Some("this needs root")
    } else {
        None
    }
}

fn advice(programs: &[&str], refusal: &str, packages: &[(&str, Origin)]) -> String {
    let mut text = format!("not installed: {} ({refusal}).", programs.join(", "));
    if find("apt-get").is_none() {
        text.push_str(" Install them with your package manager.");
        return text;
    }
    let plan = Plan::of_this_machine(packages);
    // Writing to a string cannot fail.
    let _ = write!(text, " To install them:\n\n{}", plan.as_commands());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_do_not_need_benchmark_peers() {
        let programs = |need| {
            SERVERS
                .iter()
                .filter(move |server| server.needs.contains(&need))
                .map(|s| s.program)
        };
        assert_eq!(
            programs(Need::Test).collect::<Vec<_>>(),
            [
                "valkey-server",
                "redis-server",
                "postgres",
                "promtool",
                "pgbouncer",
                "chromium",
                "python3",
                "node",
                "npm",
                "go",
                "spin",
                "gcc",
                "consul"
            ]
        );
        assert!(programs(Need::Bench).any(|program| program == "etcd"));
    }

    #[test]
    fn the_advice_names_the_programs_the_reason_and_the_packages() {
        let text = advice(&["redis-server"], "this needs root", &[("redis-server", Origin::Own)]);
        assert!(text.contains("not installed: redis-server (this needs root)"), "{text}");
        assert!(find("apt-get").is_none() || text.contains("apt-get install"), "{text}");
    }
}
