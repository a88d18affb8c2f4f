//! LiteFS says where the primary is, and Consul where clients are sent: there, and nowhere else.

use std::time::Instant;

use rustix::process::Signal;
use tenure_testkit::consul::Agent;
use tenure_testkit::port::Port;
use tenure_testkit::{Process, wait};

use crate::run::PATIENCE;
use crate::run::beats::{self, Beats, dies};
use crate::run::found::{Watch, found_at, passing, registered};
use crate::run::mount::Mount;
use crate::run::node::{always, is, looking_at, node, running};
use crate::support::exists;

fn of_litefs(who: &str, mount: &Mount, port: &str, agent: &Agent, beats: &Beats) -> Process {
    let (leader, catalog) = (
        format!("litefs:{}", mount.dir().display()),
        format!("consul://{}", agent.addr()),
    );
    let service = [
        "--service",
        "music",
        "--port",
        port,
        "--catalog",
        &catalog,
        "--ttl",
        "3s",
    ];
    node(who, &looking_at(&leader, &service), beats)
}

#[test]
fn catalog_names_the_primary_or_nothing() {
    let (Some(agent), Some(one), Some(two)) = (Agent::start(), Mount::start(), Mount::start()) else {
        return;
    };
    two.follow();
    let beats = Beats::new();
    let first = of_litefs("one", &one, "4001", &agent, &beats);
    let second = of_litefs("two", &two, "4002", &agent, &beats);
    let watch = Watch::over(agent.addr());
    found_at(&agent, 4001);
    is(&second, "state", "waiting");
    for turn in 1..=2 {
        for (from, old, to, port, new) in [
            (&one, ("one", &first), &two, 4002, "two"),
            (&two, ("two", &second), &one, 4001, "one"),
        ] {
            let child = beats.begins(old.0, turn);
            from.follow();
            dies(&child);
            is(old.1, "state", "waiting");
            is(old.1, "catalog", "absent");
            assert_eq!(registered(&agent), [""; 0], "{}", old.1.log());
            to.unfollow();
            beats.begins(new, if new == "one" { turn + 1 } else { turn });
            found_at(&agent, port);
        }
    }
    // Gone before the process is.
    first.signal(Signal::TERM).unwrap();
    let code = first.wait(PATIENCE).unwrap().code();
    assert_eq!((code, registered(&agent)), (Some(143), Vec::new()), "{}", first.log());
    second.signal(Signal::TERM).unwrap();
    assert_eq!(second.wait(PATIENCE).unwrap().code(), Some(143));
    let [_, one, more] = watch.ends();
    assert!(one > 0 && more == 0, "{more} times there were two");
    beats.never_overlapped();
}

/// Its own reaper removes the service after a minute, and looks every half minute.
#[test]
fn killed_supervisor_ends_its_command_and_service() {
    let Some(agent) = Agent::start() else { return };
    let (beats, port) = (Beats::new(), Port::reserve());
    let catalog = format!("consul://{}", agent.addr());
    let number = port.number().to_string();
    let args = [
        "--leader",
        "always",
        "--service",
        "music",
        "--port",
        &number,
        "--catalog",
        &catalog,
    ];
    let args = [&args[..], &["--id", "m", "--ttl", "3s"]].concat();
    let supervisor = running("a", &args, &beats::stubborn(), |command| beats.arm(command, "a"));
    // The command and its daemon.
    beats.begins("a", 2);
    found_at(&agent, port.number().into());
    supervisor.kill();
    let killed = Instant::now();
    wait::until("all of it is dead", PATIENCE, || {
        beats.lives("a").iter().all(|life| !exists(&life.pid))
    });
    eprintln!("dead after {:?}", killed.elapsed());
    wait::until("clients are sent there no more", PATIENCE, || {
        passing(agent.addr()).is_some_and(|ports| ports.is_empty())
    });
    eprintln!("critical after {:?}, with a ttl of 3 s", killed.elapsed());
    assert_eq!(registered(&agent), ["m"]);
    wait::until("Consul has removed it", PATIENCE * 3, || registered(&agent).is_empty());
    eprintln!("removed by Consul itself after {:?}", killed.elapsed());
}

#[test]
fn repeated_kills_leave_one_service() {
    let Some(agent) = Agent::start() else { return };
    let (beats, journal) = (Beats::new(), tempfile::tempdir().unwrap());
    let catalog = format!("consul://{}", agent.addr());
    for life in 1..=6 {
        // Nomad gives every allocation an id of its own.
        let id = format!("music-{life}");
        let journal = journal.path().to_str().unwrap();
        let supervisor = node("a", &always(&catalog, &["--id", &id, "--journal", journal]), &beats);
        is(&supervisor, "catalog", "passing");
        assert_eq!(registered(&agent), [id]);
        let child = beats.begins("a", life);
        supervisor.kill();
        dies(&child);
    }
}
