//! An agent that is away, stands still, forgets everything, or is slow.

use std::time::{Duration, Instant};

use tenure_supervise::catalog::{Flushed, Phase};
use tenure_testkit::consul::Agent;
use tenure_testkit::{Mode, Proxy, wait};

use super::{PATIENCE, Way, health, phase, service, until_health};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_away_at_first_is_told_when_it_comes() {
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
async fn an_agent_that_stands_still_and_goes_on_has_it_passing_again() {
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
async fn an_agent_that_was_started_again_without_its_state_is_told_again() {
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
async fn a_registration_that_is_answered_late_is_gone_after_the_stop() {
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
async fn a_registration_that_arrives_after_its_removal_is_removed_again() {
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
    // What is held stays held; what comes now passes.
    proxy.set(Mode::Pass);
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
    assert_eq!(health(&agent, "web-1"), "unknown");
    let kept = || std::fs::read_dir(home.path()).unwrap().count();
    assert_eq!(kept(), 1, "the next start would look for it, too");
    // It is looked for every few seconds; right after a look there is time to see what arrives.
    let quiet = proxy.counts();
    proxy
        .wait_async("it was looked for", |counts| {
            counts.accepted > quiet.accepted && counts.open <= quiet.open
        })
        .await;
    proxy.release();
    until_health(&agent, "web-1", "critical");
    until_health(&agent, "web-1", "unknown");
}

/// Every few requests one takes longer than two beats, for a good while: whoever watches sees no change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_an_agent_being_slow() {
    let Some(agent) = Agent::start() else { return };
    let proxy = Proxy::start(agent.addr());
    let mut service = service("web-1");
    // A slow one takes four of these, and what is left of them is for a machine that stands still for a moment.
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
    assert!(slow > 0, "nothing was slow");
}
