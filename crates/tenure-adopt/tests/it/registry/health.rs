//! A store outage makes no owner dead: any break of its health between two checks restarts the checks.

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
/// A store that serves again only after this long may be reported as silent (from three seconds on) or unreachable.
const LONG: Duration = Duration::from_millis(2_500);

/// The effects of a fault in the store.
struct Harmed {
    report: PassReport,
    /// From the start of the fault to its detection.
    away: Duration,
}

impl Harmed {
    fn breaks(&self) -> Vec<&'static str> {
        self.report.breaks.iter().map(Break::as_str).collect()
    }

    /// Asserts that the fault was detected with this reason, unless the machine stalled so long that the store was
    /// unreachable or silent first.
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

/// Runs a pass over a fleet in which all owners appear dead, because `harm` affects the store between the checks. All
/// owners beat again as early as possible: when the next settling starts.
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
    assert_eq!(
        report.quarantined, None,
        "the pass did not recover from the quarantine: {report:?}"
    );
    let (began, noticed) = *away.lock().unwrap();
    let away = noticed
        .expect("the fault was detected")
        .since(began.expect("the fault started"));
    Harmed { report, away }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connection_restarts_the_checks() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let proxy = Proxy::start(world.server.addr());
        world.claim("device", "alive");
        let url = proxy.url("valkey");
        let harmed = harmed(&world, &url, move |_| {
            proxy.set(Mode::Reset);
            proxy.set(Mode::Pass);
            // Kept alive for the duration of the pass.
            std::mem::forget(proxy);
        })
        .await;
        harmed.is_noticed_as("reconnected", "cut");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_with_or_without_data_restarts_the_checks() {
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
            // An application that fills its registry from another source.
            world.claim("device", "alive");
        })
        .await;
        without.is_noticed_as("restarted", "without data");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flush_restarts_the_checks() {
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
async fn frozen_store_restarts_the_checks() {
    let Some(world) = World::start(Flavour::Valkey) else {
        return;
    };
    world.claim("device", "alive");
    let harmed = harmed(&world, &world.server.url(), |world| {
        world.server.pause();
        // Longer than the tolerated silence and the settle time.
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
async fn key_eviction_restarts_the_checks() {
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
async fn failover_restarts_the_checks() {
    for flavour in Flavour::ALL {
        let Some(primary) = World::start(flavour) else { return };
        let Some(replica) = Server::start(flavour) else { return };
        primary.claim("device", "alive");
        replica.replica_of(&primary.server);
        let proxy = Proxy::start(primary.server.addr());
        // The server's replication history changes while the connection stays.
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
async fn replica_is_rejected_and_nothing_is_evicted() {
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
        assert!(janitor.preview().await.is_err(), "a replica cannot decide who is dead");
        assert_eq!(primary.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_breaks_quarantine_the_pass_but_not_the_next() {
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
async fn without_settle_time_a_break_between_passes_skips_one() {
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
            // Until the connection is up again.
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
async fn breaks_are_detected_without_info_config_and_keys() {
    for flavour in Flavour::ALL {
        // The user exists from the server's start: a connection without it would be denied, which is not an outage.
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
        // With one permission less, the error lists the required ones.
        world.run(&["ACL", "SETUSER", "janitor", "-hscan"]);
        let error = ready(&url, settings(0)).await.pass(false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("+hscan"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_store_is_a_transient_error_without_partial_removal() {
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
async fn preview_over_two_connections_is_rejected() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        world.claim_many("dead", 0..2_000);
        let proxy = Arc::new(Proxy::start(world.server.addr()));
        let connection = connected(&proxy.url("valkey"), patient()).await;
        let (cutting, cut, generation) = (Arc::clone(&proxy), connection.clone(), connection.generation());
        let cut_and_reconnect = at_first(
            |notice| matches!(notice, Notice::Scanned { .. }),
            move || {
                cutting.set(Mode::Reset);
                cutting.wait("the connection is cut", |counts| counts.reset > 0);
                cutting.set(Mode::Pass);
                wait::until("the client has reconnected", PATIENCE, || {
                    cut.generation().is_some() && cut.generation() != generation
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
