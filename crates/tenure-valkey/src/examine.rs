//! The doctor's checks of a server. They work with `INFO`, `CONFIG` and `ROLE` denied: a check that cannot run is a
//! finding, not a failure.

use redis::{Cmd, Value};
use tenure_core::error::ErrorKind;
use tenure_core::store::{Finding, Health, Severity};

use crate::connection::Connection;
use crate::reply::Reader;

/// Runs all checks; in a cluster on each primary.
pub(crate) async fn examine(connection: &Connection) -> Vec<Finding> {
    let mut findings = vec![match connection.health() {
        Health::Up => Finding::new("connection", Severity::Ok, connection.place().to_owned()),
        Health::Down { reason } => {
            let detail = format!("{} is out of reach: {reason}", connection.place());
            Finding::new("connection", Severity::Error, detail)
        }
    }];
    if connection.why_down() == Some(ErrorKind::Denied) {
        findings.push(Finding::new(
            "permissions",
            Severity::Error,
            "the server denies what Tenure needs; the line above names the commands, and docs/stores.md has the rules",
        ));
    }
    if !connection.is_cluster() {
        findings.extend(examine_server(connection).await);
        return findings;
    }
    let primaries = connection.primaries();
    let (severity, detail) = match connection.uncovered() {
        0 => (Severity::Ok, format!("{} primaries have all slots", primaries.len())),
        some => (
            Severity::Error,
            format!("{some} of 16384 slots have no node: their groups are not served"),
        ),
    };
    findings.push(Finding::new("cluster", severity, detail));
    for primary in primaries {
        let of_node = examine_server(&primary).await.into_iter().chain(pulse(&primary).await);
        for mut finding in of_node {
            finding.detail = format!("{}: {}", primary.place(), finding.detail);
            findings.push(finding);
        }
    }
    findings
}

/// Whether a primary of a cluster can keep a pulse; nothing if it is out of reach.
async fn pulse(primary: &Connection) -> Option<Finding> {
    for word in ["MYID", "INFO"] {
        let mut cmd = redis::cmd("CLUSTER");
        cmd.arg(word);
        match primary.command(cmd).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Denied => {
                let detail = format!(
                    "the user may not run CLUSTER {word}, so the node has no pulse: a crowd of groups delays the dead of others; \
                     docs/stores.md has the rule"
                );
                return Some(Finding::new("pulse", Severity::Warning, detail));
            }
            Err(_) => return None,
        }
    }
    Some(Finding::new("pulse", Severity::Ok, "the node can keep a pulse"))
}

/// Checks one server, if it is reachable.
async fn examine_server(connection: &Connection) -> Vec<Finding> {
    if connection.health() != Health::Up {
        return Vec::new();
    }
    // The connect has already checked every command on every kind of key.
    let mut findings = vec![Finding::new(
        "permissions",
        Severity::Ok,
        "the user may run every command that the scripts use",
    )];
    findings.push(clock(connection).await);
    let info = text(connection, redis::cmd("INFO")).await;
    match &info {
        Ok(info) => findings.extend(read_info(info)),
        Err(why) => findings.push(Finding::new(
            "version",
            Severity::Warning,
            format!("cannot be checked: {why}"),
        )),
    }
    findings.push(role(connection).await);
    findings.push(search(connection).await);
    findings.push(eviction(connection, info.as_deref().ok()).await);
    findings
}

/// Compares the server's clock with the local one. Only the server's counts; a difference matters when logs are
/// compared.
async fn clock(connection: &Connection) -> Finding {
    let ours = connection.clock().wall_micros();
    match connection.time().await {
        Ok(theirs) => {
            let off = theirs.micros().abs_diff(ours) / 1000;
            let severity = if off > 2_000 { Severity::Warning } else { Severity::Ok };
            Finding::new(
                "clock",
                severity,
                format!("{off} ms away from this machine's; only the server's counts"),
            )
        }
        Err(error) => Finding::new("clock", Severity::Error, format!("TIME failed: {}", error.chain())),
    }
}

/// Findings from `INFO`.
fn read_info(info: &str) -> Vec<Finding> {
    let field = |name: &str| field(info, name);
    let mut findings = Vec::new();
    let (server, version) = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => ("unknown", "0"),
    };
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0);
    let known = (server == "Valkey" && major >= 8) || (server == "Redis" && major >= 7);
    let (severity, hint) = if known {
        (Severity::Ok, "")
    } else {
        (Severity::Warning, "; tested are Valkey 8 and Redis 7")
    };
    findings.push(Finding::new("version", severity, format!("{server} {version}{hint}")));
    let (aof, saves) = (field("aof_enabled") == Some("1"), field("rdb_last_save_time"));
    findings.push(match (aof, saves) {
        (true, _) => Finding::new("persistence", Severity::Ok, "append-only file"),
        (false, Some(_)) => Finding::new(
            "persistence",
            Severity::Warning,
            "no append-only file: a restart loses all writes since the last snapshot; groups then wait one max_ttl before they grant leases (`appendonly yes` avoids it)",
        ),
        (false, None) => Finding::new("persistence", Severity::Warning, "not in INFO"),
    });
    if field("loading") == Some("1") {
        findings.push(Finding::new(
            "loading",
            Severity::Error,
            "the server is still reading its data",
        ));
    }
    findings
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

async fn role(connection: &Connection) -> Finding {
    let role = match connection.command(redis::cmd("ROLE")).await {
        Ok(value) => Reader::new(value)
            .and_then(|mut reader| reader.text())
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.chain()),
    };
    match role.as_deref() {
        Ok("master") => Finding::new("role", Severity::Ok, "primary"),
        Ok(role) => Finding::new(
            "role",
            Severity::Error,
            format!("this is a {role}; Tenure works on the primary only"),
        ),
        Err(why) => Finding::new("role", Severity::Warning, format!("cannot be checked: {why}")),
    }
}

/// Whether groups that are missing from the group list can be found again.
async fn search(connection: &Connection) -> Finding {
    let mut cmd = redis::cmd("SCAN");
    cmd.arg(0).arg("COUNT").arg(1);
    match connection.command(cmd).await {
        Ok(_) => Finding::new("search", Severity::Ok, "the user may run SCAN"),
        Err(error) => Finding::new(
            "search",
            Severity::Warning,
            format!(
                "an idle group is not found if the group list is lost: {}; allow +scan",
                error.chain()
            ),
        ),
    }
}

/// Checks the eviction policy: an evicted key reads as a dead member. `INFO` has it too, and is denied less often than
/// `CONFIG`.
async fn eviction(connection: &Connection, info: Option<&str>) -> Finding {
    let told = info.and_then(|info| field(info, "maxmemory_policy")).map(str::to_owned);
    let policy = match told {
        Some(policy) => Ok(policy),
        None => config(connection, "maxmemory-policy").await,
    };
    match policy.as_deref() {
        Ok("noeviction") => Finding::new("eviction", Severity::Ok, "noeviction"),
        Ok(policy) => Finding::new(
            "eviction",
            Severity::Error,
            format!("maxmemory-policy is {policy}: the server may evict Tenure's keys; set it to noeviction"),
        ),
        Err(why) => Finding::new(
            "eviction",
            Severity::Warning,
            format!("cannot be checked ({why}); make sure that maxmemory-policy is noeviction"),
        ),
    }
}

async fn config(connection: &Connection, name: &str) -> Result<String, String> {
    let mut cmd = redis::cmd("CONFIG");
    cmd.arg("GET").arg(name);
    let value = connection.command(cmd).await.map_err(|error| error.chain())?;
    let texts = Reader::new(value)
        .and_then(Reader::texts)
        .map_err(|error| error.to_string())?;
    texts
        .into_iter()
        .nth(1)
        .ok_or_else(|| "the server does not know it".to_owned())
}

async fn text(connection: &Connection, cmd: Cmd) -> Result<String, String> {
    let value = connection.command(cmd).await.map_err(|error| match error.kind() {
        ErrorKind::Denied => "INFO is denied".to_owned(),
        _ => error.chain(),
    })?;
    Reader::new(Value::Array(vec![value]))
        .and_then(|mut reader| reader.text())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_reply_gives_version_and_persistence() {
        let info = "# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.0.1\r\nloading:0\r\naof_enabled:0\r\nrdb_last_save_time:1\r\n";
        let findings = read_info(info);
        assert_eq!(
            (findings[0].severity, findings[0].detail.as_str()),
            (Severity::Ok, "Valkey 8.0.1")
        );
        assert_eq!(findings[1].severity, Severity::Warning);
        assert_eq!(
            read_info("redis_version:6.2.1\r\naof_enabled:1\r\n")[0].severity,
            Severity::Warning
        );
    }
}
