//! An agent that is down, frozen, restarted without its state, or slow.

use std::time::{Duration, Instant};

use tenure_supervise::catalog::{Flushed, Phase};
use tenure_testkit::consul::Agent;
use tenure_testkit::{Mode, Proxy, wait};

use super::{PATIENCE, Way, health, phase, service, until_health};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_is_registered_once_the_agent_is_up() {
    let Some(agent) = Agent::start() else { return };
    let proxy = Proxy::start(agent.addr());
    proxy.set(Mode::Refuse);
    let catalog = Way::to(proxy.addr()).catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Registering).await;
    proxy.set(Mode::Pass);
    phase(&catalog, Phase::Passing).await;
    for mode in [Mode::BlackHole, Mode::Reset, Mode::DropReplies, Mode::Refuse] {
        proxy.set(mode);
        phase(&catalog, Phase::Unconfirmed).await;
        proxy.set(Mode::Pass);
        phase(&catalog, Phase::Passing).await;
        until_health(&agent, "web-1", "passing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_passes_again_after_the_agent_was_frozen() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.addr()).catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    agent.process().pause().unwrap();
    phase(&catalog, Phase::Unconfirmed).await;
    agent.process().resume().unwrap();
    phase(&catalog, Phase::Passing).await;
    until_health(&agent, "web-1", "passing");
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_agent_without_state_gets_the_service_again() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.addr()).catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    for _ in 0..2 {
        agent.restart_empty();
        until_health(&agent, "web-1", "passing");
    }
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
    assert_eq!(health(&agent, "web-1"), "unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_registration_reply_is_cleaned_up_by_the_stop() {
    let Some(agent) = Agent::start() else { return };
    let proxy = Proxy::start(agent.addr());
    let slow = Duration::from_secs(5);
    proxy.set(Mode::Delay {
        requests: Duration::ZERO,
        replies: slow,
    });
    let catalog = Way::to(proxy.addr()).catalog(service("web-1"));
    catalog.want(true);
    until_health(&agent, "web-1", "critical");
    proxy.set(Mode::Pass);
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
    assert_eq!(health(&agent, "web-1"), "unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registration_arriving_after_its_removal_is_removed() {
    let Some(agent) = Agent::start() else { return };
    let proxy = Proxy::start(agent.addr());
    proxy.set(Mode::HoldRequests);
    let home = tempfile::tempdir().unwrap();
    let mut way = Way::to(proxy.addr());
    way.journal = Some(home.path().to_owned());
    let catalog = way.catalog(service("web-1"));
    catalog.want(true);
    proxy
        .wait_async("the registration is held", |counts| counts.held > 0)
        .await;
    // Held requests stay held; new ones pass.
    proxy.set(Mode::Pass);
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
    assert_eq!(health(&agent, "web-1"), "unknown");
    let kept = || std::fs::read_dir(home.path()).unwrap().count();
    assert_eq!(kept(), 1, "the next start would search for it, too");
    // The actor checks every few seconds; right after a check there is time to observe the late arrival.
    let quiet = proxy.counts();
    proxy
        .wait_async("the actor checked for it", |counts| {
            counts.accepted > quiet.accepted && counts.open <= quiet.open
        })
        .await;
    proxy.release();
    until_health(&agent, "web-1", "critical");
    until_health(&agent, "web-1", "unknown");
}

/// For a while, one in a few requests takes longer than two beats. Clients see no change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_agent_keeps_the_service_passing() {
    let Some(agent) = Agent::start() else { return };
    let proxy = Proxy::start(agent.addr());
    let mut service = service("web-1");
    // A slow request takes four of these; the rest is slack for a stalling machine.
    service.ttl = Duration::from_secs(15);
    let catalog = Way::to(proxy.addr()).catalog(service);
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    // A dozen beats.
    let soak = wait::soak(Duration::from_secs(60));
    let (end, mut slow) = (Instant::now() + soak, 0);
    wait::until("the soak is over", soak * 2, || {
        assert_eq!(health(&agent, "web-1"), "passing", "{}", catalog.status());
        let turn = proxy.counts().accepted;
        let mode = if turn % 5 == 4 {
            slow = turn;
            Mode::Delay {
                requests: Duration::from_secs(10),
                replies: Duration::ZERO,
            }
        } else {
            Mode::Pass
        };
        proxy.set(mode);
        Instant::now() > end
    });
    assert!(slow > 0, "no request was slow");
}
