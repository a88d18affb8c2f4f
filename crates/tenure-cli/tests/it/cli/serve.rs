//! `tenure serve`: starting, stopping, settings, and one owner per file.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::Value;
use tenure_testkit::wait;

use crate::support::{Daemon, SOON, address_in, run, said, spawn, tenure};

#[test]
fn it_makes_its_data_directory_serves_and_stops_when_asked() {
    let daemon = Daemon::start(&[]);
    assert_eq!(daemon.http("GET", "/livez", "").0, 200);
    wait::until("it is ready", SOON, || daemon.http("GET", "/readyz", "").0 == 200);
    let data = daemon.process.dir().join("tenure-data");
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(data.join("tenure.db").exists());
    assert_eq!(
        daemon.process.terminate(SOON).unwrap().code(),
        Some(0),
        "{}",
        daemon.process.log()
    );
    let log = daemon.process.log();
    assert!(
        log.contains("serving") && log.contains("tenure-data/tenure.db") && log.contains("stopped"),
        "{log}"
    );
}

#[test]
fn store_survives_a_restart() {
    let daemon = Daemon::start(&[]);
    let tenure = daemon.join("g", "a", 60_000);
    daemon.claim("g", "devices", &tenure, &["cam".to_owned()]);
    for nth in 1..=2 {
        // Once without and once with a farewell.
        if nth == 2 {
            daemon.process.terminate(SOON).unwrap();
        }
        daemon.process.restart().unwrap();
        let addr = address_in(&daemon.process, nth);
        let again = crate::support::run({
            let mut command = tenure_command(&["claims", "cam", "--registry", "devices", "--group", "g", "--json"]);
            command.env("TENURE_STORE", format!("http://{addr}"));
            command
        });
        assert_eq!(
            again.json(),
            serde_json::json!({"key": "cam", "owner": "a", "tenure": tenure, "alive": true})
        );
    }
}

fn tenure_command(args: &[&str]) -> std::process::Command {
    let mut command = tenure();
    command.args(args);
    command
}

#[test]
fn a_second_signal_does_not_wait_for_requests() {
    let daemon = Daemon::start(&["--store", "memory:", "--drain", "60s"]);
    let mut slow = TcpStream::connect(daemon.addr).unwrap();
    let head = "POST /v1/groups/g/members HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n";
    slow.write_all(head.as_bytes()).unwrap();
    // The daemon asks for the body, so the request has begun.
    let mut asked = [0; 12];
    slow.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100");
    daemon.process.signal(Signal::TERM).unwrap();
    said(&daemon.process, "shutting down");
    daemon.process.signal(Signal::INT).unwrap();
    assert_eq!(
        daemon.process.wait(SOON).unwrap().code(),
        Some(0),
        "{}",
        daemon.process.log()
    );
    said(&daemon.process, "second stop signal");
}

#[test]
fn second_daemon_on_a_file_is_refused_with_the_owner() {
    let first = Daemon::start(&[]);
    let path = first.process.dir().join("tenure-data");
    let mut command = tenure_command(&["serve", "--listen", "127.0.0.1:0", "--data-dir", path.to_str().unwrap()]);
    command.env("TENURE_LOG", "error");
    let ran = run(command);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains(&first.url()), "{}", ran.err);
}

#[test]
fn a_taken_port_is_named() {
    let first = Daemon::start(&["--store", "memory:"]);
    let ran = run(tenure_command(&[
        "serve",
        "--store",
        "memory:",
        "--listen",
        &first.addr.to_string(),
    ]));
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains(&format!("cannot listen on {}", first.addr)),
        "{}",
        ran.err
    );
}

#[test]
fn other_commands_find_the_daemon_of_a_file() {
    let daemon = Daemon::start(&[]);
    daemon.join("g", "a", 60_000);
    let store = format!(
        "sqlite:{}",
        daemon.process.dir().join("tenure-data/tenure.db").display()
    );
    let ran = run(tenure_command(&[
        "members", "--group", "g", "--json", "--store", &store,
    ]));
    assert_eq!(ran.json()["members"][0]["member"], "a");
    // Their commands receive its address, too.
    let ran = run(tenure_command(&[
        "join",
        "--store",
        &store,
        "--",
        "sh",
        "-c",
        "echo $TENURE_STORE",
    ]));
    assert_eq!(ran.out.trim(), daemon.url(), "{}", ran.err);
}

#[test]
fn without_a_daemon_a_file_is_used_by_one_command_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", dir.path().join("t.db").display());
    let mut joined = tenure_command(&["join", "--member", "a", "--store", &store, "--", "true"]);
    joined.current_dir(dir.path());
    assert_eq!(run(joined).code, Some(0));
    let ran = run(tenure_command(&["events", "--json", "--store", &store]));
    let events = ran.json();
    let kinds: Vec<_> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    // A new file may have had a predecessor.
    assert_eq!(kinds, ["group_unsettled", "joined", "left"]);
    // While one daemon owns the file, others are refused with its name.
    let holder = spawn("tenure join", |command, _| {
        command.args([
            "join",
            "--store",
            &store,
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 1000",
        ]);
    });
    said(&holder, "ready");
    let ran = run(tenure_command(&["members", "--store", &store]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains(&holder.pid().unwrap().to_string()), "{}", ran.err);
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    // The daemon names its limit when it rejects a longer ttl.
    let limit = |flag: &[&str], variable: Option<&str>, file: Option<&str>| {
        let daemon = Daemon::with(|command| {
            command.args(["--store", "memory:"]).args(flag);
            if let Some(value) = variable {
                command.env("TENURE_MAX_TTL", value);
            }
            if let Some(content) = file {
                let path = command.get_current_dir().unwrap().join("tenure.toml");
                fs::write(&path, content).unwrap();
                command.arg("--config").arg(path);
            }
        });
        let (status, problem) = daemon.http("POST", "/v1/groups/g/members", r#"{"member":"a","ttl_ms":3600000}"#);
        assert_eq!(status, 422, "{problem}");
        let detail = problem["detail"].as_str().unwrap().to_owned();
        detail
            .split(" to ")
            .nth(1)
            .unwrap()
            .trim_end_matches(" (max_ttl)")
            .to_owned()
    };
    assert_eq!(
        limit(&["--max-ttl", "11s"], Some("12s"), Some("max_ttl = \"13s\"")),
        "11s"
    );
    assert_eq!(limit(&[], Some("12s"), Some("max_ttl = \"13s\"")), "12s");
    assert_eq!(limit(&[], Some(""), Some("max_ttl = \"13s\"")), "13s");
    assert_eq!(limit(&[], None, None), "2m");
}

#[test]
fn logs_may_be_json() {
    let daemon = Daemon::start(&["--store", "memory:", "--log-format", "json"]);
    daemon.process.terminate(SOON).unwrap();
    let log = daemon.process.log();
    let lines: Vec<Value> = log
        .lines()
        .filter(|line| !line.starts_with("http://"))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let serving = lines
        .iter()
        .find(|line| line["message"] == "serving")
        .unwrap_or_else(|| panic!("{log}"));
    assert_eq!(serving["store"], "memory:");
    assert_eq!(serving["listen"], daemon.url());
}

#[test]
fn it_starts_while_its_store_is_away() {
    let port = tenure_testkit::port::Port::reserve();
    let daemon = Daemon::start(&["--store", &format!("valkey://{}", port.addr())]);
    assert_eq!(daemon.http("GET", "/livez", "").0, 200);
    assert_eq!(daemon.http("GET", "/readyz", "").0, 503);
    let (status, problem) = daemon.http("POST", "/v1/groups/g/members", r#"{"member":"a"}"#);
    assert_eq!(
        (status, &problem["code"]),
        (503, &Value::from("store_unavailable")),
        "{problem}"
    );
    let status = daemon.run(&["status", "--json"]).json();
    assert_eq!(status["store"]["up"], false);
    let ran = daemon.run(&["doctor"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert_eq!(
        daemon.process.terminate(SOON).unwrap().code(),
        Some(0),
        "{}",
        daemon.process.log()
    );
}
