//! `tenure adopt leases` as people and deployments use it: the built binary, real servers, exit codes.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Process, wait};

const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough that no lease is lost on a busy machine.
const TTL: Duration = Duration::from_secs(6);

fn tenure(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["adopt", "leases"]).args(args);
    command
}

fn run(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = tenure(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn look(server: &Server, more: &[&str]) -> (i32, String, String) {
    let url = server.url();
    run(&[
        &["--store", &url, "--group", "pollers", "--pattern", "poll:lease:*"],
        more,
    ]
    .concat())
}

fn json(server: &Server) -> (i32, Value) {
    let (code, stdout, stderr) = look(server, &["--json"]);
    let parsed = serde_json::from_str(&stdout);
    (code, parsed.unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")))
}

fn old_key(server: &Server, target: &str, value: &str) {
    let key = format!("poll:lease:{target}");
    server.cli(&["SET", &key, value, "PX", "60000"]).unwrap();
}

/// A node of Tenure that holds these leases, for as long as the runtime lives.
struct Node {
    runtime: tokio::runtime::Runtime,
    _kept: (tenure::Tenure, tenure::Membership, Vec<tenure::LeaseGuard>),
    tenure: String,
}

impl Node {
    fn start(server: &Server, leases: &[&str]) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (kept, id) = runtime.block_on(async {
            let mut options = tenure::OpenOptions::default();
            // A store without a past grants no lease for this long.
            options.store.max_ttl = TTL;
            let settings = tenure::ClientSettings::default();
            let tenure = tenure::Tenure::connect_with(&server.url(), options, settings)
                .await
                .unwrap();
            let mut join = tenure::JoinOptions::named("new-a").unwrap();
            join.ttl = TTL;
            let membership = tenure.group("pollers").unwrap().join(join).await.unwrap();
            let guards = std::cell::RefCell::new(Vec::new());
            for lease in leases {
                wait::until_async("the lease is granted", PATIENCE, async || {
                    let acquired = membership.leases().acquire(lease).await;
                    let granted = acquired.ok().and_then(tenure::Acquire::granted);
                    let is_granted = granted.is_some();
                    guards.borrow_mut().extend(granted);
                    is_granted
                })
                .await;
            }
            let guards = guards.into_inner();
            let id = membership.tenure().to_string();
            ((tenure, membership, guards), id)
        });
        Self {
            runtime,
            _kept: kept,
            tenure: id,
        }
    }
}

#[test]
fn targets_show_old_and_new_holder() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let node = Node::start(&server, &["a", "b", "c"]);
        // One is waited for, one held both ways, one only by Tenure, one by an old node alone, one by a node that is gone.
        old_key(&server, "a", "old-1");
        old_key(&server, "b", &format!("{}#4", node.tenure));
        server.cli(&["SET", "poll:lease:d", "old-2"]).unwrap();
        old_key(&server, "e", "new-b@7#0");
        let (code, shown) = json(&server);
        let verdicts: Vec<(&str, &str)> = shown["targets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (row["target"].as_str().unwrap(), row["verdict"].as_str().unwrap()))
            .collect();
        let wanted = [
            ("a", "old_node"),
            ("d", "old_node"),
            ("e", "conflict"),
            ("b", "both"),
            ("c", "tenure_only"),
        ];
        assert_eq!(
            (code, verdicts.as_slice(), &shown["endless"]),
            (1, &wanted[..], &1.into())
        );
        let first = &shown["targets"][0];
        assert_eq!(
            (&first["old_holder"], &first["holder"]),
            (&"old-1".into(), &"new-a".into())
        );
        assert!(first["old_expires_in_ms"].as_u64().unwrap() > 30_000 && first["token"].as_u64().is_some());
        let (code, table, stderr) = look(&server, &[]);
        assert!(code == 1 && table.lines().count() == 6, "{table}");
        assert!(table.starts_with("TARGET") && table.contains("never"), "{table}");
        assert!(
            stderr.contains("2 held by old nodes, 1 in conflict, 1 held both ways, 1 by Tenure only"),
            "{stderr}"
        );
        assert!(stderr.contains("1 old keys have no ttl"), "{stderr}");

        server
            .cli(&["DEL", "poll:lease:a", "poll:lease:d", "poll:lease:e"])
            .unwrap();
        let (code, shown) = json(&server);
        assert_eq!(
            (code, &shown["done"], &shown["counts"]["both"]),
            (0, &true.into(), &1.into())
        );
        // Nothing was changed by looking.
        assert_eq!(server.cli(&["EXISTS", "poll:lease:b"]).unwrap().int(), Some(1));
        drop(node.runtime);
    }
}

#[test]
fn targets_named_by_keys_show_whether_they_are_paused() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        server.cli(&["HSET", "endpoint:active", "IsPaused", "0"]).unwrap();
        server.cli(&["HSET", "endpoint:hash", "IsPaused", "yes"]).unwrap();
        server.cli(&["SET", "endpoint:json", r#"{"IsPaused":true}"#]).unwrap();
        server.cli(&["SET", "endpoint:broken", r#"{"IsPaused":fal"#]).unwrap();
        old_key(&server, "active", "old-1");
        old_key(&server, "elsewhere", "old-1");
        let named = ["--targets", "endpoint:*", "--paused-field", "IsPaused"];
        let (_, stdout, stderr) = look(&server, &[&named[..], &["--json"]].concat());
        let shown: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
        let rows = shown["targets"].as_array().unwrap().iter();
        let rows: Vec<_> = rows
            .map(|row| {
                (
                    row["target"].as_str().unwrap(),
                    row["paused"].as_bool(),
                    row["verdict"].as_str().unwrap(),
                )
            })
            .collect();
        let wanted = [
            ("active", Some(false), "old_node"),
            ("elsewhere", None, "old_node"),
            ("broken", Some(true), "free"),
            ("hash", Some(true), "free"),
            ("json", Some(true), "free"),
        ];
        assert_eq!(
            (rows.as_slice(), &shown["unclear"]),
            (&wanted[..], &1.into()),
            "{stdout}"
        );
        let (_, table, stderr) = look(&server, &named);
        assert!(table.starts_with("TARGET     PAUSED  OLD HOLDER"), "{table}");
        assert!(stderr.contains("1 count as paused because"), "{stderr}");
        let (_, _, stderr) = look(&server, &["--targets", "endpiont:*"]);
        assert!(stderr.contains("check --targets"), "{stderr}");
        let (code, _, stderr) = look(&server, &["--paused-field", "IsPaused"]);
        assert!(code == 2 && stderr.contains("--targets"), "{stderr}");
    }
}

#[test]
fn names_and_fields_that_cannot_be_used_are_named() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    for key in ["endpoint:a", "endpoint:100% of b", "endpoint:c d"] {
        server.cli(&["HSET", key, "IsPaused", "0"]).unwrap();
    }
    server.cli(&["SET", "endpoint:plain", "http://e"]).unwrap();
    old_key(&server, "a", "old-1");
    old_key(&server, "c d", "old-1");
    let named = ["--targets", "endpoint:*", "--paused-field", "IsPaused"];
    let (_, table, stderr) = look(&server, &named);
    let (_, stdout, _) = look(&server, &[&named[..], &["--json"]].concat());
    let shown: Value = serde_json::from_str(&stdout).unwrap();
    let (one, other) = ("\"100% of b\"", "\"c d\"");
    let names = [format!("{one}, {other}"), format!("{other}, {one}")];
    let told = |names: &String| {
        stderr.contains(&format!(
            "2 keys of --targets have names that no target can have: {names}"
        ))
    };
    assert!(names.iter().any(told), "{stderr}");
    assert!(
        stderr.contains("1 key of --pattern has a name that no target can have: \"c d\""),
        "{stderr}"
    );
    assert_eq!(
        (&shown["nameless"], &shown["unclear"]),
        (&2.into(), &1.into()),
        "{stdout}"
    );
    // A text that is not JSON says nothing about a pause, so it pauses.
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("plain") && line.contains("yes")),
        "{table}"
    );
    let (code, _, stderr) = look(&server, &["--targets", "endpoint:*", "--paused-field", "isPaused"]);
    assert!(
        code == 1 && stderr.contains("not one key has the field isPaused: check --paused-field"),
        "{stderr}"
    );
}

#[test]
fn a_deployment_can_wait_until_new_nodes_hold_all() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    server.cli(&["HSET", "endpoint:a", "IsPaused", "0"]).unwrap();
    server.cli(&["HSET", "endpoint:b", "IsPaused", "1"]).unwrap();
    let both = [
        "--targets",
        "endpoint:*",
        "--paused-field",
        "IsPaused",
        "--until",
        "both",
    ];
    // No old instance holds a key, and no new node either.
    assert_eq!(look(&server, &["--wait", "100ms"]).0, 0);
    let (code, _, stderr) = look(&server, &[&both[..], &["--wait", "100ms"]].concat());
    assert!(code == 1 && stderr.contains("1 held by none"), "{code} {stderr}");
    let (code, _, stderr) = look(&server, &["--until", "both"]);
    assert!(code == 2 && stderr.contains("--targets"), "{code} {stderr}");
    let node = Node::start(&server, &["a"]);
    let (code, _, stderr) = look(&server, &[&both[..], &["--wait", "100ms"]].concat());
    assert!(code == 1 && stderr.contains("1 by Tenure only"), "{code} {stderr}");
    old_key(&server, "a", &format!("{}#0", node.tenure));
    let (code, _, stderr) = look(&server, &both);
    assert!(code == 0 && stderr.contains("1 held both ways"), "{code} {stderr}");
    drop(node.runtime);
}

#[test]
fn a_deployment_can_wait_for_the_last_old_instance() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    old_key(&server, "a", "old-1");
    let (code, _, stderr) = look(&server, &["--wait", "100ms"]);
    assert!(code == 1 && stderr.contains("1 held by old nodes"), "{code} {stderr}");
    let url = server.url();
    let waiting = Process::spawn("adopt-leases", |_| {
        tenure(&[
            "--store",
            &url,
            "--group",
            "pollers",
            "--pattern",
            "poll:lease:{target}",
            "--wait",
            "60s",
        ])
    })
    .unwrap();
    wait::until("it says what it waits for", PATIENCE, || {
        waiting.log().contains("waiting: 1 held")
    });
    server.cli(&["DEL", "poll:lease:a"]).unwrap();
    assert_eq!(waiting.wait(PATIENCE).unwrap().code(), Some(0), "{}", waiting.log());
}

#[test]
fn wrong_usage_and_a_store_out_of_reach_have_their_exit_codes() {
    let usage: &[(&[&str], &str)] = &[
        (
            &["--store", "valkey://127.0.0.1:1", "--pattern", "poll:lease"],
            "{target}",
        ),
        (&["--store", "http://127.0.0.1:1", "--pattern", "a:*"], "--store"),
        (
            &["--store", "valkey://127.0.0.1:1", "--pattern", "a:*", "--wait", "soon"],
            "not a duration",
        ),
        (&["--pattern", "a:*"], "--store"),
    ];
    for (args, must_say) in usage {
        let (code, _, stderr) = run(args);
        assert!(code == 2 && stderr.contains(must_say), "{args:?}: {code} {stderr}");
    }
    let (code, _, stderr) = run(&["--store", "valkey://127.0.0.1:1", "--pattern", "a:*"]);
    assert!(code == 1 && stderr.contains("out of reach"), "{code} {stderr}");
}
