//! The servers that tests and benchmarks run against, and how they get onto this machine.

use std::fmt::Write;

use anyhow::{Result, bail};

use crate::apt::{self, Origin, Plan};
use crate::run::{find, is_set, output};

/// What a server is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Test,
    Bench,
}

/// A server, its Debian package, where that comes from when the machine's own suites don't have it, and what for.
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
    // Checks the alert rules; the server itself is never started.
    Server { program: "promtool",        package: "prometheus",    origin: Origin::Own,                needs: TEST },
    Server { program: "pgbouncer",       package: "pgbouncer",     origin: Origin::Own,                needs: TEST },
    // Shows the dashboard to its tests.
    Server { program: "chromium",        package: "chromium",      origin: Origin::Own,                needs: TEST },
    // Languages of the clients in examples/http.
    Server { program: "python3",         package: "python3",       origin: Origin::Own,                needs: TEST },
    Server { program: "node",            package: "nodejs",        origin: Origin::Own,                needs: TEST },
    Server { program: "go",              package: "golang-go",     origin: Origin::Own,                needs: TEST },
    Server { program: "redis-benchmark", package: "redis-tools",   origin: Origin::Own,                needs: BENCH },
    Server { program: "etcd",            package: "etcd-server",   origin: Origin::Own,                needs: BENCH },
    // No Debian since has it. The supervisor's catalog.
    Server { program: "consul",          package: "consul",        origin: Origin::Debian("bullseye"), needs: BOTH },
];

/// Installs what is missing, where that is possible and allowed; otherwise says how to, and fails if this is CI.
/// Returns the programs that are still missing.
pub(crate) fn ensure(need: Need) -> Result<Vec<&'static str>> {
    let wanted = missing(need);
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let packages: Vec<(&str, Origin)> = wanted.iter().map(|server| (server.package, server.origin)).collect();
    let refusal = match reason_not_to_install() {
        Some(reason) => reason.to_owned(),
        None => match apt::install(&packages) {
            Ok(()) => "no source of this machine has them".to_owned(),
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
    eprintln!("warning: {advice}\nGoing on; what needs them is skipped.\n");
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
        Some("that takes root")
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
    // Writing to a string can't fail.
    let _ = write!(text, " To install them:\n\n{}", plan.as_commands());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_need_no_benchmark_peers() {
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
                "go",
                "consul"
            ]
        );
        assert!(programs(Need::Bench).any(|program| program == "etcd"));
    }

    #[test]
    fn the_advice_names_the_programs_the_reason_and_the_packages() {
        let text = advice(&["redis-server"], "that takes root", &[("redis-server", Origin::Own)]);
        assert!(text.contains("not installed: redis-server (that takes root)"), "{text}");
        assert!(find("apt-get").is_none() || text.contains("apt-get install"), "{text}");
    }
}
