//! The ledger is killed and restarts with all its data.

use std::time::Duration;

use tenure::ErrorKind;
use tenure::roster::{EngagementAnswer, Source};
use tenure_core::ledger::{Change, ProviderSpec, Reason};
use tenure_core::membership::EndReason;
use tenure_testkit::wait::until_async;
use tenure_testkit::{postgres, valkey};

use crate::roster::world::*;

const STALE: Duration = secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_outage_stops_no_heartbeat_and_loses_no_write() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::Server::start() else {
        return;
    };
    let database = postgres.database();
    prepare("dark", &database, &stale_after(STALE)).await;
    let processes = [
        Process::start("dark", &valkey.url(), &database, patient()).await,
        Process::start("dark", &valkey.url(), &database, patient()).await,
    ];
    all_believe(&processes).await;
    let [here, there] = &processes;
    let everyone: Vec<_> = (0..6).map(numbered).collect();
    let beats = Beats::of(&processes, [], STALE / 20);
    for who in &everyone {
        here.arrive(who, Some(1_000)).await;
        beats.add(who);
    }
    let (silent, busy) = (&everyone[0], &everyone[1]);

    // Writes until a write fails.
    let (roster, provider) = (there.roster.clone(), busy.clone());
    let writer = tokio::spawn(async move {
        for acknowledged in 0.. {
            let new = active(&format!("e{acknowledged}"), &provider);
            match roster.create_engagement(&new).await {
                Ok(EngagementAnswer::Done(_)) => {}
                Ok(EngagementAnswer::Conflict(there)) => panic!("{there:?} is in the way"),
                Err(error) => return (acknowledged, error),
            }
        }
        unreachable!("there are not that many")
    });
    until_async("writes are under way", PATIENCE, async || {
        breathe().await;
        there.row(busy).await.occupancy > 20
    })
    .await;
    beats.stop(silent);
    postgres.kill();
    let (acknowledged, refused) = writer.await.unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    beats.take();

    until_async("the silent provider is unavailable", PATIENCE, async || {
        breathe().await;
        let (free, source) = there.free().await;
        assert_eq!(source, Source::Mirror);
        !free.contains(&silent.to_string())
    })
    .await;
    for process in &processes {
        assert!(!process.roster.is_reachable(silent).await.unwrap().value);
        let (free, source) = process.free().await;
        assert_eq!((free.len(), source), (5, Source::Mirror));
        let spec = ProviderSpec::default();
        let refused = process.roster.put_provider(busy, &spec);
        assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Unavailable);
        let refused = process.roster.deactivate(busy).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        let refused = process.reserve("nothing").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    }
    let heard = beats.take();
    let answers: Vec<&str> = heard.keys().map(String::as_str).collect();
    assert_eq!(answers, ["Recorded(Mirror)"], "{heard:?}");

    postgres.restart_with_data();
    until_async("the ledger follows", PATIENCE, async || {
        breathe().await;
        let row = here.ledger.provider(&here.name, silent).await;
        matches!(row, Ok(Some(row)) if row.online.is_none())
    })
    .await;
    here.until_they_agree().await;
    let written = here.put(silent, Some(3)).await;
    assert!(written.changed && written.mirrored);
    let log = here
        .log()
        .await
        .into_iter()
        .filter(|entry| entry.change == Change::Offline);
    let gone: Vec<_> = log.map(|entry| (entry.provider, entry.reason)).collect();
    assert_eq!(gone, [(silent.clone(), Reason::Ended(EndReason::Lapsed))], "once");
    let sql = Sql::connect(&database).await;
    let kept = sql.number("SELECT count(*) FROM tenure.engagements").await;
    // One more may have been committed without a reply.
    assert!(
        (acknowledged..=acknowledged + 1).contains(&kept),
        "{kept} of {acknowledged}"
    );
    assert_eq!(u64::from(here.row(busy).await.occupancy), kept);
    let heard = beats.take();
    assert!(heard.keys().all(|answer| answer == "Recorded(Mirror)"), "{heard:?}");
}
