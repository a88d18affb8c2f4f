//! Text in a store: labels, reasons, display names, fields of sessions.

use std::fmt::Write;

use serde_json::json;

use super::{FOREIGN, INVISIBLE, clean, has_text, is_clean};
use crate::support::{Daemon, said};

/// A text in the query of a URL.
fn in_query(text: &str) -> String {
    text.bytes().fold(String::new(), |mut query, byte| {
        write!(query, "%{byte:02X}").expect("a text grows");
        query
    })
}

/// A daemon with a text of others wherever one is allowed. Answers the tenure of the member `m`.
fn filled() -> (Daemon, String) {
    let daemon = Daemon::start(&[]);
    let join = |member: &str| {
        let body = json!({"member": member, "ttl_ms": 100_000, "labels": {FOREIGN: FOREIGN, "zone": FOREIGN}});
        let (status, joined) = daemon.answered("POST", "/v1/groups/g/members", &body.to_string());
        assert_eq!(status, 201, "{joined}");
        joined["tenure"].as_str().expect("a tenure").to_owned()
    };
    let (tenure, gone) = (join("m"), join("gone"));
    assert_eq!(daemon.claim("g", "r", &tenure, &["k".to_owned()]).0, 200);
    daemon.granted("g", "l", &[&tenure], 100_000);
    let session =
        json!({"tenure": tenure, "connection": "c", "alias": "a", "data": {INVISIBLE: FOREIGN, "f": FOREIGN}});
    let (status, said) = daemon.http("PUT", "/v1/groups/g/sessions/s", &session.to_string());
    assert_eq!(status, 201, "{said}");
    let end = format!("/v1/groups/g/tenures/{gone}?reason={}", in_query(FOREIGN));
    assert_eq!(daemon.http("DELETE", &end, "").0, 204);
    let stuck = join("stuck");
    let end = format!(
        "/v1/groups/g/tenures/{stuck}?no_progress=stopped&reason={}",
        in_query(FOREIGN)
    );
    assert_eq!(daemon.http("DELETE", &end, "").0, 204);
    let provider = json!({"display_name": INVISIBLE, "capacity": 2});
    let (status, said) = daemon.http("PUT", "/v1/rosters/default/providers/ann", &provider.to_string());
    assert!(matches!(status, 200 | 201), "{said}");
    (daemon, tenure)
}

#[test]
fn every_command_escapes_text_of_the_store() {
    let (daemon, tenure) = filled();
    let group = |args: &[&str]| {
        [args, &["--group", "g"]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let plain = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect();
    let label = format!("zone={}", FOREIGN.trim_end_matches('\0'));
    let looks: Vec<(Vec<String>, &str)> = vec![
        (plain(&["groups"]), "g"),
        (group(&["members"]), "\\x1b[2J"),
        (
            group(&["members", "m"]),
            "\\x1b]52;c;eA==\\x07\\rFORGED\\nFORGED\\u{202e}",
        ),
        (group(&["claims", "--registry", "r"]), "m@"),
        (group(&["leases"]), "m@"),
        (group(&["targets"]), ""),
        (group(&["sessions"]), "s"),
        (group(&["sessions", "s"]), "s"),
        (group(&["events"]), "\\nFORGED"),
        (group(&["why", "gone"]), "\\nFORGED"),
        (group(&["why", "m"]), "m@"),
        (group(&["why", "session:s"]), "s"),
        (plain(&["status"]), "g"),
        (group(&["sweep", "--dry-run"]), ""),
        (group(&["sweep"]), ""),
        (plain(&["settle", "--yes"]), ""),
        (plain(&["roster", "names"]), "default"),
        (plain(&["roster", "list"]), "x\\u{202e}\\u{2028}\\u{2066}\\u{61c}y"),
        (plain(&["roster", "show", "ann"]), "\\u{2028}"),
        (plain(&["roster", "online", "ann"]), "ann"),
        (plain(&["roster", "available"]), "ann"),
        (plain(&["roster", "log"]), "ann"),
        (plain(&["doctor"]), "ok"),
        (group(&["labels", &label, "--as", &tenure]), ""),
        (group(&["claim", "r", "k2", "--as", &tenure]), ""),
        (group(&["acquire", "l2", "--as", &tenure]), ""),
        (group(&["release", "lease", "l2", "--as", &tenure]), ""),
        (group(&["expel", "m", "--yes"]), "m@"),
    ];
    for (args, must_say) in looks {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let ran = clean(|| daemon.command(&args));
        let all = ran.out + &ran.err;
        assert!(all.contains(must_say), "{args:?}: {must_say:?} is not in {all:?}");
    }
    is_clean("the daemon's log", &daemon.process.log(), false);
}

#[test]
fn followed_events_forge_no_line() {
    let (daemon, _) = filled();
    let following = daemon.spawn(&["events", "--follow", "--group", "g"]);
    said(&following, "\\nFORGED");
    is_clean("events --follow", &following.log(), false);
}

#[test]
fn json_is_escaped_and_exact() {
    let (daemon, _) = filled();
    for args in [
        &["members", "--group", "g"][..],
        &["members", "m", "--group", "g"],
        &["events", "--group", "g"],
        &["sessions", "s", "--group", "g"],
        &["roster", "list"],
    ] {
        let args = [args, &["--json"]].concat();
        let ran = clean(|| daemon.command(&args));
        if ran.code == Some(0) {
            let text = if args[0] == "roster" { INVISIBLE } else { FOREIGN };
            assert!(has_text(&ran.json(), text), "{args:?}: {}", ran.out);
        }
    }
}
