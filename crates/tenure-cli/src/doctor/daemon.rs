//! The version and the loops of a daemon.

use tenure::wire::ServerStatus;
use tenure_core::clock::Clock;
use tenure_core::store::Severity;

use super::finding::Diagnosis;
use crate::daemon::ask;

/// Checks its version and its loops. Findings about its store come with the examination of the store.
pub(super) async fn look(clock: &dyn Clock, url: &str) -> Vec<Diagnosis> {
    let status: ServerStatus = match ask(clock, url, "/v1/status").await {
        Ok(status) => status,
        Err(error) => {
            let told = Diagnosis::new("daemon status", Severity::Warning, format!("{error:#}"));
            return vec![told];
        }
    };
    let mut told = vec![version(&status.version)];
    told.extend(loops(&status));
    told.push(groups(status.groups_total));
    told
}

/// Clients and daemons of different versions understand each other as long as their first number is the same; of 0.x, as
/// long as the second is.
fn version(theirs: &str) -> Diagnosis {
    let ours = env!("CARGO_PKG_VERSION");
    let check = "version";
    if theirs == ours {
        return Diagnosis::new(
            check,
            Severity::Ok,
            format!("the daemon is {theirs}, as this command is"),
        );
    }
    let detail = format!("the daemon is {theirs}, this command is {ours}");
    if line_of(theirs) == line_of(ours) {
        return Diagnosis::new(check, Severity::Ok, format!("{detail}; they are compatible"));
    }
    Diagnosis::new(check, Severity::Warning, detail)
        .advise("update the daemons first, then the clients (docs/upgrades.md)")
}

/// The part of a version within which nothing breaks.
fn line_of(version: &str) -> Vec<&str> {
    let numbers: Vec<&str> = version.split('.').collect();
    let significant = if numbers.first() == Some(&"0") { 2 } else { 1 };
    numbers.into_iter().take(significant).collect()
}

/// More groups than a store has for services; those of jobs and runs add up.
const MANY_GROUPS: u64 = 10_000;

fn groups(total: u64) -> Diagnosis {
    let (check, detail) = ("groups", format!("the store has {total} groups"));
    if total <= MANY_GROUPS {
        return Diagnosis::new(check, Severity::Ok, detail);
    }
    Diagnosis::new(check, Severity::Warning, detail).advise(
        "each costs memory and visits for a day after its last member: use a group per service, not per job or run",
    )
}

/// Loops that panicked or never succeeded.
fn loops(status: &ServerStatus) -> Vec<Diagnosis> {
    let mut told = Vec::new();
    for one in &status.loops {
        if one.panics > 0 {
            let detail = format!("{} panicked {} times and was restarted", one.name, one.panics);
            let panicked = Diagnosis::new("sweeps", Severity::Warning, detail);
            told.push(panicked.advise("its log has the panic; that is a bug, please report it"));
        }
        if let Some(error) = one.last_error.as_ref().filter(|_| one.last_success.is_none()) {
            let detail = format!("{} has never succeeded: {error}", one.name);
            told.push(Diagnosis::new("sweeps", Severity::Warning, detail));
        }
    }
    if told.is_empty() {
        told.push(Diagnosis::new(
            "sweeps",
            Severity::Ok,
            format!("{} loops run", status.loops.len()),
        ));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_of_another_line_of_versions_is_a_warning() {
        assert_eq!(version(env!("CARGO_PKG_VERSION")).finding.severity, Severity::Ok);
        let other = version("99.0.0");
        assert_eq!(other.finding.severity, Severity::Warning);
        assert!(other.finding.detail.contains("the daemon is 99.0.0, this command is "));
        for (one, other, same) in [
            ("1.2.3", "1.9.0", true),
            ("1.2.3", "2.0.0", false),
            ("0.1.0", "0.1.7", true),
            ("0.1.0", "0.2.0", false),
        ] {
            assert_eq!(line_of(one) == line_of(other), same, "{one} {other}");
        }
    }
}
