//! A process that alone cannot reach the hot store never reports a live provider as unavailable.

use std::net::SocketAddr;

use tenure::roster::Reservation;
use tenure::{ErrorKind, RostersSettings};
use tenure_testkit::proxy::{Mode, Proxy};
use tenure_testkit::{postgres, valkey};

use crate::roster::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_without_hot_store_never_denies_live_providers() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::Server::start() else {
        return;
    };
    let database = postgres.database();
    let stale = secs(6);
    prepare("alone", &database, &stale_after(stale)).await;
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], valkey.port())));
    let settings = || RostersSettings {
        mirror_timeout: secs(1),
        ..patient()
    };
    let processes = [
        Process::start("alone", &valkey.url(), &database, settings()).await,
        Process::start("alone", &proxy.url("valkey"), &database, settings()).await,
    ];
    all_believe(&processes).await;
    let [other, alone] = &processes;
    let everyone: Vec<_> = (0..3).map(numbered).collect();
    for who in &everyone {
        other.arrive(who, None).await;
    }
    let _beats = Beats::of(&processes[..1], everyone.clone(), ms(500));
    proxy.set(Mode::Refuse);
    let end = other.ledger.now().await.unwrap() + stale * 4;
    let (mut answered, mut late) = (0, 0);
    while other.ledger.now().await.unwrap() < end {
        let late_answer = end.since(other.ledger.now().await.unwrap()) < stale;
        match alone.roster.available(100).await {
            Ok(free) => {
                assert_eq!(free.value.len(), 3, "{free:?}");
                answered += 1;
                late += usize::from(late_answer);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        breathe().await;
    }
    assert!(answered > 0 && late > 0, "{answered} answers, {late} of them late");
    let reserved = alone.reserve("e1").await.unwrap();
    assert!(matches!(reserved, Reservation::Reserved(_)), "{reserved:?}");
}
