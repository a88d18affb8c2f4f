//! Keys, fields and values of another program's keyspace.

use tenure_testkit::valkey::{Flavour, Server};

use super::{FOREIGN, clean, has_text};
use crate::support::tenure;

#[test]
fn adopt_escapes_keys_of_other_programs() {
    let Some(server) = Server::start(Flavour::Redis) else {
        return;
    };
    let url = server.url();
    let set = |args: &[&str]| drop(server.cli(args).expect("a reply"));
    set(&["HSET", "connections", FOREIGN, FOREIGN]);
    set(&["HSET", "connections", "device", "alive"]);
    set(&["SET", "beat:alive", "1", "EX", "90"]);
    set(&["SET", &format!("poll:{FOREIGN}"), FOREIGN, "EX", "90"]);
    set(&["SET", "poll:endpoint", FOREIGN, "EX", "90"]);
    set(&["HSET", &format!("s:{FOREIGN}"), "left", "1", "f", FOREIGN]);
    set(&["HSET", "s:odd", "left", FOREIGN]);
    let registry = ["adopt", "registry", "--hash", "connections", "--heartbeat", "beat:{id}"];
    let leases = ["adopt", "leases", "--pattern", "poll:*", "--group", "g"];
    let sessions = ["adopt", "sessions", "--pattern", "s:*", "--disconnected-field", "left"];
    let looks: [(&[&str], &[&str], bool); 8] = [
        (&registry, &["--dry-run"], true),
        (&registry, &["--dry-run", "--json"], false),
        (&leases, &[], true),
        (&leases, &["--json"], false),
        (&sessions, &["--dry-run"], false),
        (&sessions, &["--dry-run", "--json"], false),
        (&sessions, &["--verbose"], false),
        (&registry, &["--settle", "0s", "--force"], true),
    ];
    for (args, more, must_show) in looks {
        let ran = clean(|| {
            let mut command = tenure();
            command.args(args).args(more).args(["--store", &url]);
            command
        });
        let all = format!("{}{}", ran.out, ran.err);
        if must_show && !all.contains("0 entries evicted") {
            assert!(all.contains("\\x1b[2J"), "{args:?} {more:?}: {all:?}");
        }
        if args == registry && more.contains(&"--json") {
            let listed = serde_json::from_str(&ran.out).expect("JSON");
            assert!(has_text(&listed, FOREIGN), "{}", ran.out);
        }
    }
}
