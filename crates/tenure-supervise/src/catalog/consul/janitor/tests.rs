//! Orders, carried out at a real agent.

use tenure::{JoinOptions, Membership, Tenure};
use tenure_core::membership::EndBy;
use tenure_testkit::consul::Agent;
use tokio::sync::watch;

use super::*;
use crate::catalog::consul::{ConsulSettings, Token, held_catalog};
use crate::catalog::{Catalog, Joined, Phase, Service};

const PATIENCE: Duration = Duration::from_secs(60);

/// A supervisor without a child: a member with a registration.
struct World {
    agent: Agent,
    tenure: Tenure,
    membership: Arc<Membership>,
    joined: Joined,
}

impl World {
    async fn new() -> Option<Self> {
        let agent = Agent::start()?;
        let tenure = Tenure::connect("memory:").await.unwrap();
        let options = JoinOptions::named("one").unwrap();
        let membership = Arc::new(tenure.group("web").unwrap().join(options).await.unwrap());
        let joined = watch::channel(Some(Arc::clone(&membership))).1;
        Some(Self {
            agent,
            tenure,
            membership,
            joined,
        })
    }

    async fn registered(&self) -> Catalog {
        let mut service = Service::new("web-1", "web", 80);
        // So long that it is passing for as long as it beats, also on a machine that stands still for a moment.
        service.ttl = Duration::from_secs(9);
        let settings = ConsulSettings::new(self.agent.url());
        let catalog = held_catalog(settings, service, self.joined.clone(), self.tenure.clock()).unwrap();
        catalog.want(true);
        let mut status = catalog.watch();
        let passing = status.wait_for(|status| status.phase == Phase::Passing);
        let came = within(&**self.tenure.clock(), PATIENCE, passing).await.is_some();
        assert!(came, "{}", catalog.status());
        catalog
    }

    /// Ends the tenure, and waits until the store's janitor has made an order of it.
    async fn end(&self) {
        let (store, group) = (self.tenure.store(), self.membership.group());
        let tenure = self.membership.tenure();
        store.end(group, &tenure, EndBy::Expel, Call::default()).await.unwrap();
        let clock = self.tenure.clock();
        let ordered = async {
            while self.orders().await == 0 {
                clock.sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(within(&**clock, PATIENCE, ordered).await.is_some());
    }

    async fn orders(&self) -> u64 {
        let stats = self.tenure.store().session_stats(self.membership.group()).await;
        stats.unwrap().disconnected
    }

    /// One that may call the agent.
    fn janitor(&self) -> Janitor {
        self.janitor_for(&format!("loopback:{}", self.agent.addr().port()))
    }

    fn janitor_for(&self, allowed: &str) -> Janitor {
        let clock = Arc::clone(self.tenure.clock());
        let allowed = allowed.parse().unwrap();
        let agents = RemoteAgents::new(allowed, Token::none(), Duration::from_secs(10), Arc::clone(&clock));
        let groups = vec![self.membership.group().clone()];
        Janitor::new(Arc::clone(self.tenure.store()), groups, agents, clock)
    }

    fn life(&self) -> Option<String> {
        let (status, body) = self.agent.http("GET", "/v1/agent/service/web-1", "").unwrap();
        let body: serde_json::Value = (status == 200).then(|| serde_json::from_str(&body).unwrap())?;
        Some(body["Meta"][super::super::LIFE].as_str()?.to_owned())
    }
}

#[tokio::test]
async fn what_a_dead_supervisor_has_left_goes_once_nobody_beats_for_it() {
    let Some(world) = World::new().await else { return };
    let catalog = world.registered().await;
    let mut janitor = world.janitor();
    janitor.turn().await.unwrap();
    assert!(janitor.orders.is_empty(), "its tenure lives");
    world.end().await;
    janitor.turn().await.unwrap();
    assert_eq!(world.life().as_deref(), Some(catalog.life()), "it still serves");
    assert_eq!(world.orders().await, 1);
    drop(catalog);
    let clock = world.tenure.clock();
    let cleared = async {
        while world.orders().await > 0 {
            let turn = janitor.turn().await.unwrap();
            clock.sleep(turn.next.unwrap().min(Duration::from_millis(50))).await;
        }
    };
    assert!(within(&**clock, PATIENCE, cleared).await.is_some());
    assert_eq!(world.life(), None);
    assert!(janitor.orders.is_empty());
}

#[tokio::test]
async fn a_later_life_under_the_same_id_is_left_alone() {
    let Some(world) = World::new().await else { return };
    drop(world.registered().await);
    let settings = ConsulSettings::new(world.agent.url());
    let mut service = Service::new("web-1", "web", 80);
    // So long that it is not the missing beats that tell.
    service.ttl = Duration::from_secs(50);
    let later = super::super::catalog(settings, service, world.tenure.clock()).unwrap();
    later.want(true);
    let mut status = later.watch();
    let passing = status.wait_for(|status| status.phase == Phase::Passing);
    assert!(within(&**world.tenure.clock(), PATIENCE, passing).await.is_some());
    world.end().await;
    let mut janitor = world.janitor();
    janitor.turn().await.unwrap();
    assert_eq!(world.life().as_deref(), Some(later.life()));
    // Another machine has another agent at this address: there the dead one may still be.
    let why = janitor.orders.values().next().unwrap().why.clone();
    assert!(why.contains("the agent of this machine"), "{why}");
    assert_eq!(world.orders().await, 1);
}

#[tokio::test]
async fn an_order_that_cannot_be_carried_out_from_here_stays_for_others_and_says_why() {
    let Some(world) = World::new().await else { return };
    drop(world.registered().await);
    world.end().await;
    let mut foreign = world.janitor_for("10.0.0.0/8");
    assert_eq!(foreign.turn().await.unwrap().skipped, 1);
    let why = foreign.orders.values().next().unwrap().why.clone();
    assert!(why.contains("not on the list"), "{why}");
    assert_eq!(world.orders().await, 1);
}
