//! The rolling migration: an old fleet of two instances and fifty targets, new nodes that join, old ones that leave.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::fleet::{Assignment, Fleet, TargetList};
use tenure::{Acquire, ClientSettings, EventKind, EventQuery, JoinOptions, Membership, OpenOptions, Tenure};
use tenure_adopt::{OldLeaseSettings, OldLeases};
use tenure_core::store::Call;
use tenure_testkit::resp::Client;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::leases::log::{self, RECORD};
use crate::leases::old_fleet::{self, OLD_TTL};
use crate::leases::patient;

const SOON: Duration = Duration::from_secs(80);
/// How much a slow or stalled machine may add to the time without a poll.
const SLACK: Duration = Duration::from_secs(5);
/// The ttl of new nodes.
const TTL: Duration = Duration::from_secs(30);
const TARGETS: usize = 50;

/// A new node.
struct Node {
    tenure: Tenure,
    membership: Membership,
    old: OldLeases,
    fleet: Fleet,
}

impl Node {
    async fn start(server: &Server, name: &str, targets: usize, wrapped: bool) -> Self {
        let options = OpenOptions {
            request_timeout: Some(SLACK),
            ..OpenOptions::default()
        };
        let tenure = Tenure::connect_with(&server.url(), options, ClientSettings::default())
            .await
            .unwrap();
        let join = JoinOptions {
            ttl: TTL,
            ..JoinOptions::named(name).unwrap()
        };
        let membership = tenure.group("pollers").unwrap().join(join).await.unwrap();
        let settings = OldLeaseSettings::new("poll:lease:{target}", OLD_TTL);
        let old = OldLeases::connect(&membership, &server.url(), settings).await.unwrap();
        let endpoint = Arc::new(Mutex::new(server.client().unwrap()));
        let task = move |target: Assignment| poll(Arc::clone(&endpoint), target);
        let builder = Fleet::builder(&membership)
            .targets(TargetList::new((0..targets).map(|n| format!("t-{n:02}"))).unwrap())
            .settings(patient());
        let fleet = if wrapped {
            builder.start(old.guard_task(task))
        } else {
            builder.start(task)
        };
        Self {
            tenure,
            membership,
            old,
            fleet: fleet.unwrap(),
        }
    }

    async fn stop(self) {
        let ended = self.fleet.shut_down().await;
        assert!(ended.stubborn.is_empty(), "{ended:?}");
        self.membership.leave().await.unwrap();
        self.tenure.close().await;
    }
}

async fn poll(endpoint: Arc<Mutex<Client>>, target: Assignment) {
    let (name, tenure, token) = (target.target(), target.guard().tenure(), target.token());
    while target.next_cycle().await {
        for step in ["begin", "end"] {
            let key = format!("poll:lease:{name}");
            let (tenure, token) = (tenure.to_string(), token.to_string());
            let args = ["EVAL", RECORD, "2", &key, "polls", name.as_str(), &tenure, &token, step];
            endpoint.lock().unwrap().call(&args).unwrap();
        }
        target.rest(Duration::from_millis(100)).await;
    }
}

/// How many targets the instances with this prefix polled recently. The window is long enough for a slow machine.
fn polled_by(server: &Server, name: &str) -> usize {
    let lately = log::lately(server, Duration::from_secs(2));
    let counts = lately.iter().filter(|(instance, _)| instance.starts_with(name));
    counts.map(|(_, count)| count).sum()
}

/// A server with an old enough store: a new one grants no lease before its first max ttl is over.
fn old_server(flavour: Flavour) -> Option<Server> {
    let server = Server::start(flavour)?;
    server.cli(&["HSET", "tenure:store", "born", "1"]).unwrap();
    Some(server)
}

async fn change_one_by_one(flavour: Flavour) {
    let Some(server) = old_server(flavour) else { return };
    let Some(old_1) = old_fleet::start(&server, "old-1", TARGETS, TARGETS / 2) else {
        return;
    };
    let Some(old_2) = old_fleet::start(&server, "old-2", TARGETS, TARGETS / 2) else {
        return;
    };
    wait::until("the old fleet polls all", SOON, || {
        polled_by(&server, "old-") == TARGETS
    });

    let a = Node::start(&server, "new-a", TARGETS, true).await;
    let b = Node::start(&server, "new-b", TARGETS, true).await;
    let waiting = || a.old.status().waiting + b.old.status().waiting;
    wait::until_async("the new nodes wait for all", SOON, async || waiting() == TARGETS).await;
    assert_eq!(
        polled_by(&server, "new-"),
        0,
        "the new nodes poll a target of an old instance"
    );

    old_1.terminate(SOON).unwrap();
    wait::until_async("the new nodes poll its targets", SOON, async || {
        polled_by(&server, "new-") == TARGETS / 2 && waiting() == TARGETS / 2
    })
    .await;

    old_2.kill();
    wait::until_async("the new nodes poll all", SOON, async || {
        polled_by(&server, "new-") == TARGETS
    })
    .await;
    assert_eq!((waiting(), a.old.status().held + b.old.status().held), (0, TARGETS));

    // One new node stops: it hands over the lease and the old key.
    a.stop().await;
    wait::until_async("the other node polls all", SOON, async || {
        polled_by(&server, "new-b") == TARGETS
    })
    .await;
    assert_eq!(b.old.status().lost, 0);
    // A stall of the machine is an outage of the store, after which no free lease is granted for a ttl.
    let outages = EventQuery {
        kinds: vec![EventKind::GroupUnsettled],
        limit: 100,
        ..EventQuery::default()
    };
    let outages = b.tenure.group("pollers").unwrap().events(&outages).await.unwrap();
    let pause = u32::try_from(outages.events.len()).unwrap() * TTL;
    b.stop().await;
    let left = server
        .cli(&["EVAL", "return #redis.call('KEYS', 'poll:lease:*')", "0"])
        .unwrap();
    assert_eq!(left.int(), Some(0), "every acquired key is released");

    let steps = log::read(&server);
    let faults = log::faults(&steps, "old-2", OLD_TTL + SLACK + pause);
    assert!(faults.is_empty(), "{} of {}: {faults:#?}", faults.len(), steps.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_migration_has_one_poller_per_target_on_valkey() {
    change_one_by_one(Flavour::Valkey).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_migration_has_one_poller_per_target_on_redis() {
    change_one_by_one(Flavour::Redis).await;
}

/// The guide's order on a new store: the new nodes are refused at first, and an operator settles the store.
#[tokio::test(flavor = "multi_thread")]
async fn move_on_a_new_store_begins_when_it_is_settled() {
    const ALL: usize = 27;
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let names = ["old-1", "old-2", "old-3"];
    let started = names.map(|name| old_fleet::start(&server, name, ALL, ALL / 3));
    let [Some(one), Some(two), Some(three)] = started else {
        return;
    };
    wait::until("the old fleet polls all", SOON, || polled_by(&server, "old-") == ALL);
    let a = Node::start(&server, "new-a", ALL, true).await;
    let b = Node::start(&server, "new-b", ALL, true).await;
    let group = tenure::Group::new("pollers").unwrap();
    // A lease by hand is refused as those of the fleets are.
    let leases = a.membership.leases();
    wait::until_async("the store refuses leases", SOON, async || {
        matches!(leases.acquire("by-hand").await, Ok(Acquire::Unsettled { .. }))
    })
    .await;
    let settled = a.tenure.store().settle(Some(&group), None, Call::default()).await;
    assert_eq!(settled.unwrap().settled, 1);
    let waiting = || a.old.status().waiting + b.old.status().waiting;
    // Far less than the two minutes for which they were refused.
    wait::until_async("the new nodes wait for all", SOON / 2, async || waiting() == ALL).await;
    assert_eq!(polled_by(&server, "new-"), 0, "old instances hold all keys");
    for (n, old) in [one, two, three].into_iter().enumerate() {
        old.terminate(SOON).unwrap();
        wait::until_async("the new nodes poll its targets", SOON, async || {
            polled_by(&server, "new-") == ALL / 3 * (n + 1)
        })
        .await;
    }
    a.stop().await;
    b.stop().await;
    let steps = log::read(&server);
    let faults = log::faults(&steps, "", OLD_TTL + SLACK);
    assert!(faults.is_empty(), "{} of {}: {faults:#?}", faults.len(), steps.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_guard_the_log_shows_two_pollers() {
    let Some(server) = old_server(Flavour::Valkey) else {
        return;
    };
    let Some(_old) = old_fleet::start(&server, "old-1", 5, 5) else {
        return;
    };
    wait::until("the old instance polls all", SOON, || polled_by(&server, "old-") == 5);
    let bare = Node::start(&server, "new-a", 5, false).await;
    wait::until_async("the new node polls as well", SOON, async || {
        polled_by(&server, "new-") == 5
    })
    .await;
    bare.stop().await;
    let faults = log::faults(&log::read(&server), "", Duration::MAX);
    assert!(
        faults.iter().any(|fault| fault.contains("without the old key")),
        "{faults:#?}"
    );
}
