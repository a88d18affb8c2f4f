//! A large fleet that comes and goes writes few lines.

use tenure_testkit::wait;

use crate::support::{Daemon, SOON};

const MEMBERS: usize = 50;

/// How many lines at a level say this of a member.
fn lines(log: &str, level: &str, what: &str) -> usize {
    let of_members = log
        .lines()
        .filter(|line| line.contains("crowd") && line.contains("tenure="));
    of_members
        .filter(|line| line.contains(level) && line.contains(what))
        .count()
}

#[test]
fn a_crowd_joins_and_lapses_in_few_lines() {
    let daemon = Daemon::start(&["--store", "memory:", "--log", "info,tenure=debug,tenure_server=debug"]);
    for n in 0..MEMBERS {
        daemon.join("crowd", &format!("m-{n}"), 3_000);
    }
    // The counts come when a window is over, and that of the lapses begins with the first of them.
    let mut log = String::new();
    wait::until("every member is told of, and both kinds are summed up", SOON, || {
        log = daemon.process.log();
        let all = ["joined", "lapsed"]
            .iter()
            .all(|what| lines(&log, " INFO ", what) + lines(&log, "DEBUG ", what) == MEMBERS);
        all && log.matches("more of these").count() >= 2
    });
    for what in ["joined", "lapsed"] {
        let told = lines(&log, " INFO ", what);
        assert!((20..MEMBERS).contains(&told), "{told} times {what}: {log}");
    }
}
