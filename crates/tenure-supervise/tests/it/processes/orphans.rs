//! Orphans of a supervisor that is process 1 of a pid namespace, or a subreaper.

use std::process::Command;

use rustix::process::Signal;
use tenure_testkit::wait;

use crate::processes::support::{FIXTURE, LONG, Supervisor, children_of, is_alive, supervise};

/// Leaves a hundred orphans behind, which exit immediately. Then works until it gets TERM.
const SCRIPT: &str = "i=0; while [ $i -lt 100 ]; do sh -c 'sleep 0.01 & exit 0'; i=$((i + 1)); done; \
    trap 'exit 3' TERM; echo up > up; while :; do sleep 0.02; done";

/// Waits until all orphans are reaped: only the child and its watchdog are left.
#[track_caller]
fn reaps_all(supervisor: &Supervisor) {
    supervisor.file("up");
    wait::until("only the child and its watchdog are left", LONG, || {
        children_of(supervisor.pid()).len() == 2
    });
    assert!(children_of(supervisor.pid()).iter().all(|(_, state, _)| *state != 'Z'));
}

#[test]
fn subreaper_reaps_orphans_and_keeps_the_exit_code() {
    let mut supervisor = supervise(&[], SCRIPT);
    supervisor.say("primary");
    supervisor.running();
    reaps_all(&supervisor);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ended(), Some(3));
}

/// A supervisor that is process 1 of a new pid namespace. `None`, with a message, where namespaces are not available.
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
fn process_1(settings: &[&str], script: &str) -> Option<Supervisor> {
    let unshare = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child", program]);
        command
    };
    if !unshare("true").status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: cannot create a pid namespace (needs root and `unshare`)");
        return None;
    }
    let mut supervisor = Supervisor::start(unshare(FIXTURE), settings, script);
    supervisor.say("primary");
    supervisor.running();
    let unshared = supervisor.pid();
    let first = children_of(unshared).into_iter().map(|(pid, ..)| pid).next();
    supervisor.is_really(first.expect("unshare has a child"));
    Some(supervisor)
}

#[test]
fn pid1_forwards_signals_and_reaps_orphans() {
    let Some(mut supervisor) = process_1(&[], SCRIPT) else {
        return;
    };
    reaps_all(&supervisor);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ended(), Some(3));
}

#[test]
fn pid1_kills_everything_of_a_demoted_child() {
    let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &); echo up > up; \
        while :; do sleep 1; done";
    let Some(mut supervisor) = process_1(&["--grace", "100ms"], script) else {
        return;
    };
    supervisor.file("up");
    // The child, its watchdog, and the daemon it left behind.
    wait::until("the daemon is adopted", LONG, || {
        children_of(supervisor.pid()).len() == 3
    });
    let all = children_of(supervisor.pid());
    supervisor.say("replica");
    supervisor.hear("\"state\":\"waiting\"");
    assert!(all.iter().all(|(pid, ..)| !is_alive(*pid)), "{all:?}");
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ended(), Some(143));
}

#[test]
fn pid1_propagates_exit_codes() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let script = format!("while [ ! -e go ]; do sleep 0.02; done; {script}");
        let Some(mut supervisor) = process_1(&[], &script) else {
            return;
        };
        std::fs::write(supervisor.dir.path().join("go"), "").unwrap();
        assert_eq!(supervisor.ended(), Some(code), "{script}");
    }
}
