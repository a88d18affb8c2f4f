//! What a terminal shows: colours, progress, questions.

use std::path::Path;
use std::process::{Command, Stdio};

use tenure_testkit::have;
use tenure_testkit::valkey::{Flavour, Server};

use crate::support::{Daemon, Ran, run, tenure};

/// Runs a command line of the binary on a terminal of its own, with an answer typed.
#[track_caller]
fn on_terminal(script: &Path, store: &str, args: &str, typed: &str) -> String {
    let line = format!("{} {args}", env!("CARGO_BIN_EXE_tenure"));
    let mut command = Command::new(script);
    for (name, _) in tenure().get_envs() {
        command.env_remove(name);
    }
    command
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .env("TENURE_STORE", store);
    command.args(["-qec", &line, "/dev/null"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("script can be started");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), typed.as_bytes()).expect("script reads");
    let done = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn tables_are_coloured_when_asked_for() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    daemon.join("g", "gw-1", 60_000);
    let members = |set: &dyn Fn(&mut Command)| {
        let mut command = daemon.command(&["members", "--group", "g"]);
        command.env_remove("NO_COLOR");
        set(&mut command);
        run(command).out
    };
    assert!(!members(&|_| {}).contains('\x1b'), "a pipe is no terminal");
    let forced = members(&|command| _ = command.env("CLICOLOR_FORCE", "1"));
    assert!(
        forced.starts_with("\x1b[1mMEMBER  ") && forced.contains("\x1b[32myes\x1b[0m"),
        "{forced:?}"
    );
    assert_eq!(members(&|command| _ = command.args(["--color", "always"])), forced);
    let plain = members(&|command| _ = command.args(["--color=never"]).env("CLICOLOR_FORCE", "1"));
    assert!(!plain.contains('\x1b'), "{plain:?}");
    let doctor: Ran = run({
        let mut command = daemon.command(&["doctor"]);
        command.env("CLICOLOR_FORCE", "1");
        command
    });
    assert!(doctor.out.contains("\x1b[32mok\x1b[0m"), "{:?}", doctor.out);
}

#[test]
fn a_terminal_shows_colours_and_asks_before_an_expulsion() {
    let Some(script) = have("script").or_skip() else { return };
    let daemon = Daemon::start(&["--store", "memory:"]);
    let tenure = daemon.join("g", "gw-1", 60_000);
    let table = on_terminal(&script, &daemon.url(), "members --group g", "");
    assert!(table.contains("\x1b[32myes\x1b[0m"), "{table:?}");
    let refused = on_terminal(&script, &daemon.url(), "expel gw-1 --group g", "n\n");
    let question = format!("Expel {tenure} from group \"g\" at {}? [y/N]", daemon.url());
    assert!(
        refused.contains(&question) && refused.contains("nothing was changed"),
        "{refused:?}"
    );
    let done = on_terminal(&script, &daemon.url(), "expel gw-1 --group g", "y\n");
    assert!(done.contains(&format!("expelled {tenure}")), "{done:?}");
}

#[test]
fn long_work_shows_its_progress_on_a_terminal_only() {
    let Some(script) = have("script").or_skip() else { return };
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    server.cli(&["HSET", "devices", "cam-1", "gone"]).expect("it is up");
    let args = "adopt registry --hash devices --heartbeat alive:{id} --settle 3s";
    let store = format!("valkey://{}", server.addr());
    let shown = on_terminal(&script, &store, args, "");
    assert!(
        shown.contains("\r\x1b[K1 entry read, 0 evicted, second look in "),
        "{shown:?}"
    );
    assert!(shown.contains("1 entry evicted"), "{shown:?}");
    server.cli(&["HSET", "devices", "cam-1", "gone"]).expect("it is up");
    let mut command = tenure();
    command.args(args.split(' ')).env("TENURE_STORE", &store);
    let ran = run(command);
    assert!(
        ran.code == Some(0) && !ran.err.contains("\x1b") && !ran.err.contains("read, 0 evicted"),
        "{}",
        ran.err
    );
}
