//! A deactivated provider is refused from the moment the operator is answered, in every state of the hot store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenure::roster::Online;
use tenure::{ProviderId, Roster, RostersSettings, SystemClock};
use tenure_core::ledger::{Change, Reason};
use tenure_testkit::valkey::DURABLE;
use tenure_testkit::wait::until_async;
use tenure_testkit::{postgres, valkey};
use tokio::task::JoinHandle;

use crate::roster::world::*;

/// Sends heartbeats of one provider in a loop.
struct HeartbeatLoop {
    stopped: Arc<AtomicBool>,
    /// How often it was answered `Deactivated`.
    refusals: Arc<AtomicU64>,
    task: JoinHandle<BTreeMap<String, u64>>,
}

impl HeartbeatLoop {
    fn start(roster: Roster, who: ProviderId) -> Self {
        let (stopped, refusals): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let (stop, count) = (Arc::clone(&stopped), Arc::clone(&refusals));
        let task = tokio::spawn(async move {
            let mut heard = BTreeMap::new();
            while !stop.load(Ordering::SeqCst) {
                let answer = describe(&roster.heartbeat(&who, None).await);
                count.fetch_add(u64::from(answer == "Deactivated"), Ordering::SeqCst);
                *heard.entry(answer).or_default() += 1;
                SystemClock::shared().sleep(ms(2)).await;
            }
            heard
        });
        Self {
            stopped,
            refusals,
            task,
        }
    }

    async fn until_refused(&self, refusals: u64) {
        let goal = self.refusals.load(Ordering::SeqCst) + refusals;
        until_async("heartbeats were refused", PATIENCE, async || {
            self.refusals.load(Ordering::SeqCst) >= goal
        })
        .await;
    }

    /// Stops and checks that every heartbeat was refused; `Unavailable` is a refusal, too.
    async fn stop_and_check(self, about: &str) {
        self.stopped.store(true, Ordering::SeqCst);
        let heard = self.task.await.unwrap();
        let refusals = ["Deactivated", "Unavailable"];
        assert!(
            heard.keys().all(|answer| refusals.contains(&answer.as_str())),
            "{about}: {heard:?}"
        );
        assert!(heard["Deactivated"] >= 20, "{about}: {heard:?}");
    }
}

async fn deactivate(processes: &[Process; 2], who: &ProviderId, mirrored: bool) -> [HeartbeatLoop; 2] {
    let written = processes[0].roster.deactivate(who).await.unwrap();
    assert_eq!((written.changed, written.mirrored), (true, mirrored));
    let loops = [0, 1].map(|n| HeartbeatLoop::start(processes[n].roster.clone(), who.clone()));
    for process in processes {
        let refused = process.roster.online(who).await.unwrap();
        assert!(matches!(refused, Online::Deactivated(_)), "{refused:?}");
    }
    for beating in &loops {
        beating.until_refused(20).await;
    }
    loops
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deactivated_provider_is_refused_during_outages() {
    let Some(valkey) = valkey::Server::with(valkey::Flavour::Valkey, DURABLE) else {
        return;
    };
    let Some(postgres) = postgres::Server::start() else {
        return;
    };
    let database = postgres.database();
    prepare("door", &database, &stale_after(secs(600))).await;
    let settings = || RostersSettings {
        // A frozen store is waited for, but a short stall of the machine must not look like one.
        mirror_timeout: secs(3),
        ..patient()
    };
    let processes = [
        Process::start("door", &valkey.url(), &database, settings()).await,
        Process::start("door", &valkey.url(), &database, settings()).await,
    ];
    all_believe(&processes).await;
    let everyone: Vec<_> = (0..4).map(numbered).collect();
    for who in &everyone {
        processes[0].arrive(who, None).await;
    }
    let [up, dead, hangs, stays] = &everyone[..] else {
        panic!("four");
    };

    for beating in deactivate(&processes, up, true).await {
        beating.stop_and_check("while it is up").await;
    }

    // A crash and a restart with the old data, in which the deactivated provider is online.
    valkey.kill();
    let loops = deactivate(&processes, dead, false).await;
    valkey.restart_with_data();
    all_believe(&processes).await;
    for beating in loops {
        beating.until_refused(50).await;
        beating.stop_and_check("after a crash").await;
    }

    valkey.pause();
    let loops = deactivate(&processes, hangs, false).await;
    valkey.resume();
    all_believe(&processes).await;
    for beating in loops {
        beating.until_refused(50).await;
        beating.stop_and_check("after a freeze").await;
    }

    processes[0].until_they_agree().await;
    assert_eq!(processes[1].free().await.0, [stays.to_string()]);
    let log = processes[0].log().await;
    for who in [up, dead, hangs] {
        let told: Vec<_> = log
            .iter()
            .filter(|entry| entry.provider == *who)
            .map(|entry| (entry.change, entry.reason))
            .collect();
        let expected = [
            (Change::Online, Reason::Asked),
            (Change::Deactivated, Reason::Operator),
            (Change::Offline, Reason::Deactivated),
        ];
        assert_eq!(told, expected, "{who}");
    }
}
