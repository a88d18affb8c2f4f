//! Processes that somebody left behind, as process 1 of a namespace and as a subreaper.

use std::process::Command;

use rustix::process::Signal;
use tenure_testkit::wait;

use crate::processes::support::{FIXTURE, LONG, Supervisor, children_of, is_alive, supervise};

/// Leaves a hundred orphans behind, which end at once; then works until it is told to end.
const SCRIPT: &str = "i=0; while [ $i -lt 100 ]; do sh -c 'sleep 0.01 & exit 0'; i=$((i + 1)); done; \
    trap 'exit 3' TERM; echo up > up; while :; do sleep 0.02; done";

/// Waits until all orphans are buried: nothing but the child and its keeper is left.
#[track_caller]
fn buries_all(supervisor: &Supervisor) {
    supervisor.file("up");
    wait::until("only the child and its keeper are left", LONG, || {
        children_of(supervisor.pid()).len() == 2
    });
    assert!(children_of(supervisor.pid()).iter().all(|(_, state, _)| *state != 'Z'));
}

#[test]
fn a_subreaper_buries_a_hundred_orphans_and_keeps_the_childs_exit_code() {
    let mut supervisor = supervise(&[], SCRIPT);
    supervisor.say("primary");
    supervisor.running();
    buries_all(&supervisor);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ended(), Some(3));
}

/// A supervisor that is process 1 of a new namespace. `None`, loudly, where there can be none.
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
fn process_1(settings: &[&str], script: &str) -> Option<Supervisor> {
    let unshare = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child", program]);
        command
    };
    if !unshare("true").status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no namespace of processes can be made here (it takes root, and `unshare`)");
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
fn process_1_passes_signals_on_buries_a_hundred_orphans_and_keeps_the_childs_exit_code() {
    let Some(mut supervisor) = process_1(&[], SCRIPT) else {
        return;
    };
    buries_all(&supervisor);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ended(), Some(3));
}

#[test]
fn process_1_leaves_nothing_of_a_demoted_child() {
    let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &); echo up > up; \
        while :; do sleep 1; done";
    let Some(mut supervisor) = process_1(&["--grace", "100ms"], script) else {
        return;
    };
    supervisor.file("up");
    // The child, its keeper, and what it has left behind.
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
fn process_1_passes_every_kind_of_exit_code_on() {
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
