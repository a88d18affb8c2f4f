//! Orders carried out at a real agent.

use std::net::TcpListener;

use tenure::{JoinOptions, Membership, Tenure};
use tenure_core::id::ConnectionId;
use tenure_core::membership::EndBy;
use tenure_core::session::Attach;
use tenure_testkit::consul::Agent;
use tokio::sync::watch;

use super::*;
use crate::catalog::consul::{ConsulSettings, Token, held_catalog};
use crate::catalog::{Catalog, MembershipWatch, Phase, Service};

const PATIENCE: Duration = Duration::from_secs(60);
/// The limit of a turn on a stalling machine; a loop counts as stuck after half a minute.
const A_TURN: Duration = Duration::from_secs(20);

/// A supervisor without a child: a member with a registration.
struct Fixture {
    agent: Agent,
    tenure: Tenure,
    membership: Arc<Membership>,
    joined: MembershipWatch,
}

impl Fixture {
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
        // Long enough that the service keeps passing through a short stall of the machine.
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

    /// Ends the tenure and waits until the store's janitor has disconnected the session.
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

    /// A janitor that may call the agent.
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

    /// Turns until an order was attempted. Returns why it was not carried out.
    async fn tried(&self, janitor: &mut Janitor) -> String {
        let clock = self.tenure.clock();
        let tried = async {
            loop {
                janitor.scan_at = Mono::default();
                let turn = janitor.turn().await.unwrap();
                if let Some(why) = janitor.queue.reasons().first() {
                    return (*why).to_owned();
                }
                clock.sleep(turn.next.unwrap().min(Duration::from_millis(50))).await;
            }
        };
        within(&**clock, PATIENCE, tried).await.unwrap()
    }

    /// Turns until at most `left` orders remain.
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
async fn registration_of_dead_supervisor_is_removed_after_last_beat() {
    let Some(fixture) = Fixture::new().await else { return };
    let catalog = fixture.registered().await;
    let mut janitor = fixture.janitor();
    janitor.turn().await.unwrap();
    assert_eq!(janitor.queue.len(), 0, "its tenure lives");
    fixture.end().await;
    assert!(fixture.tried(&mut janitor).await.contains("its supervisor still beats"));
    assert_eq!(fixture.life().as_deref(), Some(catalog.life()), "it still serves");
    assert_eq!(fixture.orders().await, 1);
    drop(catalog);
    fixture.cleared(&mut janitor, 0).await;
    assert_eq!(fixture.life(), None);
    assert_eq!(janitor.queue.len(), 0);
}

#[tokio::test]
async fn a_later_life_under_the_same_id_is_left_alone() {
    let Some(fixture) = Fixture::new().await else { return };
    drop(fixture.registered().await);
    let settings = ConsulSettings::new(fixture.agent.url());
    let mut service = Service::new("web-1", "web", 80);
    // Long enough that missing beats do not decide.
    service.ttl = Duration::from_secs(50);
    let later = super::super::catalog(settings, service, fixture.tenure.clock()).unwrap();
    later.want(true);
    let mut status = later.watch();
    let passing = status.wait_for(|status| status.phase == Phase::Passing);
    assert!(within(&**fixture.tenure.clock(), PATIENCE, passing).await.is_some());
    fixture.end().await;
    let mut janitor = fixture.janitor();
    let why = fixture.tried(&mut janitor).await;
    assert_eq!(fixture.life().as_deref(), Some(later.life()));
    // On another machine this loopback address is another agent, where the dead registration may be.
    assert!(why.contains("the agent of this machine"), "{why}");
    assert_eq!(fixture.orders().await, 1);
}

#[tokio::test]
async fn order_for_a_forbidden_agent_stays_for_other_janitors() {
    let Some(fixture) = Fixture::new().await else { return };
    drop(fixture.registered().await);
    fixture.end().await;
    let mut foreign = fixture.janitor_for("10.0.0.0/8");
    let why = fixture.tried(&mut foreign).await;
    assert!(why.contains("not on the list"), "{why}");
    assert_eq!(foreign.turn().await.unwrap().skipped, 1);
    assert_eq!(fixture.orders().await, 1);
}

/// Attaches many sessions to the membership.
async fn attach(fixture: &Fixture, names: impl Iterator<Item = String>) {
    let (store, group) = (fixture.tenure.store(), fixture.membership.group());
    let attach = |name: String| Attach::new(SessionId::new(name).unwrap(), ConnectionId::new("c").unwrap());
    let all: Vec<Attach> = names.map(attach).collect();
    for part in all.chunks(1000) {
        let attached = store
            .attach(group, &fixture.membership.tenure(), part, Call::default())
            .await;
        assert_eq!(attached.unwrap().outcomes.len(), part.len());
    }
}

/// Waits until the store's janitor has disconnected this many sessions.
async fn are_orders(fixture: &Fixture, many: u64) {
    let all = async {
        while fixture.orders().await < many {
            fixture.tenure.clock().sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(within(&**fixture.tenure.clock(), PATIENCE, all).await.is_some());
}

/// A port that accepts connections and never responds.
fn hanging() -> (TcpListener, u16) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test]
async fn hung_agents_delay_neither_turns_nor_other_agents() {
    let Some(fixture) = Fixture::new().await else { return };
    let (_rack, port) = hanging();
    drop(fixture.registered().await);
    // These sort before the order that can be carried out.
    let agents = (0..300).map(|n| format!("consul:-:127.1.{}.{}:{port}:web", n / 100, n % 100 + 1));
    attach(&fixture, agents).await;
    fixture.end().await;
    are_orders(&fixture, 301).await;
    let listed = format!("loopback:{port}, loopback:{}", fixture.agent.addr().port());
    let mut janitor = fixture.janitor_for(&listed);
    fixture.cleared(&mut janitor, 300).await;
    assert_eq!(fixture.life(), None);
}

#[tokio::test]
async fn hung_agent_gets_one_attempt_at_a_time() {
    let Some(fixture) = Fixture::new().await else { return };
    let (agent, port) = hanging();
    attach(&fixture, (0..50).map(|n| format!("consul:-:127.0.0.1:{port}:web-{n}"))).await;
    fixture.end().await;
    are_orders(&fixture, 50).await;
    let mut janitor = fixture.janitor_for(&format!("loopback:{port}"));
    // Two turns may see the end of one attempt but not of a second one, which must wait first.
    janitor.turn().await.unwrap();
    agent.set_nonblocking(true).unwrap();
    assert_eq!(agent.incoming().map_while(Result::ok).count(), 1);
    let why = fixture.tried(&mut janitor).await;
    assert!(why.contains("does not respond in time"), "{why}");
}

#[tokio::test]
async fn order_behind_many_disconnected_sessions_is_found() {
    let Some(fixture) = Fixture::new().await else { return };
    drop(fixture.registered().await);
    attach(&fixture, (0..21_000).map(|n| format!("client-{n}"))).await;
    fixture.end().await;
    are_orders(&fixture, 21_001).await;
    let mut janitor = fixture.janitor();
    fixture.cleared(&mut janitor, 21_000).await;
    assert_eq!(fixture.life(), None);
}
