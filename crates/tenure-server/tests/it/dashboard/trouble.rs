//! Brakes, graces, and a daemon that comes and goes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::loops::{LoopBody, LoopSettings, Loops, Turn};
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::membership::EndBy;
use tenure_core::memory::MemoryStore;
use tenure_core::pulse::BeatPulse;
use tenure_core::store::{Call, Store, StoreOptions};
use tenure_core::sweep::SweepSteps;
use tenure_server::{Server, Settings};
use tenure_testkit::port::Port;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::common::{Daemon, PATIENCE};
use crate::dashboard::fixture::{group, join_at, parts, store};
use crate::dashboard::page::{DESK, Page};

/// Advances the time in steps shorter than a gap.
async fn pass(clock: &ManualClock, store: &MemoryStore, group: &Group, seconds: u64) {
    for _ in 0..seconds {
        clock.advance(Duration::from_secs(1));
        store.beat_pulse(BeatPulse::default()).await.expect("a pulse");
        store.tick(group).await.expect("a tick");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grace_and_a_brake_are_announced_with_their_reasons() {
    let system = SystemClock::shared();
    let clock = Arc::new(ManualClock::new(system.wall_micros(), 1));
    let model = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store: Arc<dyn Store> = model.clone();
    let group = group("fleet");
    for n in 0..12 {
        join_at(&store, &group, &format!("m-{n}"), &[]).await;
    }
    let daemon = Daemon::over(Arc::clone(&store), system, Settings::default()).await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/fleet", DESK).await else {
        return;
    };
    page.until_says(".pill", "settled").await;
    clock.advance(Duration::from_secs(30));
    model.tick(&group).await.expect("a tick");
    page.until_says("#banners", "fleet is settling. The store did not serve: it was silent.")
        .await;
    page.until_says(".pill", "settling").await;
    page.until_says(".event", "The store did not serve it was silent for 30,000 ms")
        .await;
    assert_eq!(
        page.eval("document.getElementById('banners').getAttribute('aria-live')")
            .await,
        "polite"
    );
    pass(&clock, &model, &group, 125).await;
    while !model
        .end_lapsed(&group, 100, Call::default())
        .await
        .expect("a step")
        .ended
        .is_empty()
    {}
    page.until_says(
        "#banners",
        "Removal is paused in fleet. 12 lapsed together, 0 are present.",
    )
    .await;
    page.until_says("#banners", "tenure sweep --force --group fleet --store http")
        .await;
    page.until_silent("#banners", "is settling").await;
    page.until_says(".event", "Removal was paused").await;
    page.until_says(".crash", "12 members lapsed together. 0 are present.")
        .await;
    page.until_says(".none", "No member is alive.").await;
    page.until_says(".event", "12 members lapsed").await;
    page.turn("#/").await;
    page.until_says(".sentence", "12 members lapsed together; removal is paused in 1 group.")
        .await;
    page.until_says(".entry.ended", "12 members lapsed in fleet").await;
    page.assert_clean();
}

/// A daemon at an address that is known, so that another can take its place.
async fn serve(store: &Arc<dyn Store>, address: &str) -> (Server, oneshot::Sender<()>) {
    let mut listener = TcpListener::bind(address).await;
    while listener.is_err() {
        tokio::task::yield_now().await;
        listener = TcpListener::bind(address).await;
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { drop(stopped.await) };
    let server = Server::start(listener.unwrap(), parts(store), Settings::default(), shutdown);
    (server.expect("a server"), stop)
}

#[tokio::test(flavor = "multi_thread")]
async fn page_recovers_when_the_daemon_is_back() {
    let store = store();
    let fleet = group("fleet");
    let first = join_at(&store, &fleet, "first", &[]).await;
    join_at(&store, &fleet, "second", &[]).await;
    // A port that stays reserved while no daemon listens on it.
    let port = Port::reserve();
    let address = port.addr().to_string();
    let (server, stop) = serve(&store, &address).await;
    let Some(mut page) = Page::open(&format!("http://{address}"), "#/g/fleet", DESK).await else {
        return;
    };
    page.until_says(".member", "second").await;
    page.until("the stream is followed", "tenure.world.stream === 'live'")
        .await;
    drop(stop);
    server.wait().await;
    page.until_says("#banners", "The daemon does not answer.").await;
    page.until_says("#link", "no answer").await;
    // No member is shown as dead because the daemon does not answer.
    assert_eq!(
        page.eval("document.querySelectorAll('.member[data-tone=ended]').length")
            .await,
        0
    );
    // Events during the outage are not missed.
    let tenure = first.parse().expect("a tenure");
    store
        .end(&fleet, &tenure, EndBy::Expel, Call::default())
        .await
        .expect("an end");
    let (server, stop) = serve(&store, &address).await;
    page.until_says(".event", "first was expelled").await;
    page.until_says("#link", "live").await;
    page.until_silent("#banners", "The daemon does not answer.").await;
    assert_eq!(page.eval("tenure.world.gaps.length").await, 0, "nothing was missed");
    drop(stop);
    server.wait().await;
    // One that knows nothing of the events before: what is missing is said.
    let other = crate::dashboard::fixture::store();
    join_at(&other, &fleet, "third", &[]).await;
    let (_server, _stop) = serve(&other, &address).await;
    page.until_says("#banners", "Events of fleet are missing.").await;
    page.until_says(".event", "missing here").await;
    page.until_says(".member", "third").await;
    page.until_silent(".member:not([hidden])", "second").await;
    page.assert_clean();
}

/// A loop that fails this many times.
struct Fails(u32);

#[async_trait]
impl LoopBody for Fails {
    async fn turn(&mut self) -> Result<Turn> {
        if self.0 == 0 {
            return Ok(Turn::idle());
        }
        self.0 -= 1;
        Err(Error::new(ErrorKind::Internal, "made to fail"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recovered_loop_is_not_shown_as_failing() {
    let clock = Arc::new(ManualClock::new(SystemClock::shared().wall_micros(), 1));
    let loops = Loops::new(clock.clone(), Handle::current());
    let daily = |name: &str| LoopSettings::new(name, Duration::from_secs(86_400));
    loops.start(daily("mended"), || Fails(1)).expect("a loop");
    loops.start(daily("broken"), || Fails(u32::MAX)).expect("a loop");
    let of = |name: &str| loops.snapshot().into_iter().find(|one| one.name == name).unwrap();
    tenure_testkit::wait::until_async("both have turned", PATIENCE, || async {
        clock.advance(Duration::from_millis(50));
        of("mended").last_success_age.is_some() && of("broken").failures > 1
    })
    .await;
    clock.advance(Duration::from_secs(120));
    let parts = tenure_server::Parts {
        loops: loops.clone(),
        ..parts(&store())
    };
    let daemon = Daemon::of(parts, Settings::default()).await;
    let Some(mut page) = Page::open(&daemon.base, "#/", DESK).await else {
        return;
    };
    page.until_says("#banners", "The loop broken fails. made to fail").await;
    page.until_silent("#banners", "The loop mended fails.").await;
    page.until_says("[aria-label=Loops] .entry[data-tone=braked]", "broken failed")
        .await;
    assert!(!page.text("[aria-label=Loops] .entry").await.contains("mended"));
    page.assert_clean();
}
