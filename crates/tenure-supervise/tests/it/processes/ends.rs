//! Ends by the child, by a signal, by demotion.

use rustix::process::Signal;
use tenure_testkit::port::Port;
use tenure_testkit::wait;

use crate::processes::support::{LONG, dies, is_alive, stranger, supervise};

#[test]
fn exit_code_of_the_child_is_propagated() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("exec /does/not/exist", 127),
    ] {
        let mut supervisor = supervise(&[], script);
        supervisor.say("primary");
        assert_eq!(supervisor.ended(), Some(code), "{script}");
        assert_eq!(supervisor.wants().last(), Some(&"want false"), "{script}");
    }
}

#[test]
fn waiting_supervisor_runs_nothing_and_stops_immediately() {
    let mut supervisor = supervise(&[], "touch ran");
    supervisor.say("what?");
    supervisor.hear("what?");
    supervisor.say("replica");
    supervisor.hear("\"leadership\":\"replica\"");
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ended(), Some(143));
    assert!(!supervisor.dir.path().join("ran").exists());
    assert_eq!(supervisor.wants(), ["want false"]);
}

#[test]
fn shutdown_deregisters_first_and_keeps_the_exit_code() {
    let script = "trap 'echo told > told; exit 7' TERM; echo up > up; while :; do sleep 0.02; done";
    let mut supervisor = supervise(&["--drain", "50ms"], script);
    supervisor.say("primary");
    supervisor.running();
    supervisor.file("up");
    supervisor.signal(Signal::INT);
    supervisor.hear("want false");
    assert_eq!(supervisor.ended(), Some(7));
    assert_eq!(supervisor.file("told"), "told");
    assert_eq!(supervisor.wants(), ["want true", "want false"]);
    let place = |part: &str| supervisor.heard.iter().position(|line| line.contains(part)).unwrap();
    assert!(place("want false") < place("draining") && place("draining") < place("stopping"));
}

#[test]
fn unresponsive_child_is_killed_and_second_signal_is_fast() {
    // With enough time to see the child dead before the supervisor must exit.
    let mut supervisor = supervise(
        &["--silent-catalog", "yes", "--budget", "60s", "--reserve", "2s"],
        "trap '' TERM INT; echo up > up; while :; do sleep 1; done",
    );
    supervisor.say("primary");
    let child = supervisor.running();
    supervisor.file("up");
    supervisor.signal(Signal::TERM);
    supervisor.hear("draining");
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ended(), Some(137));
    assert!(!is_alive(child));
}

#[test]
fn other_signals_are_forwarded_to_the_child() {
    let script = "trap 'echo usr1 > usr1' USR1; trap 'echo hup > hup' HUP; echo up > up; while :; do sleep 0.02; done";
    let mut supervisor = supervise(&[], script);
    supervisor.say("primary");
    supervisor.running();
    supervisor.file("up");
    supervisor.signal(Signal::USR1);
    supervisor.file("usr1");
    supervisor.signal(Signal::HUP);
    supervisor.file("hup");
}

#[test]
fn demotion_kills_everything_and_promotion_restarts() {
    let reserved = Port::reserve();
    let port = reserved.number();
    // A daemon in its own session, which only KILL ends, holds the port. So a restart shows that it is gone.
    let script = format!(
        "trap '' TERM; (setsid \"$FIXTURE\" hold {port} & echo $! > daemon); echo $$ > child; while :; do sleep 1; done"
    );
    let mut supervisor = supervise(&["--grace", "100ms", "--tcp", &format!("127.0.0.1:{port}")], &script);
    supervisor.say("primary");
    let child = supervisor.running();
    let daemon = supervisor.pid_in("daemon");
    supervisor.say("replica");
    supervisor.hear("\"state\":\"waiting\"");
    assert!(!is_alive(child) && !is_alive(daemon));
    assert!(
        std::net::TcpListener::bind(("127.0.0.1", port)).is_ok(),
        "the port is taken"
    );
    assert_eq!(supervisor.wants(), ["want true", "want false"]);
    supervisor.say("primary");
    assert_ne!(supervisor.running(), child);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ended(), Some(137));
    dies("the second daemon", supervisor.pid_in("daemon"));
}

/// The child obeys TERM; the daemon it left in its own session does not.
#[test]
fn leftover_processes_are_killed_before_the_next_step() {
    let script = "(setsid sh -c \"trap '' TERM; echo \\$\\$ > daemon; while :; do sleep 1; done\" &); exec sleep 1000";
    let mut supervisor = supervise(&["--grace", "300ms"], script);
    supervisor.say("primary");
    supervisor.running();
    let daemon = supervisor.pid_in("daemon");
    supervisor.say("replica");
    supervisor.hear("\"state\":\"waiting\"");
    assert!(!is_alive(daemon));
    // Also for a child that exits on its own.
    std::fs::remove_file(supervisor.dir.path().join("daemon")).unwrap();
    supervisor.say("primary");
    let child = supervisor.running();
    let daemon = supervisor.pid_in("daemon");
    rustix::process::kill_process(child, Signal::KILL).unwrap();
    assert_eq!(supervisor.ended(), Some(137));
    assert!(!is_alive(daemon));
}

/// In its own session, and a child of the child while that lives.
const WORKER: &str =
    "setsid sh -c \"trap 'echo told > told; exit 0' TERM; echo up > up; while :; do sleep 0.02; done\" &";

#[test]
fn late_orphan_gets_term_before_kill() {
    // The child exits slowly, so the worker is not an orphan yet when TERM is sent.
    let script = format!("{WORKER} trap 'sleep 0.3; exit 3' TERM; echo trap > trap; while :; do sleep 0.02; done");
    let mut supervisor = supervise(&[], &script);
    supervisor.say("primary");
    supervisor.running();
    supervisor.file("up");
    supervisor.file("trap");
    supervisor.say("replica");
    supervisor.hear("\"state\":\"waiting\"");
    assert_eq!(supervisor.file("told"), "told");
}

/// The child is reaped and its group is empty, but a stray is alive: the child's pid is free for reuse.
#[test]
fn process_that_reuses_the_childs_pid_is_not_killed() {
    let daemon = "(setsid sh -c \"trap '' TERM; echo \\$\\$ > daemon; while :; do sleep 1; done\" &);";
    let mut supervisor = supervise(&[], &format!("{WORKER} {daemon} exec sleep 1000"));
    supervisor.say("primary");
    let child = supervisor.running();
    supervisor.file("up");
    let daemon = supervisor.pid_in("daemon");
    supervisor.say("replica");
    // The worker gets TERM after a check of the group.
    supervisor.file("told");
    let Some(mut stranger) = stranger(child) else { return };
    assert!(is_alive(daemon), "the daemon ended too early");
    dies("the daemon", daemon);
    supervisor.hear("\"state\":\"waiting\"");
    let spared = stranger.try_wait().unwrap().is_none();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(spared, "the process had the child's pid");
}

#[test]
fn panicking_supervisor_kills_everything_of_the_child() {
    let script = "trap '' TERM; (setsid sh -c \"trap '' TERM; echo \\$\\$ > daemon; while :; do sleep 1; done\" &); \
        sleep 1000 & echo $! > grandchild; while :; do sleep 1; done";
    let mut supervisor = supervise(&["--grace", "100ms"], script);
    supervisor.say("primary");
    let child = supervisor.running();
    let (daemon, grandchild) = (supervisor.pid_in("daemon"), supervisor.pid_in("grandchild"));
    supervisor.say("panic");
    assert_eq!(supervisor.ended(), Some(1));
    assert!(!is_alive(child) && !is_alive(grandchild) && !is_alive(daemon));
    assert_eq!(supervisor.wants(), ["want true", "want false"]);
}

#[test]
fn failing_child_is_restarted_while_primary() {
    let script = "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; [ $n -ge 2 ] && exec sleep 1000; exit 5";
    let mut supervisor = supervise(&["--restart", "20ms"], script);
    supervisor.say("primary");
    wait::until("it was started three times", LONG, || supervisor.file("n") == "3");
    supervisor.hear("\"runs\":3");
}
