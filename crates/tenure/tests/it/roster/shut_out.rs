//! Whom an operator has shut out is refused from the moment that the operator was answered, whatever the hot store does.

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

/// Somebody who does not take no for an answer.
struct Hammer {
    over: Arc<AtomicBool>,
    /// How often it was told of the operator's word.
    strokes: Arc<AtomicU64>,
    task: JoinHandle<BTreeMap<String, u64>>,
}

impl Hammer {
    fn start(roster: Roster, who: ProviderId) -> Self {
        let (over, strokes): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let (stop, count) = (Arc::clone(&over), Arc::clone(&strokes));
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
        Self { over, strokes, task }
    }

    async fn more(&self, strokes: u64) {
        let goal = self.strokes.load(Ordering::SeqCst) + strokes;
        until_async("it was tried again and again", PATIENCE, async || {
            self.strokes.load(Ordering::SeqCst) >= goal
        })
        .await;
    }

    /// Whether it was refused each time; an operator's word that nobody can look up is no permission either.
    async fn was_refused(self, about: &str) {
        self.over.store(true, Ordering::SeqCst);
        let heard = self.task.await.unwrap();
        let refusals = ["Deactivated", "Unavailable"];
        assert!(
            heard.keys().all(|answer| refusals.contains(&answer.as_str())),
            "{about}: {heard:?}"
        );
        assert!(heard["Deactivated"] >= 20, "{about}: {heard:?}");
    }
}

async fn shut_out(processes: &[Process; 2], who: &ProviderId, mirrored: bool) -> [Hammer; 2] {
    let shut = processes[0].roster.deactivate(who).await.unwrap();
    assert_eq!((shut.changed, shut.mirrored), (true, mirrored));
    let hammers = [0, 1].map(|n| Hammer::start(processes[n].roster.clone(), who.clone()));
    for process in processes {
        let refused = process.roster.online(who).await.unwrap();
        assert!(matches!(refused, Online::Deactivated(_)), "{refused:?}");
    }
    for hammer in &hammers {
        hammer.more(20).await;
    }
    hammers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_shut_out_is_refused_from_then_on() {
    let Some(valkey) = valkey::Server::with(valkey::Flavour::Valkey, DURABLE) else {
        return;
    };
    let Some(postgres) = postgres::Server::start() else {
        return;
    };
    let database = postgres.database();
    prepare("door", &database, &stale_after(secs(600))).await;
    let settings = || RostersSettings {
        // What is frozen is waited for, but a machine that stands still for a moment is not taken for that.
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

    for hammer in shut_out(&processes, up, true).await {
        hammer.was_refused("while it is up").await;
    }

    // Dead, and back with everything it had: it thinks that the one who was shut out is online.
    valkey.kill();
    let hammers = shut_out(&processes, dead, false).await;
    valkey.restart_with_data();
    all_believe(&processes).await;
    for hammer in hammers {
        hammer.more(50).await;
        hammer.was_refused("after a crash").await;
    }

    valkey.pause();
    let hammers = shut_out(&processes, hangs, false).await;
    valkey.resume();
    all_believe(&processes).await;
    for hammer in hammers {
        hammer.more(50).await;
        hammer.was_refused("after a freeze").await;
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
