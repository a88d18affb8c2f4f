//! Waiting for leases: waiters whose process is gone, subscriptions that break, and servers that restart.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::ErrorKind;
use tenure_core::id::{LeaseName, NodeId, TenureId};
use tenure_core::lease::{Acquire, AcquireOutcome, Holders, LeaseStore, Queue, RequestId, Token, WaitingTurn};
use tenure_core::membership::{EndBy, MembershipStore};
use tenure_core::store::Call;
use tenure_core::sweep::SweepSteps;
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::{Mode, Proxy, wait};
use tenure_valkey::ValkeyStore;

use crate::world::*;

on_both! {
    silent_nodes_are_passed_over_in_the_step_that_frees,
    many_silent_waiters_are_not_a_gap_in_the_queue,
    a_returning_waiter_respects_another_number_of_holders,
    a_grant_to_another_request_is_announced,
    a_full_queue_is_refused,
    an_unused_turn_goes_to_the_next_waiter,
    a_broken_subscription_is_reported_once,
    waiters_outlive_a_restart_of_the_server,
    a_missing_channel_right_is_named,
}

const SECOND: Duration = Duration::from_secs(1);

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// Asks for the lease `poll`, with a wait of a minute.
async fn ask(store: &ValkeyStore, tenure: &TenureId, number: u64, on: &str) -> AcquireOutcome {
    let queue = Queue {
        within: 60 * SECOND,
        request: RequestId::new(number).unwrap(),
        node: node(on),
    };
    let acquire = Acquire {
        queue: Some(queue),
        ..Acquire::new(tenure.clone(), vec![poll()])
    };
    let acquired = store.acquire_with(&group(), acquire, Call::default()).await;
    acquired.unwrap().outcomes.remove(0)
}

fn poll() -> LeaseName {
    lease("poll")
}

async fn hold(store: &ValkeyStore, tenure: &TenureId) -> Token {
    let outcome = acquire(store, tenure, "poll").await.unwrap();
    outcome.token().unwrap_or_else(|| panic!("{outcome:?}"))
}

async fn release(store: &ValkeyStore, tenure: &TenureId, token: Token) {
    let given = [(poll(), token)];
    let group = group();
    let released = store.release_leases(&group, tenure, &given, None, Call::default());
    released.await.unwrap();
}

/// The numbers of the requests whose turn came.
async fn turns(store: &ValkeyStore, on: &str) -> Vec<u64> {
    let turns = store.wait_for_grants(&node(on), PATIENCE).await.unwrap();
    turns.iter().map(|turn: &WaitingTurn| turn.request.get()).collect()
}

fn scripts_run(server: &Server) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
    let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
    let calls = line.and_then(|line| line.split_once("calls=")?.1.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

/// Four waiters whose node is silent do not delay the fifth, and nothing asks the store in between.
async fn silent_nodes_are_passed_over_in_the_step_that_frees(flavour: Flavour) {
    let world = TestClockStore::new(flavour).await;
    let store = &world.store;
    let holder = join(store, "holder").await;
    let token = hold(store, &holder).await;
    for number in 1..5 {
        let waiter = join(store, &format!("frozen-{number}")).await;
        ask(store, &waiter, number, "frozen").await;
    }
    let last = join(store, "last").await;
    world.pass(3 * SECOND).await;
    assert!(matches!(
        ask(store, &last, 5, "here").await,
        AcquireOutcome::Waiting { ahead: 4, .. }
    ));
    let before = scripts_run(&world.server);
    release(store, &holder, token).await;
    assert_eq!(turns(store, "here").await, [5]);
    assert_eq!(scripts_run(&world.server) - before, 1, "only the release ran");
    assert!(ask(store, &last, 5, "here").await.token().is_some());
    // The frozen node is back: the first of its waiters has kept its place.
    store.tick_of(&group(), Some(&node("frozen"))).await.unwrap();
    let left = store.end(&group(), &last, EndBy::Leave, Call::default()).await;
    left.unwrap();
    assert_eq!(turns(store, "frozen").await, [1]);
}

/// A step looks at 200 waiters. While more of them are silent, an acquire without a wait is refused until all were looked at.
async fn many_silent_waiters_are_not_a_gap_in_the_queue(flavour: Flavour) {
    const SILENT: u64 = 700;
    let world = TestClockStore::new(flavour).await;
    let store = &world.store;
    let (holder, last, late) = (join(store, "a").await, join(store, "b").await, join(store, "c").await);
    let token = hold(store, &holder).await;
    for number in 1..=SILENT {
        let waiter = join(store, &format!("frozen-{number}")).await;
        ask(store, &waiter, number, "frozen").await;
    }
    world.pass(3 * SECOND).await;
    ask(store, &last, 1_000, "here").await;
    release(store, &holder, token).await;
    assert!(acquire(store, &late, "poll").await.unwrap().token().is_none());
    let wake = store.tick_of(&group(), Some(&node("here"))).await.unwrap();
    assert_eq!(turns(store, "here").await, [1_000], "{wake:?}");
    let token = ask(store, &last, 1_000, "here").await.token().expect("the turn");
    // Without another waiter the silent ones delay an acquire, and do not prevent it.
    release(store, &last, token).await;
    let mut asked = 1;
    while acquire(store, &late, "poll").await.unwrap().token().is_none() {
        asked += 1;
        assert!(asked <= 4, "each step looks at 200 more");
    }
}

/// Others took the lease with two places while the node of an older waiter, for an exclusive lease, was silent.
async fn a_returning_waiter_respects_another_number_of_holders(flavour: Flavour) {
    let world = TestClockStore::new(flavour).await;
    let store = &world.store;
    let (old, waiter) = (join(store, "a").await, join(store, "b").await);
    let (first, second) = (join(store, "c").await, join(store, "d").await);
    let token = hold(store, &old).await;
    ask(store, &waiter, 1, "frozen").await;
    world.pass(3 * SECOND).await;
    release(store, &old, token).await;
    let share = async |tenure: &TenureId| {
        let two = Acquire {
            holders: Holders::new(2).unwrap(),
            ..Acquire::new(tenure.clone(), vec![poll()])
        };
        let acquired = store.acquire_with(&group(), two, Call::default()).await;
        acquired.unwrap().outcomes.remove(0).token().expect("a place")
    };
    let tokens = [share(&first).await, share(&second).await];
    release(store, &first, tokens[0]).await;
    store.tick_of(&group(), Some(&node("frozen"))).await.unwrap();
    world.pass(SECOND / 2).await;
    assert!(
        ask(store, &waiter, 1, "frozen").await.token().is_none(),
        "place 1 is taken"
    );
    release(store, &second, tokens[1]).await;
    assert_eq!(turns(store, "frozen").await, [1]);
    assert!(ask(store, &waiter, 1, "frozen").await.token().is_some());
}

/// The successor of a hand-off takes the lease by a request of its own while an older one waits.
async fn a_grant_to_another_request_is_announced(flavour: Flavour) {
    let world = TestClockStore::new(flavour).await;
    let store = &world.store;
    let (holder, heir) = (join(store, "a").await, join(store, "b").await);
    let token = hold(store, &holder).await;
    ask(store, &heir, 1, "here").await;
    let (group, given) = (group(), [(poll(), token)]);
    let to = member("b");
    let released = store.release_leases(&group, &holder, &given, Some(&to), Call::default());
    released.await.unwrap();
    assert_eq!(turns(store, "here").await, [1]);
    assert!(acquire(store, &heir, "poll").await.unwrap().token().is_some());
    // A turn may be reported more than once.
    loop {
        let news = store.wait_for_grants(&node("here"), PATIENCE).await.unwrap();
        assert!(
            !news.is_empty() && news.iter().all(|turn| turn.request.get() == 1),
            "{news:?}"
        );
        if news.iter().any(|turn| turn.replaced) {
            break;
        }
    }
}

/// 10,000 requests may wait for one lease, and 20,000 in one group.
async fn a_full_queue_is_refused(flavour: Flavour) {
    const FILL: &str = "for n = ARGV[1], ARGV[2] do
        redis.call('ZADD', KEYS[1], n, 'm' .. n .. '@1')
        redis.call('HSET', KEYS[2], ARGV[3] .. ' m' .. n .. '@1', n .. ' 1 1 1 node')
    end";
    let world = TestClockStore::new(flavour).await;
    let store = &world.store;
    let (holder, late) = (join(store, "a").await, join(store, "b").await);
    hold(store, &holder).await;
    let fill = |name: &str, from: &str, to: &str| {
        let (lease, all) = (key_of(&format!("waiting:{name}")), key_of("waits"));
        world.run(&["EVAL", FILL, "2", &lease, &all, from, to, name]);
    };
    fill("poll", "1", "9999");
    assert!(matches!(
        ask(store, &holder, 1, "here").await,
        AcquireOutcome::Kept { .. }
    ));
    fill("poll", "10000", "10000");
    assert_eq!(
        ask(store, &late, 1, "here").await,
        AcquireOutcome::QueueFull { waiting: 10_000 }
    );
    world.run(&["ZREM", &key_of("waiting:poll"), "m1@1"]);
    fill("other", "1", "10000");
    assert_eq!(
        ask(store, &late, 1, "here").await,
        AcquireOutcome::QueueFull { waiting: 20_000 }
    );
}

/// A node that froze within the last two seconds costs the next waiter one reservation.
async fn an_unused_turn_goes_to_the_next_waiter(flavour: Flavour) {
    let world = TestClockStore::new(flavour).await;
    let store = &world.store;
    let (holder, first, next) = (join(store, "a").await, join(store, "b").await, join(store, "c").await);
    let token = hold(store, &holder).await;
    ask(store, &first, 1, "frozen").await;
    ask(store, &next, 2, "here").await;
    release(store, &holder, token).await;
    assert_eq!(turns(store, "frozen").await, [1]);
    let status = store.tick_of(&group(), Some(&node("here"))).await.unwrap();
    assert_eq!(status.next_wake.map(|at| at.since(status.as_of)), Some(SECOND));
    world.pass(SECOND - Duration::from_millis(1)).await;
    assert!(ask(store, &next, 2, "here").await.token().is_none());
    world.pass(Duration::from_millis(1)).await;
    assert_eq!(turns(store, "here").await, [2]);
    assert!(ask(store, &next, 2, "here").await.token().is_some());
    // The place of the unused turn is gone.
    assert_eq!(store.lease_of(&group(), &poll()).await.unwrap().unwrap().waiting, 0);
}

/// A turn that was published while the subscription was down is found by asking again.
async fn a_broken_subscription_is_reported_once(flavour: Flavour) {
    let world = TestClockStore::new(flavour).await;
    let proxy = Proxy::start(world.server.addr());
    let store = open_at(&proxy.url("valkey")).await;
    let (holder, waiter) = (join(&store, "a").await, join(&store, "b").await);
    let token = hold(&store, &holder).await;
    ask(&store, &waiter, 1, "here").await;
    proxy.set(Mode::Refuse);
    until_down(&store).await;
    release(&world.store, &holder, token).await;
    proxy.set(Mode::Pass);
    until_up(&store).await;
    let error = store.wait_for_grants(&node("here"), PATIENCE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let token = ask(&store, &waiter, 1, "here").await.token().expect("the turn");
    // The next turn arrives as before.
    ask(&store, &holder, 2, "here").await;
    release(&world.store, &waiter, token).await;
    assert_eq!(turns(&store, "here").await, [2]);
}

/// The queue is data like any other.
async fn waiters_outlive_a_restart_of_the_server(flavour: Flavour) {
    let server = server(flavour, DURABLE);
    mature(&server);
    server.cli(&["SET", "tenure:test:now", "1763676800000000"]).unwrap();
    let store = open_at(&server.url()).await;
    let (holder, waiter) = (join(&store, "a").await, join(&store, "b").await);
    let token = hold(&store, &holder).await;
    ask(&store, &waiter, 1, "here").await;
    server.restart_with_data();
    wait::until_async("the store is back", PATIENCE, || async {
        try_beat(&store, &waiter).await.is_ok()
    })
    .await;
    let kept = ask(&store, &waiter, 1, "here").await;
    assert!(matches!(kept, AcquireOutcome::Waiting { ahead: 0, .. }), "{kept:?}");
    release(&store, &holder, token).await;
    // Both the turn and an interrupted subscription make the process ask again.
    let told = store.wait_for_grants(&node("here"), PATIENCE).await;
    assert!(told.map_or(true, |turns| turns.len() == 1));
    assert!(ask(&store, &waiter, 1, "here").await.token().is_some());
}

/// Without the right to the channel the error names it, and asking again takes the turn.
async fn a_missing_channel_right_is_named(flavour: Flavour) {
    let world = TestClockStore::new(flavour).await;
    let rules = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">s3cret",
        "resetchannels",
        "~*",
        "+@all",
        "-subscribe",
    ];
    world.run(&rules);
    let store = open_at(&format!("valkey://app:s3cret@{}", world.server.addr())).await;
    let (holder, waiter) = (join(&store, "a").await, join(&store, "b").await);
    let token = hold(&store, &holder).await;
    ask(&store, &waiter, 1, "here").await;
    release(&store, &holder, token).await;
    let denied = Arc::new(std::sync::Mutex::new(String::new()));
    wait::until_async("the subscription is denied", PATIENCE, || async {
        match store.wait_for_grants(&node("here"), Duration::from_millis(20)).await {
            Err(error) if error.kind() == ErrorKind::Denied => {
                *denied.lock().unwrap() = error.chain();
                true
            }
            _ => false,
        }
    })
    .await;
    let denied = denied.lock().unwrap().clone();
    assert!(denied.contains("&tenure:turns:* +subscribe +publish"), "{denied}");
    assert!(ask(&store, &waiter, 1, "here").await.token().is_some());
}
