//! The child dies with the supervisor and at the deadline of its evidence.

use rustix::process::{Signal, kill_process};

use crate::processes::support::{children_of, dies, is_alive, supervise};

/// A deadline that passes during the test, but not before the test has seen the child run.
const SOON: &str = "primary 8000";

/// A child of two processes that never exit.
const SCRIPT: &str = "sleep 1000 & echo $! > grandchild; trap '' TERM; while :; do sleep 1; done";

#[test]
fn killed_supervisor_ends_the_childs_group() {
    let mut supervisor = supervise(&[], SCRIPT);
    supervisor.say("primary");
    let child = supervisor.running();
    let grandchild = supervisor.pid_in("grandchild");
    assert!(is_alive(child) && is_alive(grandchild));
    supervisor.signal(Signal::KILL);
    dies("the child", child);
    dies("the grandchild", grandchild);
}

/// By the kernel's parent-death signal alone.
#[test]
fn killed_supervisor_ends_the_child_without_the_watchdog() {
    let mut supervisor = supervise(&[], "exec sleep 1000");
    supervisor.say("primary");
    let child = supervisor.running();
    let all = children_of(supervisor.pid());
    let watchdog = all.into_iter().map(|(pid, ..)| pid).find(|pid| *pid != child).unwrap();
    kill_process(watchdog, Signal::KILL).unwrap();
    dies("the watchdog", watchdog);
    assert!(is_alive(child));
    supervisor.signal(Signal::KILL);
    dies("the child", child);
}

/// The daemon left its group and parent, and is an orphan of another process once the supervisor is killed.
#[test]
fn killed_supervisor_ends_a_daemon_in_its_own_session() {
    let daemon = "(setsid sh -c \"trap '' TERM; echo \\$\\$ > daemon; while :; do sleep 1; done\" &); exec sleep 1000";
    for signal in [Signal::KILL, Signal::STOP] {
        let mut supervisor = supervise(&["--grace", "100ms"], daemon);
        supervisor.say(SOON);
        let child = supervisor.running();
        let daemon = supervisor.pid_in("daemon");
        assert!(is_alive(child) && is_alive(daemon));
        supervisor.signal(signal);
        dies("the child", child);
        dies("the daemon", daemon);
    }
}

#[test]
fn child_is_killed_at_its_deadline() {
    let mut supervisor = supervise(&["--grace", "100ms"], SCRIPT);
    supervisor.say(SOON);
    let child = supervisor.running();
    let grandchild = supervisor.pid_in("grandchild");
    supervisor.hear("\"state\":\"backing_off\"");
    assert!(!is_alive(child) && !is_alive(grandchild));
    supervisor.say("primary 60000");
    assert_ne!(supervisor.running(), child);
}

#[test]
fn child_of_a_frozen_supervisor_is_killed_at_the_deadline() {
    let mut supervisor = supervise(&["--grace", "100ms"], SCRIPT);
    supervisor.say(SOON);
    let child = supervisor.running();
    let grandchild = supervisor.pid_in("grandchild");
    supervisor.signal(Signal::STOP);
    dies("the child", child);
    dies("the grandchild", grandchild);
    // It did not crash, so it starts the child again on new evidence.
    supervisor.signal(Signal::CONT);
    supervisor.hear("\"state\":\"backing_off\"");
    supervisor.say("primary 60000");
    supervisor.running();
}
