//! Faults of the store of the old keys only: Tenure's own store runs in this process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::fleet::{Assignment, Fleet, TargetList};
use tenure::{Clock, JoinOptions, Membership, Mono, Tenure, Verdict};
use tenure_adopt::{OldLeaseSettings, OldLeaseStatus, OldLeases};
use tenure_testkit::resp::Reply;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Mode, Proxy, wait};

use crate::leases::patient;

/// A key is renewed every third of it; the rest survives a short stall of the machine.
const OLD_TTL: Duration = Duration::from_secs(4);
const SOON: Duration = Duration::from_secs(30);
const KEY: &str = "poll:lease:t";

/// The activity of the task, as seen by its endpoint.
#[derive(Default)]
struct Work {
    running: AtomicUsize,
    last: Mutex<Mono>,
}

impl Work {
    fn runs(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0
    }

    fn last(&self) -> Mono {
        *self.last.lock().unwrap()
    }
}

struct World {
    tenure: Tenure,
    _membership: Membership,
    old: OldLeases,
    fleet: Fleet,
    work: Arc<Work>,
}

impl World {
    async fn start(url: &str) -> Self {
        let tenure = Tenure::connect("memory:").await.unwrap();
        let group = tenure.group("pollers").unwrap();
        let membership = group.join(JoinOptions::named("new-a").unwrap()).await.unwrap();
        let settings = OldLeaseSettings::new("poll:lease:*", OLD_TTL);
        let old = OldLeases::connect(&membership, url, settings).await.unwrap();
        let (work, clock) = (Arc::<Work>::default(), Arc::clone(tenure.clock()));
        let seen = Arc::clone(&work);
        let fleet = Fleet::builder(&membership)
            .targets(TargetList::new(["t"]).unwrap())
            .settings(patient())
            .start(old.guard_task(move |target| tick(Arc::clone(&seen), Arc::clone(&clock), target)))
            .unwrap();
        Self {
            tenure,
            _membership: membership,
            old,
            fleet,
            work,
        }
    }

    fn now(&self) -> Mono {
        self.tenure.clock().mono()
    }

    async fn until_it_runs(&self) {
        wait::until_async("the task runs", SOON, async || self.work.runs()).await;
    }

    /// Waits until the task is dropped. Checks that its last action was in time.
    async fn stops_by(&self, end: Mono) {
        wait::until_async("the task is dropped", SOON, async || !self.work.runs()).await;
        assert!(self.work.last() < end, "{:?} after it", self.work.last().since(end));
        assert_eq!(self.old.status().held, 0);
    }
}

async fn tick(work: Arc<Work>, clock: Arc<dyn Clock>, target: Assignment) {
    struct Runs(Arc<Work>);
    impl Drop for Runs {
        fn drop(&mut self) {
            self.0.running.fetch_sub(1, Ordering::SeqCst);
        }
    }
    assert_eq!(work.running.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
    let _runs = Runs(Arc::clone(&work));
    while target.next_cycle().await {
        assert_eq!(target.verdict(), Verdict::Held);
        *work.last.lock().unwrap() = clock.mono();
        // The task does not check itself: sleeping through the loss must not help it.
        clock.sleep(Duration::from_millis(5)).await;
    }
}

fn value(server: &Server) -> Option<String> {
    match server.cli(&["GET", KEY]).unwrap() {
        Reply::Nil => None,
        reply => Some(reply.text()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_stops_before_the_old_key_expires_in_a_frozen_store() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let world = World::start(&server.url()).await;
        world.until_it_runs().await;
        let ours = value(&server).unwrap();
        assert!(ours.starts_with("new-a@") && ours.contains('#'), "{ours}");
        let lost = world.old.status().lost;
        server.pause();
        // Every confirmed step was sent before this.
        let frozen = world.now();
        world.stops_by(frozen + OLD_TTL).await;
        assert_eq!(world.fleet.status().held, 1, "the lease is still ours");
        wait::until_async("the old key has expired", SOON, async || {
            world.now().since(frozen) > OLD_TTL + OLD_TTL / 4
        })
        .await;
        assert!(!world.work.runs());
        server.resume();
        world.until_it_runs().await;
        assert!(value(&server).is_some() && world.old.status().lost == lost + 1);
        world.fleet.shut_down().await;
        assert_eq!(value(&server), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stolen_key_drops_the_task_and_is_left_alone() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let world = World::start(&server.url()).await;
        world.until_it_runs().await;
        server.cli(&["SET", KEY, "old-1", "PX", "60000"]).unwrap();
        let stolen = world.now();
        // The next renewal detects it.
        world.stops_by(stolen + OLD_TTL).await;
        wait::until_async("it waits", SOON, async || world.old.status().waiting == 1).await;
        assert_eq!(value(&server).as_deref(), Some("old-1"));
        assert_eq!(world.fleet.status().restarts, 0, "the fleet sees one task");
        server.cli(&["DEL", KEY]).unwrap();
        world.until_it_runs().await;
        let ended = world.fleet.shut_down().await;
        assert!(ended.stubborn.is_empty() && value(&server).is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_stop_the_task_but_its_key_is_kept() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let proxy = Proxy::start(server.addr());
        let world = World::start(&proxy.url("valkey")).await;
        world.until_it_runs().await;
        let ours = value(&server);
        proxy.set(Mode::DropReplies);
        let dropped = world.now();
        world.stops_by(dropped + OLD_TTL).await;
        proxy.set(Mode::Reset);
        proxy.set(Mode::Pass);
        world.until_it_runs().await;
        assert!(value(&server).is_some() && ours.is_some());
        world.fleet.shut_down().await;
        assert_eq!(value(&server), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn target_waits_while_an_old_instance_renews_its_key() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        server.cli(&["SET", KEY, "old-1", "PX", "60000"]).unwrap();
        let world = World::start(&server.url()).await;
        wait::until_async("it waits", SOON, async || world.old.status().waiting == 1).await;
        let status = OldLeaseStatus {
            waiting: 1,
            ..OldLeaseStatus::default()
        };
        let since = world.now();
        while world.now().since(since) < OLD_TTL {
            assert_eq!((world.old.status(), world.work.runs()), (status, false));
            tokio::task::yield_now().await;
        }
        // A node that leaves while it waits acquires nothing and deletes nothing.
        world.fleet.shut_down().await;
        assert_eq!(value(&server).as_deref(), Some("old-1"));
    }
}
