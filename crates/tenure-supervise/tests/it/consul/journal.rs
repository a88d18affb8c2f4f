//! What a process leaves behind, and its successor removes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_supervise::catalog::{Catalog, Flushed, Phase};
use tenure_testkit::consul::Agent;
use tenure_testkit::{Mode, Proxy, wait};

use super::{PATIENCE, Way, health, listed, phase, put, service, until_health};

/// Nothing more is flushed, and the lock goes with the process; here it goes with the task.
fn kill(catalog: Catalog, journal: &Path) {
    drop(catalog);
    let dead = |path: PathBuf| File::open(path).is_ok_and(|file| file.try_lock().is_ok());
    wait::until("the lock is gone", PATIENCE, || {
        let mut files = std::fs::read_dir(journal).unwrap();
        files.all(|file| dead(file.unwrap().path()))
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_failed_is_made_good_at_the_next_start() {
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
    // The next one has another id, waits for the agent, and registers nothing.
    let second = way.catalog(service("web-2"));
    assert_ne!(health(&agent, "web-1"), "unknown");
    proxy.set(Mode::Pass);
    until_health(&agent, "web-1", "unknown");
    second.want(true);
    phase(&second, Phase::Passing).await;
    assert_eq!(second.flush(PATIENCE).await, Flushed::Gone);
    // The removal is confirmed before it is struck out.
    let left = || std::fs::read_dir(home.path().join("journal")).unwrap().count();
    wait::until("nothing is left in the journal", PATIENCE, || left() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_often_it_is_killed_there_is_one_service() {
    let Some(agent) = Agent::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let mut way = Way::to(agent.addr());
    way.journal = Some(home.path().to_owned());
    for life in 0..5 {
        // A fresh id each time, which is what makes lists grow.
        let mut service = service(&format!("web-{life}"));
        // What the life before has left goes first, but holds up the new one for no longer than a beat.
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
async fn what_the_living_have_registered_is_not_removed() {
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
async fn what_was_left_at_another_agent_is_removed_there() {
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
async fn what_somebody_else_has_registered_under_the_id_of_the_dead_is_left_alone() {
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
    wait::until("the journal has its own alone", PATIENCE, || left() == 1);
    assert_eq!(listed(&agent, "web-1")["Port"], 1);
}
