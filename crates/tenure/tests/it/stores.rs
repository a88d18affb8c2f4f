//! The client over real stores with real faults.

use std::time::Duration;

use tenure::{ClientSettings, ErrorKind, JoinOptions, Membership, OpenOptions, Tenure, Verdict};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait::until_async;
use tenure_testkit::{Mode, Proxy};

/// The ttl of members that should lapse.
const TTL: Duration = Duration::from_secs(2);
/// The ttl of members that should not lapse when the machine stalls shortly.
const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(40);

/// Time-outs that tolerate a short stall of the machine.
fn patient() -> OpenOptions {
    OpenOptions {
        request_timeout: Some(Duration::from_secs(5)),
        ..OpenOptions::default()
    }
}

async fn connect(url: &str) -> Tenure {
    Tenure::connect_with(url, patient(), ClientSettings::default())
        .await
        .unwrap()
}

async fn join(tenure: &Tenure, member: &str, ttl: Duration) -> Membership {
    let options = JoinOptions {
        ttl,
        ..JoinOptions::named(member).unwrap()
    };
    tenure.group("g").unwrap().join(options).await.unwrap()
}

async fn evicted(tenure: &Tenure) -> u64 {
    let query = tenure::EventQuery {
        after: None,
        limit: 1_000,
        kinds: vec![tenure::EventKind::Evicted],
        ..tenure::EventQuery::default()
    };
    let page = tenure.group("g").unwrap().events(&query).await.unwrap();
    page.events.iter().flat_map(|event| event.counts.values()).sum()
}

/// A process that dies: its runtime, thread and connections end without a leave.
async fn vanish(url: String, member: &'static str, keys: usize) {
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = tenure::open_store(&url, &patient()).await.unwrap();
            let (group, registry) = (
                tenure::Group::new("g").unwrap(),
                tenure::RegistryName::new("devices").unwrap(),
            );
            let join = tenure_core::membership::Join {
                member: tenure::MemberId::new(member).unwrap(),
                ttl: TTL,
                labels: tenure::Labels::default(),
            };
            let call = tenure_core::store::Call::default();
            let joined = store.join(&group, &join, call).await.unwrap();
            let keys: Vec<_> = (0..keys).map(|n| tenure::Key::new(format!("d{n}")).unwrap()).collect();
            let mode = tenure::ClaimMode::Take;
            store
                .claim(&group, &registry, &joined.tenure, &keys, mode, call)
                .await
                .unwrap();
        });
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn clients_clean_up_after_each_other_and_count_once() {
    for flavour in [Flavour::Valkey, Flavour::Redis] {
        let Some(server) = Server::start(flavour) else { continue };
        let clients = [connect(&server.url()).await, connect(&server.url()).await];
        let members = [
            join(&clients[0], "one", LONG).await,
            join(&clients[1], "two", LONG).await,
        ];
        vanish(server.url(), "gone", 1_000).await;
        until_async("all is evicted", SOON, async || evicted(&clients[0]).await == 1_000).await;
        let told = clients[1].group("g").unwrap().why("gone").await.unwrap().to_string();
        assert!(told.contains("lapsed") && told.contains("removed (devices"), "{told}");
        for member in &members {
            assert_eq!(member.status().rejoins, 0);
            member.leave().await.unwrap();
        }
        assert_eq!(evicted(&clients[1]).await, 1_000);
        for client in clients {
            client.close().await;
        }
    }
}

#[tokio::test]
async fn cut_connection_fails_closed_and_recovers() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let proxy = Proxy::start(server.addr());
    let near = connect(&server.url()).await;
    let far = connect(&proxy.url("valkey")).await;
    let (witness, member) = (join(&near, "witness", LONG).await, join(&far, "member", TTL).await);
    member.registry("devices").unwrap().claim("d1").await.unwrap();
    let (lost, tenure) = (member.lost(), member.tenure());
    proxy.set(Mode::BlackHole);
    until_async("it is lost", SOON, async || lost.is_cancelled()).await;
    assert_eq!(member.verdict(), Verdict::Lost);
    until_async("other clients see it lapse", SOON, async || {
        near.group("g").unwrap().member("member").await.unwrap().is_none()
    })
    .await;
    proxy.set(Mode::Pass);
    until_async("it is held again", SOON, async || member.verdict() == Verdict::Held).await;
    assert_ne!(member.tenure(), tenure);
    let devices = witness.registry("devices").unwrap();
    until_async("it owns its claim again", SOON, async || {
        devices
            .look_up("d1")
            .await
            .unwrap()
            .is_some_and(|claim| claim.tenure == member.tenure())
    })
    .await;
    assert_eq!(witness.status().rejoins, 0);
}

#[tokio::test]
async fn server_stopped_for_longer_than_the_ttl_ends_no_tenure() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let client = connect(&server.url()).await;
    // Its whole ttl is available after the server resumes.
    let member = join(&client, "member", TTL * 3).await;
    let (tenure, lost) = (member.tenure(), member.lost());
    server.pause();
    until_async("it is lost", SOON, async || lost.is_cancelled()).await;
    server.resume();
    until_async("it is held again", SOON, async || member.verdict() == Verdict::Held).await;
    assert_eq!((member.tenure(), member.status().rejoins), (tenure, 0));
}

#[tokio::test]
async fn server_data_loss_leads_to_a_rejoin() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let client = connect(&server.url()).await;
    let member = join(&client, "member", TTL).await;
    let devices = member.registry("devices").unwrap();
    devices.claim("d1").await.unwrap();
    let tenure = member.tenure();
    server.restart_empty();
    until_async("it joined again", SOON, async || member.tenure() != tenure).await;
    until_async("its claim is back", SOON, async || {
        matches!(devices.look_up("d1").await, Ok(Some(claim)) if claim.alive && claim.tenure == member.tenure())
    })
    .await;
}

#[tokio::test]
async fn claims_survive_a_restart_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("tenure.db").display());
    let client = connect(&url).await;
    let member = join(&client, "member", TTL * 3).await;
    member.registry("devices").unwrap().claim("d1").await.unwrap();
    client.close().await;
    // Leaving fails without its store, and the error says so.
    assert_eq!(member.leave().await.unwrap_err().kind(), ErrorKind::Unavailable);

    // No janitor, which would release the claim right after the join.
    let settings = ClientSettings {
        sweeper: None,
        ..ClientSettings::default()
    };
    let client = Tenure::connect_with(&url, patient(), settings).await.unwrap();
    let next = join(&client, "member", TTL * 3).await;
    assert!(next.tenure().term() > member.tenure().term());
    let devices = next.registry("devices").unwrap();
    let claim = devices.look_up("d1").await.unwrap().unwrap();
    assert!(
        !claim.alive && claim.tenure == member.tenure(),
        "held under the tenure that was superseded: {claim:?}"
    );
    client.close().await;

    let client = connect(&url).await;
    join(&client, "member", TTL * 3).await;
    until_async("the janitor removed it", SOON, async || evicted(&client).await == 1).await;
    client.close().await;
}
