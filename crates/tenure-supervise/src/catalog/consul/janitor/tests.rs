//! Orders, carried out at a real agent.

use std::net::TcpListener;

use tenure::{JoinOptions, Membership, Tenure};
use tenure_core::id::ConnectionId;
use tenure_core::membership::EndBy;
use tenure_core::session::Attach;
use tenure_testkit::consul::Agent;
use tokio::sync::watch;

use super::*;
use crate::catalog::consul::{ConsulSettings, Token, held_catalog};
use crate::catalog::{Catalog, Joined, Phase, Service};

const PATIENCE: Duration = Duration::from_secs(60);
/// No turn takes longer, on a machine that may stall for a moment: a loop that takes half a minute counts as stuck.
const A_TURN: Duration = Duration::from_secs(20);

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

    /// Turns until an order was tried, and says why it was not carried out.
    async fn tried(&self, janitor: &mut Janitor) -> String {
        let clock = self.tenure.clock();
        let tried = async {
            loop {
                janitor.look_at = Mono::default();
                let turn = janitor.turn().await.unwrap();
                if let Some(why) = janitor.queue.reasons().first() {
                    return (*why).to_owned();
                }
                clock.sleep(turn.next.unwrap().min(Duration::from_millis(50))).await;
            }
        };
        within(&**clock, PATIENCE, tried).await.unwrap()
    }

    /// Turns until only so many orders are left.
    async fn cleared(&self, janitor: &mut Janitor, left: u64) {
        let clock = self.tenure.clock();
        let cleared = async {
            while self.orders().await > left {
                let began = clock.mono();
                let turn = janitor.turn().await.unwrap();
                let took = clock.mono().since(began);
                assert!(took < A_TURN, "a turn took {took:?}");
                clock.sleep(turn.next.unwrap().min(Duration::from_millis(50))).await;
            }
        };
        assert!(within(&**clock, PATIENCE, cleared).await.is_some());
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
    assert_eq!(janitor.queue.len(), 0, "its tenure lives");
    world.end().await;
    assert!(world.tried(&mut janitor).await.contains("its supervisor beats"));
    assert_eq!(world.life().as_deref(), Some(catalog.life()), "it still serves");
    assert_eq!(world.orders().await, 1);
    drop(catalog);
    world.cleared(&mut janitor, 0).await;
    assert_eq!(world.life(), None);
    assert_eq!(janitor.queue.len(), 0);
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
    let why = world.tried(&mut janitor).await;
    assert_eq!(world.life().as_deref(), Some(later.life()));
    // Another machine has another agent at this address: there the dead one may still be.
    assert!(why.contains("the agent of this machine"), "{why}");
    assert_eq!(world.orders().await, 1);
}

#[tokio::test]
async fn an_order_that_cannot_be_carried_out_from_here_stays_for_others_and_says_why() {
    let Some(world) = World::new().await else { return };
    drop(world.registered().await);
    world.end().await;
    let mut foreign = world.janitor_for("10.0.0.0/8");
    let why = world.tried(&mut foreign).await;
    assert!(why.contains("not on the list"), "{why}");
    assert_eq!(foreign.turn().await.unwrap().skipped, 1);
    assert_eq!(world.orders().await, 1);
}

/// Connects many sessions to the membership.
async fn attach(world: &World, names: impl Iterator<Item = String>) {
    let (store, group) = (world.tenure.store(), world.membership.group());
    let attach = |name: String| Attach::new(SessionId::new(name).unwrap(), ConnectionId::new("c").unwrap());
    let all: Vec<Attach> = names.map(attach).collect();
    for part in all.chunks(1000) {
        let attached = store
            .attach(group, &world.membership.tenure(), part, Call::default())
            .await;
        assert_eq!(attached.unwrap().outcomes.len(), part.len());
    }
}

/// Waits until the store's janitor has detached so many.
async fn are_orders(world: &World, many: u64) {
    let all = async {
        while world.orders().await < many {
            world.tenure.clock().sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(within(&**world.tenure.clock(), PATIENCE, all).await.is_some());
}

/// An address that takes connections and answers nothing.
fn hanging() -> (TcpListener, u16) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test]
async fn agents_that_hang_delay_neither_a_turn_nor_another_agent() {
    let Some(world) = World::new().await else { return };
    let (_rack, port) = hanging();
    drop(world.registered().await);
    // By name they all come before the one that can be cleared away.
    let agents = (0..300).map(|n| format!("consul:-:127.1.{}.{}:{port}:web", n / 100, n % 100 + 1));
    attach(&world, agents).await;
    world.end().await;
    are_orders(&world, 301).await;
    let listed = format!("loopback:{port}, loopback:{}", world.agent.addr().port());
    let mut janitor = world.janitor_for(&listed);
    world.cleared(&mut janitor, 300).await;
    assert_eq!(world.life(), None);
}

#[tokio::test]
async fn agent_that_hangs_is_tried_with_one_order_at_a_time() {
    let Some(world) = World::new().await else { return };
    let (agent, port) = hanging();
    attach(&world, (0..50).map(|n| format!("consul:-:127.0.0.1:{port}:web-{n}"))).await;
    world.end().await;
    are_orders(&world, 50).await;
    let mut janitor = world.janitor_for(&format!("loopback:{port}"));
    // Two turns may take in the end of one try and not that of a second: it has to wait first.
    janitor.turn().await.unwrap();
    agent.set_nonblocking(true).unwrap();
    assert_eq!(agent.incoming().map_while(Result::ok).count(), 1);
    let why = world.tried(&mut janitor).await;
    assert!(why.contains("does not answer in time"), "{why}");
}

#[tokio::test]
async fn order_behind_many_disconnected_sessions_is_found() {
    let Some(world) = World::new().await else { return };
    drop(world.registered().await);
    attach(&world, (0..21_000).map(|n| format!("client-{n}"))).await;
    world.end().await;
    are_orders(&world, 21_001).await;
    let mut janitor = world.janitor();
    world.cleared(&mut janitor, 21_000).await;
    assert_eq!(world.life(), None);
}
