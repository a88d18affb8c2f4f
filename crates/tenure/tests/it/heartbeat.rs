//! Beats continue while all threads of the user's runtime are blocked.

use std::sync::mpsc;
use std::time::Duration;

use tenure::{ClientSettings, JoinOptions, OpenOptions, Tenure, Verdict};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait::until;

/// Long enough that a short stall of the machine ends no tenure.
const TTL: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(60);

/// Joins on a runtime with two threads, blocks both until more than a ttl has been renewed, and checks what other
/// clients saw.
fn beats_continue(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let options = OpenOptions {
        request_timeout: Some(Duration::from_secs(5)),
        ..OpenOptions::default()
    };
    let connecting = Tenure::connect_with(url, options, ClientSettings::default());
    let tenure = runtime.block_on(connecting).unwrap();
    let group = tenure.group("g").unwrap();
    let options = JoinOptions {
        ttl: TTL,
        ..JoinOptions::named("busy").unwrap()
    };
    let membership = runtime.block_on(group.join(options)).unwrap();
    let first = membership.tenure();
    let devices = membership.registry("devices").unwrap();
    // The user's own calls use the same connection before and after.
    runtime.block_on(devices.claim("d1")).unwrap();
    let leases = membership.leases();
    let guard = runtime.block_on(leases.acquire("t1")).unwrap().granted();
    let guard = guard.expect("the lease is free");
    let before = membership.valid_until();
    let watch = membership.watch();

    let (go_on, blocks): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
    let blocked: Vec<_> = blocks
        .into_iter()
        .map(|block| runtime.spawn(async move { block.recv() })) // it is the work that blocks
        .collect();
    // This thread also belongs to the user; it only polls, without I/O.
    let (mut seen, mut valid_until) = (0, before);
    until("four beats, and more than a ttl of them", PATIENCE, || {
        let verdicts = [membership.verdict(), guard.verdict()];
        assert!(!verdicts.contains(&Verdict::Lost), "{verdicts:?}");
        if verdicts.contains(&Verdict::Uncertain) {
            // Caused by the machine, not by the user: a late wake-up is uncertain until confirmed.
            until("it reports a late wake-up", PATIENCE, || watch.borrow().pauses > 0);
        }
        if membership.valid_until() > valid_until {
            valid_until = membership.valid_until();
            seen += 1;
        }
        seen >= 4 && valid_until > before + TTL
    });
    assert!(!blocked.iter().any(tokio::task::JoinHandle::is_finished));
    drop(go_on);
    let status = watch.borrow().clone();
    assert_eq!((status.rejoins, &status.tenure), (0, &first));
    until("both are held", PATIENCE, || {
        (membership.verdict(), guard.verdict()) == (Verdict::Held, Verdict::Held)
    });
    let claim = runtime.block_on(devices.look_up("d1")).unwrap().unwrap();
    assert!(claim.alive && claim.tenure == first);
    let seen = runtime.block_on(leases.look_up("t1")).unwrap().unwrap();
    assert!(seen.alive && seen.token == guard.token());
    runtime.block_on(async {
        membership.leave().await.unwrap();
        tenure.close().await;
    });
}

#[test]
fn beats_continue_while_all_user_threads_are_blocked() {
    beats_continue("memory:");
}

#[test]
fn beats_continue_over_a_shared_connection() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    // An existing store: a new one grants no lease before its first max ttl has passed.
    server
        .cli(&["HSET", "tenure:store", "born", "1"])
        .expect("the server answers");
    beats_continue(&server.url());
}
