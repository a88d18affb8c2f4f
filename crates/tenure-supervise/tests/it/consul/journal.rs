//! Registrations that a killed process leaves behind and its successor removes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_supervise::catalog::{Catalog, Flushed, Phase};
use tenure_testkit::consul::Agent;
use tenure_testkit::{Mode, Proxy, wait};

use super::{PATIENCE, Way, health, listed, phase, put, service, until_health};

/// Kills without a flush. A killed process releases its lock; here the end of the task does.
fn kill(catalog: Catalog, journal: &Path) {
    drop(catalog);
    let dead = |path: PathBuf| File::open(path).is_ok_and(|file| file.try_lock().is_ok());
    wait::until("the lock is released", PATIENCE, || {
        let mut files = std::fs::read_dir(journal).unwrap();
        files.all(|file| dead(file.unwrap().path()))
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_removal_is_retried_at_the_next_start() {
    let Some(agent) = Agent::start() else { return };
    let (proxy, home) = (Proxy::start(agent.addr()), tempfile::tempdir().unwrap());
    let mut way = Way::to(proxy.addr());
    way.journal = Some(home.path().join("journal"));
    let first = way.catalog(service("web-1"));
    first.want(true);
    phase(&first, Phase::Passing).await;
    proxy.set(Mode::Refuse);
    let flushed = first.flush(Duration::from_millis(500)).await;
    assert!(matches!(flushed, Flushed::Journalled(_)), "{flushed:?}");
    kill(first, &home.path().join("journal"));
    // The next process has another id, waits for the agent, and registers nothing.
    let second = way.catalog(service("web-2"));
    assert_ne!(health(&agent, "web-1"), "unknown");
    proxy.set(Mode::Pass);
    until_health(&agent, "web-1", "unknown");
    second.want(true);
    phase(&second, Phase::Passing).await;
    assert_eq!(second.flush(PATIENCE).await, Flushed::Gone);
    // The removal is confirmed before the journal entry is removed: for a minute, if a request was under way.
    let left = || std::fs::read_dir(home.path().join("journal")).unwrap().count();
    wait::until("the journal is empty", PATIENCE + PATIENCE / 2, || left() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_kills_leave_only_one_service() {
    let Some(agent) = Agent::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let mut way = Way::to(agent.addr());
    way.journal = Some(home.path().to_owned());
    for life in 0..5 {
        // A new id each time; without cleanup the listing would grow.
        let mut service = service(&format!("web-{life}"));
        // The leftover is removed first, but delays the new registration by at most a beat.
        service.ttl = Duration::from_secs(60);
        let catalog = way.catalog(service);
        catalog.want(true);
        phase(&catalog, Phase::Passing).await;
        let (_, services) = agent.http("GET", "/v1/agent/services", "").unwrap();
        let services: serde_json::Value = serde_json::from_str(&services).unwrap();
        assert_eq!(services.as_object().unwrap().len(), 1, "{services}");
        kill(catalog, home.path());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registration_of_a_living_process_is_kept() {
    let Some(agent) = Agent::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let mut way = Way::to(agent.addr());
    way.journal = Some(home.path().to_owned());
    let (one, other) = (way.catalog(service("web-1")), way.catalog(service("web-2")));
    for catalog in [&one, &other] {
        catalog.want(true);
        phase(catalog, Phase::Passing).await;
    }
    let third = way.catalog(service("web-3"));
    third.want(true);
    phase(&third, Phase::Passing).await;
    for id in ["web-1", "web-2", "web-3"] {
        assert_eq!(health(&agent, id), "passing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftover_at_another_agent_is_removed_there() {
    let (Some(old), Some(new)) = (Agent::start(), Agent::start()) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut way = Way::to(old.addr());
    way.journal = Some(home.path().to_owned());
    let first = way.catalog(service("web-1"));
    first.want(true);
    phase(&first, Phase::Passing).await;
    kill(first, home.path());
    way.address = new.url();
    let second = way.catalog(service("web-1"));
    second.want(true);
    phase(&second, Phase::Passing).await;
    until_health(&old, "web-1", "unknown");
    assert_eq!(health(&new, "web-1"), "passing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_service_under_a_leftover_id_is_kept() {
    let Some(agent) = Agent::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let mut way = Way::to(agent.addr());
    way.journal = Some(home.path().to_owned());
    let first = way.catalog(service("web-1"));
    first.want(true);
    phase(&first, Phase::Passing).await;
    kill(first, home.path());
    put(&agent, &serde_json::json!({"ID": "web-1", "Name": "web", "Port": 1}));
    let second = way.catalog(service("web-2"));
    second.want(true);
    phase(&second, Phase::Passing).await;
    let left = || std::fs::read_dir(home.path()).unwrap().count();
    wait::until("the journal has only its own entry", PATIENCE, || left() == 1);
    assert_eq!(listed(&agent, "web-1")["Port"], 1);
}
