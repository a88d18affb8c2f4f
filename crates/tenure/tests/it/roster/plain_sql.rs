//! A provider written by another program, in a roster that no Tenure client has used.

use tenure_core::ledger::{Change, Reason};
use tenure_core::membership::EndReason;
use tenure_testkit::wait::until_async;
use tenure_testkit::{postgres, valkey};

use crate::roster::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_by_plain_sql_is_mirrored_and_lapses() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::Server::start() else {
        return;
    };
    let database = postgres.database();
    let process = Process::start("desk", &valkey.url(), &database, patient()).await;
    process.ledger.now().await.unwrap();
    let sql = Sql::connect(&database).await;
    sql.rows("INSERT INTO tenure.providers (roster, provider, online) VALUES ('desk', 'ann', true)")
        .await;
    until_async("the mirror has the row", PATIENCE, async || {
        breathe().await;
        process.believes() && process.mirrored().await.is_ok_and(|rows| rows.len() == 1)
    })
    .await;
    assert_eq!(process.free().await.0, ["ann"]);
    process.roster.set_settings(&stale_after(secs(2))).await.unwrap();
    until_async("the ledger has it offline", PATIENCE, async || {
        breathe().await;
        process.row(&name("ann")).await.online.is_none()
    })
    .await;
    let log = process.log().await;
    let last = log.last().unwrap();
    assert_eq!(
        (last.change, last.reason),
        (Change::Offline, Reason::Ended(EndReason::Lapsed))
    );
}
