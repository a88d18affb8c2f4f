//! `tenure adopt registry` as people and programs use it: the built binary, real servers, exit codes.

mod bound;
mod told;

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Process, http, wait};

const PATIENCE: Duration = Duration::from_secs(60);

fn tenure(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["adopt", "registry", "--hash", "connections:registry"]);
    command.args(["--heartbeat", "instance:heartbeat:{id}", "--store", &server.url()]);
    command.args(args);
    command
}

fn run(server: &Server, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = tenure(server, args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn json(server: &Server, args: &[&str]) -> (i32, Value) {
    let (code, stdout, stderr) = run(server, &[args, &["--json"]].concat());
    let parsed = serde_json::from_str(&stdout);
    (code, parsed.unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")))
}

fn claim(server: &Server, key: &str, owner: &str) {
    server.cli(&["HSET", "connections:registry", key, owner]).unwrap();
}

fn beat(server: &Server, owner: &str) {
    let key = format!("instance:heartbeat:{owner}");
    server.cli(&["SET", &key, "1", "EX", "90"]).unwrap();
}

fn len(server: &Server) -> i64 {
    server.cli(&["HLEN", "connections:registry"]).unwrap().int().unwrap()
}

#[test]
fn a_dry_run_lists_and_a_run_removes() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        claim(&server, "device-1", "dead");
        claim(&server, "device-2", "alive");
        beat(&server, "alive");
        let (code, stdout, stderr) = run(&server, &["--dry-run"]);
        assert_eq!(
            (code, stdout.as_str()),
            (0, "KEY       OWNER\ndevice-1  dead\n"),
            "{stderr}"
        );
        let (code, listed) = json(&server, &["--dry-run"]);
        assert_eq!(
            (code, &listed["doomed_total"], &listed["dry_run"]),
            (0, &1.into(), &true.into())
        );
        assert_eq!(len(&server), 2);
        let (code, stdout, stderr) = run(&server, &["--settle", "200ms"]);
        assert_eq!((code, stdout.as_str()), (0, "OWNER  EVICTED\ndead   1\n"), "{stderr}");
        assert!(stderr.contains("looking again in 200ms"), "{stderr}");
        let (code, again) = json(&server, &["--settle", "0s"]);
        assert_eq!((code, &again["evicted_total"]), (0, &0.into()));
        assert_eq!(len(&server), 1);
    }
}

#[test]
fn daemon_may_be_given_an_empty_hash() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let daemon = Process::spawn("adopt-empty", |_| {
        tenure(&server, &["--interval", "1s", "--allow-empty"])
    })
    .unwrap();
    wait::until("a pass is done", PATIENCE, || daemon.log().contains("pass done"));
    assert!(!daemon.log().contains("is --hash right"), "{}", daemon.log());
}

#[test]
fn entries_without_an_owner_are_named() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    claim(&server, "device 1", "");
    claim(&server, "device-2", "alive");
    beat(&server, "alive");
    let (code, _, stderr) = run(&server, &["--settle", "0s"]);
    assert!(
        code == 0 && stderr.contains("1 entry without the id of an owner in the value, kept: \"device 1\""),
        "{stderr}"
    );
}

#[test]
fn one_file_serves_the_daemon_and_the_adopt_commands() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    claim(&server, "device-1", "dead");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenure.toml");
    let settings = format!(
        "store = \"sqlite:not-this-one.db\"\n[janitor]\ninterval = \"10s\"\n\
         [adopt.registry]\nhash = \"connections:registry\"\nheartbeat = \"instance:heartbeat:{{id}}\"\n\
         store = \"{url}\"\nsettle = \"0s\"\ninterval = \"60s\"\nmetrics_listen = \"127.0.0.1:0\"\n\
         [adopt.leases]\npattern = \"poll:lease:*\"\nstore = \"{url}\"\ngroup = \"pollers\"\n",
        url = server.url()
    );
    std::fs::write(&file, settings).unwrap();
    let with_file = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.arg("adopt").args(args).arg("--config").arg(&file);
        command
    };
    let run = |args: &[&str]| {
        let done = with_file(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code().unwrap(), text(&done.stdout), text(&done.stderr))
    };
    // A look by hand is a single run, although the file is that of the run for ever.
    let (code, stdout, stderr) = run(&["registry", "--dry-run"]);
    assert_eq!(
        (code, stdout.as_str()),
        (0, "KEY       OWNER\ndevice-1  dead\n"),
        "{stderr}"
    );
    let (code, _, stderr) = run(&["leases"]);
    assert!(code == 0 && stderr.contains("0 held by old nodes"), "{code} {stderr}");
    // A flag beats the file.
    let (code, stdout, stderr) = run(&["registry", "--hash", "another", "--dry-run"]);
    assert_eq!((code, stdout.as_str()), (1, "KEY  OWNER\n"), "{stderr}");
    assert!(stderr.contains("\"another\" is missing or empty"), "{stderr}");
    let daemon = Process::spawn("adopt-from-a-file", |_| with_file(&["registry"])).unwrap();
    wait::until("the entry is removed", PATIENCE, || len(&server) == 0);
    assert!(daemon.log().contains("/metrics"), "{}", daemon.log());
}

#[test]
fn braked_run_fails_until_forced() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    (0..20).for_each(|n| claim(&server, &format!("device-{n}"), &format!("i-{n}")));
    let (code, held) = json(&server, &["--settle", "0s"]);
    assert_eq!(
        (code, &held["braked"]["dead"], &held["evicted_total"]),
        (1, &20.into(), &0.into())
    );
    let (code, stdout, stderr) = run(&server, &["--settle", "0s", "--force"]);
    assert_eq!((code, stdout.lines().count(), len(&server)), (0, 21, 0), "{stderr}");
}

#[test]
fn usage_errors_and_failures_have_exit_codes() {
    let Some(server) = Server::start(Flavour::Redis) else {
        return;
    };
    server.cli(&["SET", "connections:registry", "x"]).unwrap();
    let (code, _, stderr) = run(&server, &["--settle", "0s"]);
    assert!(
        code == 1 && stderr.contains("holds a string, not a hash"),
        "{code} {stderr}"
    );
    let usage: &[(&[&str], &str)] = &[
        (&["--settle", "soon"], "not a duration"),
        (&["--settle", "25h"], "24h"),
        (&["--brake-share", "2"], "share"),
        (&["--owner-pointer", "instance"], "/instance"),
        (&["--interval", "10ms"], "below 1s"),
        (&["--metrics-listen", "127.0.0.1:0"], "--interval"),
        (&["--dry-run", "--force"], "--force"),
    ];
    for (args, must_say) in usage {
        let (code, _, stderr) = run(&server, args);
        assert!(code == 2 && stderr.contains(must_say), "{args:?}: {code} {stderr}");
    }
    let bare = |heartbeat: &str, store: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args([
            "adopt",
            "registry",
            "--hash",
            "h",
            "--heartbeat",
            heartbeat,
            "--store",
            store,
        ]);
        let done = command.output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, stderr) = bare("instance:heartbeat", "valkey://127.0.0.1:1");
    assert!(code == 2 && stderr.contains("{id}"), "{code} {stderr}");
    let (code, stderr) = bare("hb:{id}", "http://127.0.0.1:1");
    assert!(code == 2 && stderr.contains("--store"), "{code} {stderr}");
    server.kill();
    let (code, stderr) = bare("hb:{id}", &server.url());
    assert!(code == 1 && stderr.contains("out of reach"), "{code} {stderr}");
}

#[test]
fn daemons_remove_count_once_and_leave_nothing_behind() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    beat(&server, "alive");
    claim(&server, "kept", "alive");
    let args = [
        "--interval",
        "1s",
        "--settle",
        "100ms",
        "--metrics-listen",
        "127.0.0.1:0",
    ];
    let daemons = [(); 2].map(|()| Process::spawn("adopt", |_| tenure(&server, &args)).unwrap());
    let addresses: Vec<_> = daemons
        .iter()
        .map(|daemon| {
            wait::until("its address is printed", PATIENCE, || daemon.log().contains("/metrics"));
            let log = daemon.log();
            let url = log
                .lines()
                .find_map(|line| line.strip_prefix("http://"))
                .unwrap()
                .to_owned();
            url.trim_end_matches("/metrics").parse().unwrap()
        })
        .collect();
    // Before anything happened: what alerts count, and what they compare the age of the last success with.
    let told = |text: &str| http::get(addresses[0], "/metrics").unwrap().1.contains(text);
    for begun in [
        "tenure_evicted_entries_total{group=\"adopt\",registry=\"connections:registry\"} 0\n",
        "tenure_adopt_interval_seconds{registry=\"connections:registry\"} 1\n",
        "tenure_adopt_last_success_timestamp_seconds{registry=\"connections:registry\"} ",
    ] {
        wait::until("its passes have begun", PATIENCE, || told(begun));
    }
    (0..500).for_each(|n| claim(&server, &format!("device-{n}"), "gw-1-1763676800000000000-0a1b2c3d"));
    wait::until("the ghosts are gone", PATIENCE, || len(&server) == 1);
    let counted = || {
        let each = addresses.iter().map(|address| {
            let body = http::get(*address, "/metrics").unwrap().1;
            let wanted =
                r#"tenure_registry_evicted_total{group="adopt",registry="connections:registry",owner="gw-1"} "#;
            let found = body
                .lines()
                .find_map(|line| line.strip_prefix(wanted).map(str::to_owned));
            found.map_or(0, |count| count.parse::<u64>().unwrap())
        });
        each.sum::<u64>()
    };
    wait::until("all of them are counted", PATIENCE, || counted() >= 500);
    assert_eq!(counted(), 500);
    for daemon in daemons {
        assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
    }
    assert!(server.cli(&["KEYS", "tenure:*"]).unwrap().items().is_empty());
}

#[test]
fn a_hash_that_is_not_there_is_noticed() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    for args in [&["--dry-run"][..], &["--settle", "0s"]] {
        let (code, _, stderr) = run(&server, args);
        assert!(
            code == 1 && stderr.contains("check --hash"),
            "{args:?}: {code} {stderr}"
        );
        let (code, _, stderr) = run(&server, &[args, &["--allow-empty"]].concat());
        assert!(code == 0 && !stderr.contains("--hash"), "{args:?}: {code} {stderr}");
    }
    let daemon = Process::spawn("adopt", |_| tenure(&server, &["--interval", "1s"])).unwrap();
    wait::until("it warns", PATIENCE, || daemon.log().contains("is --hash right?"));
    assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
}

#[test]
fn missing_flags_and_wrong_schemes_are_named() {
    let bare = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        let done = command.args(["adopt", "registry"]).args(args).output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, stderr) = bare(&["--heartbeat", "hb:{id}"]);
    assert_eq!(code, 2, "{stderr}");
    for needed in ["--hash is missing", "--store is missing", "TENURE_ADOPT_REGISTRY_HASH"] {
        assert!(stderr.contains(needed), "{stderr}");
    }
    for (url, scheme) in [("sqlite:x.db", "sqlite"), ("memory:", "memory"), ("http://h:1", "http")] {
        let (code, stderr) = bare(&["--hash", "h", "--heartbeat", "hb:{id}", "--store", url]);
        let named = format!("its scheme \"{scheme}\" is not one of a Valkey or Redis; write valkey:// or redis://");
        assert!(code == 2 && stderr.contains(&named), "{code} {stderr}");
        assert!(
            !stderr.contains("cluster"),
            "a scheme is offered that is refused: {stderr}"
        );
    }
}
