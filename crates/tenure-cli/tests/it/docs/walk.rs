//! The commands of a page, run in order in one shell, as a reader would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure_testkit::port::Port;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Process, have, postgres, wait};

use crate::docs::text;
use crate::support;

/// The most that all commands of a page may take: ttls are waited out in between.
const LONG: Duration = Duration::from_secs(90);

/// The blocks of a page that are marked as a walk.
fn blocks(page: &str) -> String {
    let parts = page.split("```sh walk\n").skip(1);
    let blocks = parts.map(|part| part.split("```").next().expect("a split has a first part"));
    Vec::from_iter(blocks).join("\n")
}

/// Runs the commands of a page with other addresses in them, and answers what was shown.
#[track_caller]
fn walk(bash: &Path, page: &str, instead: &[(&str, String)]) -> String {
    let mut script = blocks(page);
    assert!(!script.is_empty(), "nothing to walk");
    // First by marks: an address of ours can contain one of theirs.
    let mark = |nth| format!("\u{1}{nth}\u{1}");
    for (nth, (theirs, _)) in instead.iter().enumerate() {
        assert!(script.contains(theirs), "the page does not say {theirs}");
        script = script.replace(theirs, &mark(nth));
    }
    for (nth, (_, ours)) in instead.iter().enumerate() {
        script = script.replace(&mark(nth), ours);
    }
    let shell = Process::spawn("the page's shell", |dir| {
        fs::write(dir.join("walk"), format!("set -eu\n{script}\necho\necho the end\n")).expect("the directory is ours");
        let mut shell = Command::new(bash);
        for (name, value) in support::tenure().get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_tenure"));
        let mut path = binary.parent().expect("it lies in a folder").as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        shell.arg("walk").current_dir(dir).env("PATH", path);
        shell
    })
    .expect("bash can be started");
    wait::until("the page was walked to its end", LONG, || {
        let ended = shell.log().lines().any(|line| line == "the end");
        assert!(ended || shell.is_running(), "it stopped: {}", shell.log());
        ended
    });
    shell.log()
}

#[track_caller]
fn shows(log: &str, wanted: &[&str]) {
    for text in wanted {
        assert!(log.contains(text), "{text:?} is not shown: {log}");
    }
}

#[test]
fn from_nothing_to_valkey_and_postgres() {
    let (Some(bash), Some(_)) = (have("bash").or_skip(), have("curl").or_skip()) else {
        return;
    };
    let (Some(valkey), Some(postgres)) = (Server::start(Flavour::Valkey), postgres::Server::start()) else {
        return;
    };
    let (first, second) = (Port::reserve(), Port::reserve());
    let instead = [
        ("127.0.0.1:6379", valkey.addr().to_string()),
        ("postgres://tenure@127.0.0.1:5432/tenure", postgres.database()),
        ("in 7717 7718", format!("in {} {}", first.number(), second.number())),
        ("127.0.0.1:7717", first.addr().to_string()),
        ("127.0.0.1:7718", second.addr().to_string()),
    ];
    let log = walk(&bash, &text("docs/operations/first-cluster.md"), &instead);
    shows(
        &log,
        &[
            "in which the brake sees a burst whole",
            "\"ready\":true",
            "\"outcome\":\"new\"",
            "lapsed",
            "evicted",
            "now: not owned",
            "\"available\":true",
            "\"engagement\":\"call-1\"",
        ],
    );
    // The doctor warns about a server without persistence; no command failed.
    // The page waits for its first member, before which the group does not exist.
    let mut errors = log.lines().filter(|line| line.contains("tenure: error"));
    assert!(errors.all(|line| line.contains("no group \"ingest\"")), "{log}");
}

#[test]
fn the_calls_on_the_page_about_the_api_are_answered_as_it_says() {
    let (Some(bash), Some(_)) = (have("bash").or_skip(), have("curl").or_skip()) else {
        return;
    };
    let port = Port::reserve();
    let log = walk(
        &bash,
        &text("docs/api.md"),
        &[("127.0.0.1:7717", port.addr().to_string())],
    );
    shows(
        &log,
        &[
            "\"expires_in_ms\":",
            "\"outcome\":\"new\"",
            "\"owner\":\"gw-1\"",
            "\"code\":\"tenure_ended\"",
            "\"code\":\"invalid\"",
            "\"claims\":[",
            "\"code\":\"too_late\"",
            "tenure-store-time:",
            "event: joined",
        ],
    );
}

#[test]
fn a_node_of_a_fleet_is_a_few_calls() {
    let (Some(bash), Some(_)) = (have("bash").or_skip(), have("curl").or_skip()) else {
        return;
    };
    let port = Port::reserve();
    let log = walk(
        &bash,
        &text("docs/guides/polling-fleet.md"),
        &[("127.0.0.1:7717", port.addr().to_string())],
    );
    shows(
        &log,
        &[
            "\"preferred\":\"node-1\"",
            "\"outcome\":\"granted\"",
            "\"paused\":true",
            "\"outcome\":\"released\"",
        ],
    );
    let last = log.rsplit("\"target\":\"endpoint-1\"").next().unwrap_or_default();
    let last = last.split('}').next().unwrap_or_default();
    assert!(last.contains("\"weight\":1") && !last.contains("node-1"), "{log}");
}

#[test]
fn drills_show_what_their_page_says() {
    let tools = ["bash", "curl", "valkey-server", "valkey-cli", "psql", "pg_dump"];
    let found: Vec<_> = tools.iter().map_while(|tool| have(tool).or_skip()).collect();
    let (true, Some(postgres)) = (found.len() == tools.len(), postgres::Server::start()) else {
        return;
    };
    let (valkey, first, second) = (Port::reserve(), Port::reserve(), Port::reserve());
    let instead = [
        ("postgres://tenure@127.0.0.1:5432/tenure", postgres.database()),
        ("6379", valkey.number().to_string()),
        ("7717", first.number().to_string()),
        ("7718", second.number().to_string()),
    ];
    walk(&found[0], &text("docs/drills.md"), &instead);
}

#[test]
fn moving_to_another_hot_store_works_as_its_page_says() {
    let tools = ["bash", "curl", "valkey-server", "valkey-cli"];
    let found: Vec<_> = tools.iter().map_while(|tool| have(tool).or_skip()).collect();
    if found.len() != tools.len() {
        return;
    }
    let (old, new, daemon) = (Port::reserve(), Port::reserve(), Port::reserve());
    let instead = [
        ("6379", old.number().to_string()),
        ("6380", new.number().to_string()),
        ("7717", daemon.number().to_string()),
    ];
    walk(&found[0], &text("docs/moving.md"), &instead);
}

/// Makes the calls of a guide on a scratch daemon, and looks for what they show.
#[track_caller]
fn guide(name: &str, wanted: &[&str]) {
    let (Some(bash), Some(_)) = (have("bash").or_skip(), have("curl").or_skip()) else {
        return;
    };
    let port = Port::reserve();
    let page = text(&format!("docs/guides/{name}.md"));
    shows(
        &walk(&bash, &page, &[("127.0.0.1:7717", port.addr().to_string())]),
        wanted,
    );
}

#[test]
fn leader_election_guide_elects_one_leader() {
    let granted = "\"holder\":\"node-b\"";
    guide(
        "leader-election",
        &["\"holder\":\"node-a\"", "\"code\":\"lease_held\"", granted],
    );
}

#[test]
fn locks_guide_waits_shares_and_releases() {
    guide(
        "locks",
        &[
            "\"waited_ms\":",
            "\"place\":1",
            "\"free\":0",
            "released lease \"slots\" of a@",
            "an operator released",
        ],
    );
}

#[test]
fn workers_guide_finds_the_orphaned_job() {
    let owner = "\"owner\":\"worker-1\"";
    guide("workers", &[owner, "lapsed jobs=1 jobs/job-7", "now: not owned"]);
}

#[test]
fn guides_for_moving_make_calls_that_work() {
    guide("from-consul", &["\"holder\":\"web-1\"", "\"outcome\":\"released\""]);
    guide("from-etcd", &["\"owner\":\"node-1\"", "\"outcome\":\"released\""]);
    guide("from-redisson", &["\"outcome\":\"kept\"", "\"outcome\":\"released\""]);
}
