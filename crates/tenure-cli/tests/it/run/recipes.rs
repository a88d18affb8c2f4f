//! The guides and the recipes in `deploy` say what is: their commands are run with the real binary.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tenure_testkit::consul::Agent;
use tenure_testkit::port::Port;
use tenure_testkit::{Process, have, wait};

use crate::run::PATIENCE;
use crate::run::found::{found_at, registered, service};
use crate::run::mount::Mount;
use crate::support::{Daemon, said, tenure};

const LOCK: &str = include_str!("../../../../../docs/guides/lock-command.md");
const SUPERVISOR: &str = include_str!("../../../../../docs/guides/supervisor.md");
const JOB: &str = include_str!("../../../../../deploy/nomad/music.nomad.hcl");
const LITEFS: &str = include_str!("../../../../../deploy/nomad/litefs.yml");
const UNIT: &str = include_str!("../../../../../deploy/systemd/tenure-run@.service");
const CONTAINER: &str = include_str!("../../../../../deploy/container/Containerfile.run");

/// The binary, as the recipes install it.
const INSTALLED: &str = "/usr/local/bin/tenure";

/// The blocks that begin with this fence.
fn blocks(text: &'static str, fence: &str) -> Vec<&'static str> {
    let begin = format!("```{fence}\n");
    let parts = text.split(&begin).skip(1);
    parts.map(|part| part.split_once("```").unwrap().0).collect()
}

/// What is between the first of these and the next of those.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin:?}"));
    rest.split_once(end).unwrap().0
}

/// A shell with the binary in its path, in a directory of its own, without variables of the machine.
fn shell(script: &str, set: impl FnOnce(&mut Command)) -> Process {
    let binary = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    Process::spawn("a shell", |dir| {
        let mut clean = Command::new("sh");
        for (name, _) in tenure().get_envs() {
            clean.env_remove(name);
        }
        clean.args(["-c", script]).env("PATH", path).current_dir(dir);
        set(&mut clean);
        clean
    })
    .unwrap()
}

/// Each block is run when the one before has shown what it says.
#[test]
fn tour_of_the_guide_to_locked_commands_shows_what_it_says() {
    let tour = blocks(LOCK, "sh tour");
    assert_eq!(tour.len(), 7, "the guide has another tour than this test");
    let port = Port::reserve();
    let mut script = String::new();
    for (nth, block) in tour.iter().enumerate() {
        if nth == 1 {
            script.push_str(&format!("export TENURE_STORE=http://{}\n", port.addr()));
        }
        script.push_str(&format!("until [ -e go-{nth} ]; do sleep 0.02; done\n{block}"));
    }
    script.push_str("echo; echo the end\nwait\n");
    let reader = shell(&script, |command| {
        command.env("TENURE_LISTEN", port.addr().to_string());
    });
    let go_on = |nth: usize, shown: &str| {
        fs::write(reader.dir().join(format!("go-{nth}")), "").unwrap();
        wait::until(&format!("it shows {shown:?}"), PATIENCE, || {
            reader.log().contains(shown)
        });
    };
    go_on(0, &format!("http://{}", port.addr()));
    go_on(1, "grant leases immediately");
    go_on(2, "node-1 works with the token");
    let before = reader.log().len();
    fs::write(reader.dir().join("go-3"), "").unwrap();
    wait::until("the table says who has it", PATIENCE, || {
        let log = reader.log();
        let table = log[before..].lines().find(|line| line.starts_with("report"));
        table.is_some_and(|line| line.contains("node-1"))
    });
    go_on(4, "node-2 works with the token");
    let log = reader.log();
    let token = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let works = || log.lines().filter(|line| line.contains(" works with the token "));
    let (one, two): (Vec<_>, Vec<_>) = works().partition(|line| line.starts_with("node-1"));
    assert!(token(one[0]) < token(two[0]));
    assert!(works().is_sorted(), "node-1 works no more after node-2 has begun");
    fs::write(reader.dir().join("go-5"), "").unwrap();
    go_on(6, "the end");
    let told = reader.log();
    for word in ["node-1", "node-2", "lapsed"] {
        assert!(
            told.split("over").last().unwrap().contains(word) || told.contains(word),
            "{told}"
        );
    }
}

/// The settings of LiteFS and Nomad make one service, with the address from Nomad.
#[test]
fn the_command_of_litefs_under_nomad_registers_the_primary() {
    let (Some(agent), Some(mount)) = (Agent::start(), Mount::start()) else {
        return;
    };
    let (port, status, home) = (Port::reserve(), Port::reserve(), TempDir::new().unwrap());
    // The application.
    let _listener = TcpListener::bind(port.addr()).unwrap();
    let command = between(LITEFS, "- cmd: \"", "\"\n");
    for part in [
        "litefs:/litefs ",
        "/var/lib/music/tenure ",
        "127.0.0.1:7718 ",
        "/usr/local/bin/music-server",
    ] {
        assert!(command.contains(part), "{part} in {command}");
    }
    let command = command
        .replace("litefs:/litefs", &format!("litefs:{}", mount.dir().display()))
        .replace("/var/lib/music", home.path().to_str().unwrap())
        .replace("127.0.0.1:7718", &status.addr().to_string())
        .replace("/usr/local/bin/music-server", "sleep 1000");
    let node = shell(&format!("exec {command}"), |shell| {
        shell.env("CONSUL_HTTP_ADDR", agent.addr().to_string());
        shell.env("NOMAD_IP_http", "127.0.0.1").env("NOMAD_ALLOC_ID", "a1");
        shell.env("NOMAD_PORT_http", port.number().to_string());
    });
    found_at(&agent, port.number().into());
    assert_eq!(service(&agent, "music-a1")["Address"], "127.0.0.1");
    assert_eq!(tenure_testkit::http::get(status.addr(), "/").unwrap().0, 200);
    assert!(home.path().join("tenure").is_dir(), "the journal is kept");
    assert_eq!(node.terminate(PATIENCE).unwrap().code(), Some(143));
    assert_eq!(registered(&agent), [""; 0]);
}

#[test]
fn the_job_has_what_its_litefs_asks_for() {
    for (asked, given) in [
        ("NOMAD_ADDR_litefs", "port \"litefs\""),
        ("--label http", "port \"http\""),
        ("/var/lib/music/litefs", "destination = \"/var/lib/music\""),
        (":20202", "static = 20202"),
    ] {
        assert!(LITEFS.contains(asked) && JOB.contains(given), "{asked}: {given}");
    }
    let image = between(JOB, "image        = \"", "\"");
    assert!(CONTAINER.contains(&format!("-t {image} .")), "no recipe makes {image}");
    // Nomad would register the replicas as well.
    let plain = JOB.lines().filter(|line| !line.trim_start().starts_with('#'));
    assert!(plain.clone().all(|line| !line.trim_start().starts_with("service {")));
    let (open, close) = (JOB.matches('{').count(), JOB.matches('}').count());
    assert_eq!(open, close, "the braces of the job");
}

/// The command of the guide waits, since its mount does not exist.
#[test]
fn the_command_of_the_guide_to_the_supervisor_is_one() {
    let home = TempDir::new().unwrap();
    let [command] = blocks(SUPERVISOR, "sh")[..] else {
        panic!("the guide has other commands than this test");
    };
    let command = command
        .replace("/litefs", "/no-such-mount")
        .replace("/var/lib/music", home.path().to_str().unwrap());
    let node = shell(&format!("exec {command}"), |_| ());
    said(&node, "leadership: uncertain");
    assert_eq!(node.terminate(PATIENCE).unwrap().code(), Some(143), "{}", node.log());
}

/// What systemd makes of the unit for one instance, with another command.
fn exec_start(home: &Path, options: &str, command: &str) -> String {
    between(UNIT, "ExecStart=", "\n")
        .replace(INSTALLED, env!("CARGO_BIN_EXE_tenure"))
        .replace("%i", "report")
        .replace("%H", "host-1")
        .replace("/run/", &format!("{}/", home.display()))
        .replace("/var/lib/", &format!("{}/lib-", home.display()))
        .replace("$OPTIONS", options)
        .replace("$COMMAND", command)
}

#[test]
fn the_unit_runs_its_command_by_a_lease() {
    let (daemon, home) = (Daemon::start(&["--store", "memory:"]), TempDir::new().unwrap());
    fs::create_dir(home.path().join("tenure-run-report")).unwrap();
    let line = exec_start(home.path(), "", "sh -c 'echo $TENURE_FENCING_TOKEN; exit 5'");
    let node = shell(&format!("exec {line}"), |shell| {
        shell.env("TENURE_STORE", daemon.url());
    });
    assert_eq!(node.wait(PATIENCE).unwrap().code(), Some(5), "{}", node.log());
    let status = fs::read_to_string(home.path().join("tenure-run-report/status.json")).unwrap();
    assert!(status.contains("\"over\""), "{status}");
    let Some(agent) = Agent::start() else { return };
    let options = between(UNIT, "OPTIONS=", "\n").replace("--ready tcp", "--ready delay:1ms");
    let node = shell(
        &format!("exec {}", exec_start(home.path(), &options, "sleep 1000")),
        |shell| {
            shell.env("TENURE_STORE", daemon.url());
            shell.env("TENURE_CATALOG", format!("consul://{}", agent.addr()));
        },
    );
    wait::until("it is registered", PATIENCE, || registered(&agent).len() == 1);
    assert_eq!(node.terminate(PATIENCE).unwrap().code(), Some(143));
}

#[test]
fn systemd_takes_the_unit() {
    let Some(analyze) = have("systemd-analyze").or_skip() else {
        return;
    };
    let home = TempDir::new().unwrap();
    let file = home.path().join("tenure-run@report.service");
    fs::write(&file, UNIT.replace(INSTALLED, env!("CARGO_BIN_EXE_tenure"))).unwrap();
    let verify = Command::new(analyze)
        .arg("verify")
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    assert!(!said.contains("tenure-run@"), "{said}");
}

#[test]
fn the_entrypoint_of_the_image_runs_its_command_by_a_lease() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let stage = between(CONTAINER, "AS only-one", "AS litefs-binary");
    let words = |instruction: &str| -> Vec<String> {
        let list = format!("[{}]", between(stage, &format!("\n{instruction} ["), "]\n"));
        serde_json::from_str(&list).unwrap()
    };
    let (entrypoint, command) = (words("ENTRYPOINT"), words("CMD"));
    assert_eq!(entrypoint[0], INSTALLED);
    assert_eq!(entrypoint.last().unwrap(), "--");
    assert_eq!(command[0], "/usr/local/bin/report");
    let port = Port::reserve();
    let args = entrypoint[1..]
        .iter()
        .map(|word| word.replace("127.0.0.1:7718", &port.addr().to_string()));
    let mut container = tenure();
    container
        .args(args)
        .args(["sh", "-c", "exit 4"])
        .env("TENURE_STORE", daemon.url());
    assert_eq!(crate::support::run(container).code, Some(4));
}
