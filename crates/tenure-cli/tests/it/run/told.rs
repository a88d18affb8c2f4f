//! Arguments and variables of a node, its status and its log.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use serde_json::Value;
use tenure_testkit::consul::Agent;
use tenure_testkit::port::Port;
use tenure_testkit::{Process, http, wait};

use crate::run::PATIENCE;
use crate::run::beats::{self, Beats, dies, shell};
use crate::run::found::service;
use crate::run::mount::Mount;
use crate::run::node::{self, is, looking_at, running};
use crate::support::{Ran, run, tenure};

/// Runs to its end with `--leader always`.
fn always(args: &[&str], script: &str, env: &[(&str, &str)]) -> Ran {
    let mut command = tenure();
    command.args(["run", "--leader", "always"]).args(args);
    command.args(["--", "sh", "-c", script]).envs(env.iter().copied());
    run(command)
}

#[test]
fn wrong_usage_says_what_is_missing() {
    let ran = always(&["--service", "music"], "exit 0", &[]);
    assert_eq!(ran.code, Some(2));
    for name in ["--port", "NOMAD_PORT_http"] {
        assert!(ran.err.contains(name), "{}", ran.err);
    }
    let other = [("NOMAD_PORT_http", "80")];
    let ran = always(&["--service", "music", "--label", "web"], "exit 0", &other);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("NOMAD_PORT_web"), "{}", ran.err);
    let service = ["--service", "music", "--port", "1"];
    for (args, part) in [
        (&["--catalog", "consul://127.0.0.1:1"][..], "--service"),
        (&["--drain", "9s"], "9s"),
        (&["--ready", "tcp"], "--port"),
        (&["--catalog", "dns"], "consul://"),
        (&[&service[..], &["--deregister-after", "30s"]].concat(), "60s"),
        (&[&service[..], &["--ttl", "500ms"]].concat(), "ttl"),
        (&[&service[..], &["--meta", "a"]].concat(), "KEY=VALUE"),
        (&["--guard", "a b"], "a b"),
        (&["--on-uncertain", "panic"], "stop-after"),
        (&[&service[..], &["--store", "ftp://x"]].concat(), "ftp"),
        (&["--status-listen", "here"], "--status-listen"),
    ] {
        let ran = always(args, "exit 0", &[]);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(part), "{args:?}: {}", ran.err);
    }
}

#[test]
fn store_that_is_none_is_wrong_usage_for_a_lease() {
    let mut command = tenure();
    command.args(["run", "--leader", "lease:a", "--store", "ftp://x", "--", "true"]);
    let ran = run(command);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("ftp"), "{}", ran.err);
}

#[test]
fn task_of_nomad_without_address_and_allocation_is_wrong_usage() {
    let port = [("NOMAD_PORT_http", "4533")];
    let ran = always(&["--service", "music"], "exit 0", &port);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    for name in ["NOMAD_IP_http", "NOMAD_ALLOC_ID"] {
        assert!(ran.err.contains(name), "{}", ran.err);
    }
    let ran = always(&["--service", "music"], "exit 0", &[("NOMAD_PORT_http", "eighty")]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    for part in ["\"eighty\" is not a port", "NOMAD_IP_http", "NOMAD_ALLOC_ID"] {
        assert!(ran.err.contains(part), "{}", ran.err);
    }
}

#[test]
fn status_listen_in_use_names_the_flag_and_the_address() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = always(&["--status-listen", &address], "exit 0", &[]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(
        ran.err.contains("--status-listen") && ran.err.contains(&address),
        "{}",
        ran.err
    );
}

#[test]
fn service_that_is_in_no_catalog_is_not_registered() {
    let nobody = Port::reserve();
    let away = format!("consul://{}", nobody.addr());
    let supervisor = running("a", &node::always(&away, &[]), &shell("exec sleep 1000"), |_| ());
    let told = node::until(&supervisor, "the agent is tried", |status| {
        status["catalog"]
            .as_str()
            .is_some_and(|catalog| catalog.starts_with("registering:"))
    });
    assert_eq!(
        (&told["state"], &told["registered"]),
        (&"running".into(), &false.into())
    );
}

#[test]
fn drain_is_not_waited_out_where_nothing_is_registered() {
    let args = ["--leader", "always", "--drain", "90s", "--stop-budget", "100s"];
    let supervisor = running("a", &args, &shell("exec sleep 1000"), |_| ());
    let told = node::until(&supervisor, "it runs", |status| status["state"] == "running");
    assert_eq!(told["registered"], false);
    assert_eq!(supervisor.terminate(PATIENCE).unwrap().code(), Some(143));
}

#[test]
fn command_gets_role_and_deadline_file() {
    let script = r#"echo "$TENURE_ROLE"; until grep -q running "$TENURE_DEADLINE_FILE"; do sleep 0.02; done; cat "$TENURE_DEADLINE_FILE""#;
    let ran = always(&[], script, &[]);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[0], "primary", "{}", ran.err);
    let status: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(status["leadership"], "primary");
    assert_eq!(status["deadline"], Value::Null, "always has none");
    assert!(
        !ran.err.contains("uncertain"),
        "it was certain from the start: {}",
        ran.err
    );
}

#[test]
fn the_status_is_a_health_check() {
    let port = Port::reserve();
    let address = port.addr().to_string();
    let args = [
        "--leader",
        "always",
        "--status-listen",
        &address,
        "--ready",
        "exec:test -e ready",
    ];
    let supervisor = running("a", &args, &shell("exec sleep 1000"), |_| ());
    let status = || http::get(port.addr(), "/").ok();
    wait::until("it answers 503", PATIENCE, || {
        status().is_some_and(|(code, _)| code == 503)
    });
    fs::write(supervisor.dir().join("ready"), "").unwrap();
    wait::until("it answers 200", PATIENCE, || {
        status().is_some_and(|(code, _)| code == 200)
    });
    let (_, body) = status().unwrap();
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&told["state"], &told["runs"]), (&"running".into(), &1.into()));
    assert_eq!(http::request(port.addr(), "POST", "/", "").unwrap().0, 405);
    // The file says the same, and stays with the last word.
    assert_eq!(crate::run::node::status(&supervisor)["pid"], told["pid"]);
    supervisor.terminate(PATIENCE).unwrap();
    assert_eq!(crate::run::node::status(&supervisor)["state"], "over");
}

#[test]
fn nomad_says_what_the_arguments_leave_out() {
    let Some(agent) = Agent::start() else { return };
    let args = [
        "--leader",
        "always",
        "--service",
        "music",
        "--tag",
        "primary",
        "--meta",
        "zone=a",
    ];
    let supervisor = running("a", &args, &shell("exec sleep 1000"), |command| {
        command.env("CONSUL_HTTP_ADDR", agent.addr().to_string());
        command.env("NOMAD_IP_http", "10.1.2.3").env("NOMAD_PORT_http", "4533");
        command.env("NOMAD_ALLOC_ID", "5f0c1b0e-2f0e");
    });
    is(&supervisor, "catalog", "passing");
    let found = service(&agent, "music-5f0c1b0e-2f0e");
    assert_eq!(found["Service"], "music");
    assert_eq!((&found["Address"], &found["Port"]), (&"10.1.2.3".into(), &4533.into()));
    assert_eq!(found["Tags"], serde_json::json!(["primary"]));
    assert_eq!(found["Meta"]["zone"], "a");
}

/// What is not ready is not found, and what was found under a probe that takes its time was ready.
#[test]
fn unready_command_is_not_registered() {
    let Some(agent) = Agent::start() else { return };
    let catalog = format!("consul://{}", agent.addr());
    let ready = ["--ready", "exec:echo > tried; test -e ready"];
    let supervisor = running("a", &node::always(&catalog, &ready), &shell("exec sleep 1000"), |_| ());
    wait::until("it was asked", PATIENCE, || supervisor.dir().join("tried").exists());
    assert_eq!(crate::run::found::registered(&agent), [""; 0]);
    is(&supervisor, "state", "starting");
    fs::write(supervisor.dir().join("ready"), "").unwrap();
    crate::run::found::found_at(&agent, 4533);
}

/// A pipe at this path that is never read.
fn pipe(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Opened for reading as well, so that opening it for writing does not block.
    File::from(open(path, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).unwrap())
}

/// Not a byte fits into it any more.
fn fill(mut pipe: &File) {
    for chunk in [&[b'.'; 4_096][..], b"."] {
        while pipe.write(chunk).is_ok() {}
    }
}

/// Its stderr is that of the command, and its reader may stall.
#[test]
fn unread_log_blocks_nothing() {
    let Some(mount) = Mount::start() else { return };
    let (beats, mut stuck) = (Beats::new(), None);
    let supervisor = Process::spawn("a", |dir| {
        stuck = Some(pipe(&dir.join("pipe")));
        let leader = format!("litefs:{}", mount.dir().display());
        let mut command = Command::new("sh");
        command.current_dir(dir).args(["-c", r#"exec "$@" 2> pipe"#, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_tenure")).arg("run");
        command.args(looking_at(&leader, &["--status-file", "status.json", "--"]));
        command.args(beats::command());
        beats.arm(&mut command, "a");
        command
    });
    let supervisor = supervisor.unwrap();
    let first = beats.begins("a", 1);
    fill(stuck.as_ref().unwrap());
    mount.follow();
    dies(&first);
    is(&supervisor, "state", "waiting");
    mount.unfollow();
    let second = beats.begins("a", 2);
    assert_eq!(supervisor.terminate(PATIENCE).unwrap().code(), Some(143));
    dies(&second);
}
