//! A chat over websockets, end to end: two real front-end processes of the example `chat` serve real sockets, over a daemon
//! on its file and over a real Valkey, and one of them is killed with its clients.
//!
//! The witnesses are the events of the group (each change is written in the same step as its event), and the application's
//! own list of who is where, which both front-ends keep by the feed of reaped sessions.

mod front;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure::EventKind;
use tenure_core::conformance::Cases;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::support::{self, Daemon};
use front::{Client, FrontEnd, Group};

/// The sessions of the front-end that is killed: 200, times the factor of a soak.
fn killed_sessions() -> usize {
    usize::try_from(Cases::times(200).count).unwrap()
}

/// How many clients do something at the same time.
const AT_ONCE: usize = 8;
/// The sessions of the other one.
const OTHERS: usize = 50;
/// Long enough that no tenure lapses on a busy machine.
const TTL: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(30);
/// How long anything may take that depends on ttl and grace.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_killed_front_end_costs_its_connections_only_over_a_daemon() {
    let daemon = Daemon::start(&[]);
    a_killed_front_end_costs_its_connections_only(&daemon.url());
}

#[test]
fn a_killed_front_end_costs_its_connections_only_over_valkey() {
    if let Some(server) = Server::start(Flavour::Valkey) {
        a_killed_front_end_costs_its_connections_only(&server.url());
    }
}

/// Clients of these sessions, in their order.
fn connect(front: &FrontEnd, sessions: &[String], room: Option<&str>) -> Vec<Client> {
    at_once(sessions.iter().collect(), |session| {
        Client::connect(front, session, room)
    })
}

/// Does the same work with many items, some of them concurrently: in sequence they could take longer than a grace on a busy
/// machine. Returns the results in order.
fn at_once<T: Send, R: Send>(mut all: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let each = all.len().div_ceil(AT_ONCE);
    thread::scope(|scope| {
        let mut workers = Vec::new();
        while !all.is_empty() {
            let rest = all.split_off(each.min(all.len()));
            let part = std::mem::replace(&mut all, rest);
            let work = &work;
            workers.push(scope.spawn(move || part.into_iter().map(work).collect::<Vec<R>>()));
        }
        let done = workers.into_iter().flat_map(|worker| worker.join().unwrap());
        done.collect()
    })
}

fn a_killed_front_end_costs_its_connections_only(store: &str) {
    let presence = tempfile::tempdir().unwrap();
    // Three in ten come back in time.
    let (all, returning) = (killed_sessions(), killed_sessions() * 3 / 10);
    let (first, second) = (
        FrontEnd::start("front-1", store, presence.path()),
        FrontEnd::start("front-2", store, presence.path()),
    );
    let group = Group::open(store);
    let killed: Vec<String> = (0..all).map(|n| format!("killed-{n}")).collect();
    let others: Vec<String> = (0..OTHERS).map(|n| format!("other-{n}")).collect();
    let mut clients = connect(&first, &killed, Some("lobby"));
    let stay = connect(&second, &others, None);
    assert!(
        clients
            .iter()
            .chain(&stay)
            .all(|client| client.how == "created" && client.room == "lobby")
    );
    let epochs: Vec<u64> = clients.iter().map(|client| client.epoch).collect();
    at_once(clients[..returning].iter_mut().collect(), |client| {
        client.move_to("garden")
    });
    group.until("all are there", all + OTHERS, 0);

    first.process.signal(Signal::KILL).unwrap();
    let killed_at = Instant::now();
    group.until("its sessions are disconnected", OTHERS, all);
    eprintln!(
        "MEASURED {store}: {all} sessions disconnected {:?} after the kill (ttl {TTL:?})",
        killed_at.elapsed()
    );
    drop(clients);

    // Some of them come back in time, to the other one, and are where they were.
    let back = connect(&second, &killed[..returning], None);
    for (client, epoch) in back.iter().zip(&epochs) {
        assert_eq!((client.how.as_str(), client.room.as_str()), ("resumed", "garden"));
        assert!(client.epoch > *epoch);
    }
    group.until("the others are reaped", OTHERS + returning, 0);
    eprintln!(
        "MEASURED {store}: the last of {} reaped {:?} after the kill",
        all - returning,
        killed_at.elapsed()
    );

    let disconnected = group.told(EventKind::SessionDisconnected);
    let of_them: BTreeSet<&str> = disconnected
        .iter()
        .map(|event| event.session.as_ref().unwrap().as_str())
        .collect();
    let expected: BTreeSet<&str> = killed.iter().map(String::as_str).collect();
    assert_eq!(
        (disconnected.len(), of_them),
        (all, expected),
        "each grace has begun once, and no other"
    );
    assert!(
        disconnected
            .iter()
            .all(|event| event.reason.as_deref() == Some("lapsed"))
    );
    let evicted: u64 = group
        .told(EventKind::Evicted)
        .iter()
        .map(|event| event.connections)
        .sum();
    assert_eq!(evicted, all as u64);
    assert_eq!(group.told(EventKind::SessionResumed).len(), returning);
    let reaped = group.told(EventKind::SessionReaped);
    let keys: BTreeSet<(&str, u64)> = reaped
        .iter()
        .map(|event| (event.session.as_ref().unwrap().as_str(), event.epoch.unwrap().get()))
        .collect();
    let gone = killed
        .iter()
        .map(String::as_str)
        .zip(epochs.iter().copied())
        .skip(returning);
    assert_eq!(
        (reaped.len(), keys),
        (all - returning, gone.collect()),
        "each is reaped once, and none that came back"
    );

    // By the feed exactly the reaped sessions have left.
    let here: BTreeSet<&str> = others.iter().chain(&killed[..returning]).map(String::as_str).collect();
    wait::until("who was reaped has left the rooms", PATIENCE, || {
        let listed = front::listed(presence.path());
        listed.len() == here.len() && listed.iter().all(|session| here.contains(session.as_str()))
    });
    for mut client in stay.into_iter().chain(back) {
        client.is_heard();
    }
    let ended = second.process.terminate(support::SOON).unwrap();
    assert!(ended.success(), "{ended:?}: {}", second.process.log_tail());
}
