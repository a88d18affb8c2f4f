//! The silence of the store is nobody's death: whatever breaks its health between two looks makes the looks begin anew.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_adopt::{Break, Janitor, Listener, Notice, PassReport};
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::ErrorKind;
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::{Mode, Proxy, wait};

use crate::registry::world::{PATIENCE, World, at_first, is_settling, patient, ready, settings};
use crate::world::connected;

const SETTLE_MS: u64 = 400;
/// A store that served again only after this long may be told of as silent, which counts from three seconds on, or as away.
const LONG: Duration = Duration::from_millis(2_500);

/// What came of harm that was done to the store.
struct Harmed {
    report: PassReport,
    /// From the beginning of the harm to its being noticed.
    away: Duration,
}

impl Harmed {
    fn breaks(&self) -> Vec<&'static str> {
        self.report.breaks.iter().map(Break::as_str).collect()
    }

    /// Asserts that it was noticed as this, unless the machine took so long that it was away or silent first.
    #[track_caller]
    fn is_noticed_as(&self, why: &'static str, how: &str) {
        let breaks = self.breaks();
        if self.away < LONG {
            assert_eq!(breaks, [why], "{how}: {:?}", self.report);
        } else {
            let known = [why, "silent", "unreachable"];
            assert!(!breaks.is_empty(), "{how}: {:?}", self.report);
            assert!(breaks.iter().all(|one| known.contains(one)), "{how}: {:?}", self.report);
        }
    }
}

/// Runs a pass over a fleet of which everyone looks dead, because `harm` was done to the store between the looks, and
/// everyone is back as soon as they can be: at the beginning of the next settling.
async fn harmed(world: &Arc<World>, url: &str, harm: impl FnOnce(&World) + Send + 'static) -> Harmed {
    let (harmed, harm) = (Arc::clone(world), Mutex::new(Some(harm)));
    let (clock, away) = (SystemClock::new(), Arc::new(Mutex::new((None, None))));
    let noted = Arc::clone(&away);
    let listener: Listener = Box::new(move |notice| match notice {
        Notice::Settling { .. } => match harm.lock().unwrap().take() {
            Some(harm) => {
                noted.lock().unwrap().0 = Some(clock.mono());
                harm(&harmed);
            }
            None => harmed.beat("alive"),
        },
        Notice::Quarantined(_) => {
            noted.lock().unwrap().1.get_or_insert(clock.mono());
        }
        _ => {}
    });
    let mut janitor = ready(url, settings(SETTLE_MS)).await.with_listener(listener);
    let report = janitor.pass(false).await.unwrap();
    assert_eq!(report.evicted_total(), 0, "{report:?}");
    assert_eq!(report.quarantined, None, "it went on after the quarantine: {report:?}");
    let (began, noticed) = *away.lock().unwrap();
    let away = noticed.expect("it was noticed").since(began.expect("it was done"));
    Harmed { report, away }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_begins_the_looks_anew() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let proxy = Proxy::start(world.server.addr());
        world.claim("device", "alive");
        let url = proxy.url("valkey");
        let harmed = harmed(&world, &url, move |_| {
            proxy.set(Mode::Reset);
            proxy.set(Mode::Pass);
            // It is kept for as long as the pass runs.
            std::mem::forget(proxy);
        })
        .await;
        harmed.is_noticed_as("reconnected", "cut");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_or_with_data_begins_the_looks_anew() {
    for flavour in Flavour::ALL {
        let Some(world) = World::with(flavour, DURABLE) else {
            return;
        };
        world.claim("device", "alive");
        let with_data = harmed(&world, &world.server.url(), |world| world.server.restart_with_data()).await;
        with_data.is_noticed_as("restarted", "with data");
        world.die("alive");
        let without = harmed(&world, &world.server.url(), |world| {
            world.server.restart_empty();
            // An application that fills its registry from elsewhere.
            world.claim("device", "alive");
        })
        .await;
        without.is_noticed_as("restarted", "without data");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_begins_the_looks_anew() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        world.claim("device", "alive");
        let harmed = harmed(&world, &world.server.url(), |world| {
            world.run(&["FLUSHALL"]);
            world.claim("device", "alive");
        })
        .await;
        harmed.is_noticed_as("data_lost", "flushed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stood_still_begins_the_looks_anew() {
    let Some(world) = World::start(Flavour::Valkey) else {
        return;
    };
    world.claim("device", "alive");
    let harmed = harmed(&world, &world.server.url(), |world| {
        world.server.pause();
        // Longer than a store may be silent, and longer than the settle time.
        let resume = format!("(sleep 4; kill -CONT {}) &", world.server.pid());
        assert!(Command::new("sh").args(["-c", &resume]).status().unwrap().success());
    })
    .await;
    let known = ["unreachable", "silent", "reconnected", "clock_jumped"];
    let breaks = harmed.breaks();
    assert!(!breaks.is_empty(), "{:?}", harmed.report);
    assert!(
        breaks.iter().all(|broken| known.contains(broken)),
        "{:?}",
        harmed.report
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_thrown_away_for_want_of_memory_begin_the_looks_anew() {
    for flavour in Flavour::ALL {
        let Some(world) = World::with(flavour, &["--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"]) else {
            return;
        };
        world.claim("device", "alive");
        let harmed = harmed(&world, &world.server.url(), |world| {
            let big = "x".repeat(500_000);
            for n in 0..100 {
                world.run(&["SET", &format!("big:{n}"), &big]);
            }
            world.run(&["FLUSHALL"]);
            world.claim("device", "alive");
        })
        .await;
        harmed.is_noticed_as("keys_evicted", "full");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_begins_the_looks_anew() {
    for flavour in Flavour::ALL {
        let Some(primary) = World::start(flavour) else { return };
        let Some(replica) = Server::start(flavour) else { return };
        primary.claim("device", "alive");
        replica.replica_of(&primary.server);
        let proxy = Proxy::start(primary.server.addr());
        // Whoever is behind the address changes its history while the connection stays.
        let harmed = harmed(&primary, &proxy.url("redis"), move |world| {
            replica.promote();
            world.server.replica_of(&replica);
            world.server.promote();
            std::mem::forget(replica);
        })
        .await;
        harmed.is_noticed_as("history_changed", "failed over");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused_and_nothing_removed() {
    for flavour in Flavour::ALL {
        let (Some(primary), Some(world)) = (World::start(flavour), World::start(flavour)) else {
            return;
        };
        primary.claim("device", "dead");
        world.server.replica_of(&primary.server);
        let mut janitor = ready(&world.server.url(), settings(0)).await;
        let error = janitor.pass(false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.chain().contains("primary"), "{error:?}");
        assert!(janitor.preview().await.is_err(), "a replica cannot tell who is dead");
        assert_eq!(primary.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_keeps_breaking_ends_the_pass_in_quarantine_and_the_next_one_works() {
    let Some(world) = World::start(Flavour::Valkey) else {
        return;
    };
    world.claim("device", "dead");
    let flushing = Arc::clone(&world);
    let flushes = Mutex::new(4);
    let mut janitor = ready(&world.server.url(), settings(100))
        .await
        .with_listener(Box::new(move |notice| {
            let mut flushes = flushes.lock().unwrap();
            if is_settling(notice) && *flushes > 0 {
                *flushes -= 1;
                flushing.run(&["FLUSHALL"]);
                flushing.claim("device", "dead");
            }
        }));
    let report = janitor.pass(false).await.unwrap();
    assert_eq!((report.quarantined, report.breaks.len()), (Some(Break::DataLost), 4));
    assert_eq!(world.len(), 1);
    let report = janitor.pass(false).await.unwrap();
    assert_eq!((report.quarantined, report.evicted.len()), (None, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_one_look_a_break_since_the_last_pass_costs_a_pass() {
    for flavour in Flavour::ALL {
        let Some(world) = World::with(flavour, DURABLE) else {
            return;
        };
        world.claim("device", "alive");
        world.beat("alive");
        let mut janitor = ready(&world.server.url(), settings(0)).await;
        assert_eq!(janitor.pass(false).await.unwrap().quarantined, None);
        world.server.restart_with_data();
        world.die("alive");
        let report = loop {
            // Until the connection is there again.
            match janitor.pass(false).await {
                Ok(report) => break report,
                Err(error) => assert!(error.is_unavailable(), "{error:?}"),
            }
        };
        assert_eq!((report.quarantined, world.len()), (Some(Break::Restarted), 1));
        let report = janitor.pass(false).await.unwrap();
        assert_eq!((report.quarantined, world.len()), (None, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_info_config_and_keys_is_enough_and_breaks_still_show() {
    for flavour in Flavour::ALL {
        // A user that is there as soon as the server is: whoever comes before it is denied, and that is no outage.
        let user = [
            "--user",
            "janitor",
            "on",
            ">pass",
            "~connections:*",
            "~instance:*",
            "~tenure:adopt:*",
            "-@all",
            "+eval",
            "+evalsha",
            "+time",
            "+get",
            "+set",
            "+del",
            "+pexpire",
            "+hscan",
            "+hget",
            "+hdel",
            "+exists",
            "+pttl",
            "+ping",
            "+type",
            "+select",
        ];
        let Some(world) = World::with(flavour, &user) else {
            return;
        };
        let url = world.server.url().replace("://", "://janitor:pass@");
        world.claim("device", "dead");
        world.claim("other", "alive");
        world.beat("alive");
        let mut janitor = ready(&url, settings(100)).await;
        assert_eq!(janitor.pass(false).await.unwrap().evicted_total(), 1);
        world.die("alive");
        let harmed = harmed(&world, &url, |world| {
            world.server.restart_empty();
            world.claim("device", "alive");
        })
        .await;
        harmed.is_noticed_as("data_lost", "restarted");
        // One permission less, and it is said which ones are needed.
        world.run(&["ACL", "SETUSER", "janitor", "-hscan"]);
        let error = ready(&url, settings(0)).await.pass(false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("+hscan"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_is_a_passing_error_and_nothing_is_removed_by_halves() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        world.claim_many("dead", 0..300);
        world.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        let full = Arc::clone(&world);
        let mut janitor = ready(&world.server.url(), settings(0)).await.with_listener(at_first(
            |notice| matches!(notice, Notice::Evicting(_)),
            move || drop(full.run(&["CONFIG", "SET", "maxmemory", "1"])),
        ));
        let error = janitor.pass(false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert_eq!(world.len(), 300);
        world.run(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(janitor.pass(false).await.unwrap().evicted_total(), 300);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn preview_over_two_connections_is_refused() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        world.claim_many("dead", 0..2_000);
        let proxy = Arc::new(Proxy::start(world.server.addr()));
        let connection = connected(&proxy.url("valkey"), patient()).await;
        let (cutting, cut, life) = (Arc::clone(&proxy), connection.clone(), connection.life());
        let cut_and_reconnect = at_first(
            |notice| matches!(notice, Notice::Scanned { .. }),
            move || {
                cutting.set(Mode::Reset);
                cutting.wait("the connection is cut", |counts| counts.reset > 0);
                cutting.set(Mode::Pass);
                wait::until("it is connected again", PATIENCE, || {
                    cut.life().is_some() && cut.life() != life
                });
            },
        );
        let mut janitor = Janitor::new(connection, settings(0)).with_listener(cut_and_reconnect);
        let error = janitor.preview().await.unwrap_err();
        assert!(
            error.is_unavailable() && error.to_string().contains("incomplete"),
            "{error}"
        );
    }
}
