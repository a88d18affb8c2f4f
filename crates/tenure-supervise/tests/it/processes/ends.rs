//! How it ends: by the child, by a signal, by demotion.

use rustix::process::Signal;
use tenure_testkit::port::Port;
use tenure_testkit::wait;

use crate::processes::support::{LONG, dies, is_alive, stranger, supervise};

#[test]
fn the_exit_code_of_the_child_is_passed_on() {
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
fn nothing_runs_without_evidence_and_a_waiting_supervisor_ends_at_once() {
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
fn a_shutdown_leaves_the_catalog_first_and_ends_with_what_the_child_makes_of_it() {
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
fn a_deaf_child_is_killed_and_the_second_signal_goes_fast() {
    // With time to see that it is dead before it has to end itself.
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
fn other_signals_reach_the_child() {
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
fn a_demoted_child_is_gone_with_all_it_started_and_starts_again_when_promoted() {
    let reserved = Port::reserve();
    let port = reserved.number();
    // A daemon in a session of its own, which nothing but KILL ends, holds the port; so does nobody else start.
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

/// The child does as it is told; what it has left in a session of its own does not.
#[test]
fn what_a_child_leaves_behind_is_gone_before_anything_else_happens() {
    let script = "(setsid sh -c \"trap '' TERM; echo \\$\\$ > daemon; while :; do sleep 1; done\" &); exec sleep 1000";
    let mut supervisor = supervise(&["--grace", "300ms"], script);
    supervisor.say("primary");
    supervisor.running();
    let daemon = supervisor.pid_in("daemon");
    supervisor.say("replica");
    supervisor.hear("\"state\":\"waiting\"");
    assert!(!is_alive(daemon));
    // A child that ends by itself, too.
    std::fs::remove_file(supervisor.dir.path().join("daemon")).unwrap();
    supervisor.say("primary");
    let child = supervisor.running();
    let daemon = supervisor.pid_in("daemon");
    rustix::process::kill_process(child, Signal::KILL).unwrap();
    assert_eq!(supervisor.ended(), Some(137));
    assert!(!is_alive(daemon));
}

/// In a session of its own, and a child of the child for as long as that lives.
const WORKER: &str =
    "setsid sh -c \"trap 'echo told > told; exit 0' TERM; echo up > up; while :; do sleep 0.02; done\" &";

#[test]
fn what_becomes_an_orphan_at_the_end_of_the_child_is_asked_to_end_before_it_is_killed() {
    // It takes a moment to end, so that the worker is nobody's orphan yet when it is told to.
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

/// The child is buried and its group is empty, but not all that it has started has ended: by then its number is free.
#[test]
fn whoever_gets_the_number_of_the_child_is_left_alone() {
    let daemon = "(setsid sh -c \"trap '' TERM; echo \\$\\$ > daemon; while :; do sleep 1; done\" &);";
    let mut supervisor = supervise(&[], &format!("{WORKER} {daemon} exec sleep 1000"));
    supervisor.say("primary");
    let child = supervisor.running();
    supervisor.file("up");
    let daemon = supervisor.pid_in("daemon");
    supervisor.say("replica");
    // The worker is told after a look at the group.
    supervisor.file("told");
    let Some(mut stranger) = stranger(child) else { return };
    assert!(is_alive(daemon), "there was no time for it");
    dies("the daemon", daemon);
    supervisor.hear("\"state\":\"waiting\"");
    let spared = stranger.try_wait().unwrap().is_none();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(spared, "its number was that of the child");
}

#[test]
fn a_supervisor_that_panics_stops_its_child_with_all_that_it_started() {
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
fn a_child_that_fails_is_started_again_while_primary() {
    let script = "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; [ $n -ge 2 ] && exec sleep 1000; exit 5";
    let mut supervisor = supervise(&["--restart", "20ms"], script);
    supervisor.say("primary");
    wait::until("it was started three times", LONG, || supervisor.file("n") == "3");
    supervisor.hear("\"runs\":3");
}
