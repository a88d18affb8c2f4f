//! Blocking every thread of the user must not stop the heart.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::disallowed_methods,
    reason = "blocking a real thread for a real while is what is tested"
)]

use std::thread;
use std::time::Duration;

use tenure::{JoinOptions, Tenure, Verdict};
use tenure_testkit::valkey::{Flavour, Server};

const TTL: Duration = Duration::from_secs(1);

/// Joins on a runtime with two threads, blocks both for twice the ttl, and looks at what others saw meanwhile.
fn beats_go_on(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let tenure = runtime.block_on(Tenure::connect(url)).unwrap();
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
    let guard = guard.expect("nobody else is there");
    let before = membership.valid_until();
    let watch = membership.watch();

    let blocked: Vec<_> = (0..2)
        .map(|_| runtime.spawn(async { thread::sleep(TTL * 2) })) // tidy: waits on nothing; it is the work that blocks
        .collect();
    // This thread is one of the user's as well; it only looks, without I/O.
    let mut seen = 0;
    let mut valid_until = before;
    while !blocked.iter().all(tokio::task::JoinHandle::is_finished) {
        assert_eq!((membership.verdict(), guard.verdict()), (Verdict::Held, Verdict::Held));
        if membership.valid_until() > valid_until {
            valid_until = membership.valid_until();
            seen += 1;
        }
        thread::sleep(Duration::from_millis(5)); // tidy: waits on the blocked threads, looking meanwhile
    }
    assert!(seen >= 4, "{seen} beats in twice the ttl");
    let status = watch.borrow().clone();
    assert_eq!((status.rejoins, status.pauses, &status.tenure), (0, 0, &first));
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
fn beats_go_on_while_all_threads_of_the_user_are_blocked() {
    beats_go_on("memory:");
}

#[test]
fn beats_go_on_over_a_connection_that_the_user_shares() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    // An old store: a new one grants no lease before its first max ttl is over.
    server
        .cli(&["HSET", "tenure:store", "born", "1"])
        .expect("the server answers");
    beats_go_on(&server.url());
}
