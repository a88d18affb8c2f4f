//! The child's life is tied to the supervisor's, and to the deadline of its evidence.

use rustix::process::{Signal, kill_process};

use crate::processes::support::{children_of, dies, is_alive, supervise};

/// A deadline that passes while a test waits for that, and not before it has looked at what runs until then.
const SOON: &str = "primary 8000";

/// A child in two processes, neither of which ends by itself.
const SCRIPT: &str = "sleep 1000 & echo $! > grandchild; trap '' TERM; while :; do sleep 1; done";

#[test]
fn a_killed_supervisor_takes_the_child_and_its_group_along() {
    let mut supervisor = supervise(&[], SCRIPT);
    supervisor.say("primary");
    let child = supervisor.running();
    let grandchild = supervisor.pid_in("grandchild");
    assert!(is_alive(child) && is_alive(grandchild));
    supervisor.signal(Signal::KILL);
    dies("the child", child);
    dies("the grandchild", grandchild);
}

/// The kernel does it, too.
#[test]
fn a_killed_supervisor_takes_the_child_along_without_its_keeper() {
    let mut supervisor = supervise(&[], "exec sleep 1000");
    supervisor.say("primary");
    let child = supervisor.running();
    let all = children_of(supervisor.pid());
    let keeper = all.into_iter().map(|(pid, ..)| pid).find(|pid| *pid != child).unwrap();
    kill_process(keeper, Signal::KILL).unwrap();
    dies("the keeper", keeper);
    assert!(is_alive(child));
    supervisor.signal(Signal::KILL);
    dies("the child", child);
}

/// A daemon leaves the group and the parent, and is nobody's child here when the supervisor is killed.
#[test]
fn a_killed_supervisor_takes_a_daemon_in_a_session_of_its_own_along() {
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
fn a_child_is_gone_when_its_deadline_passes() {
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
fn a_frozen_supervisor_does_not_keep_its_child_alive_past_the_deadline() {
    let mut supervisor = supervise(&["--grace", "100ms"], SCRIPT);
    supervisor.say(SOON);
    let child = supervisor.running();
    let grandchild = supervisor.pid_in("grandchild");
    supervisor.signal(Signal::STOP);
    dies("the child", child);
    dies("the grandchild", grandchild);
    // It has not crashed: it starts again when there is new evidence.
    supervisor.signal(Signal::CONT);
    supervisor.hear("\"state\":\"backing_off\"");
    supervisor.say("primary 60000");
    supervisor.running();
}
