//! The statements that idle rosters cost a database, by the database's own log.

use std::time::Duration;

use tenure::roster::Belief;
use tenure::{RosterName, SystemClock};
use tenure_core::ledger::ProviderSpec;
use tenure_testkit::wait::until_async;
use tenure_testkit::{postgres, valkey};

use crate::roster::world::*;

const ROSTERS: usize = 50;

/// The number of all statements, and of those that are neither polls nor confirm the hot store.
fn statements(server: &postgres::Server) -> (usize, usize) {
    let log = server.process().log();
    let all = log.lines().filter(|line| line.contains("SELECT tenure."));
    let is_idle = |line: &str| line.contains("tenure.read_overview(") || line.contains("tenure.claim_hot_store(");
    let others = all.clone().filter(|line| !is_idle(line));
    (all.count(), others.count())
}

fn believes_all(process: &Process) -> bool {
    let rosters = process.rosters.status().rosters;
    let mirrored = rosters
        .iter()
        .filter(|one| one.belief == Belief::Mirror && one.dirty == 0);
    mirrored.count() == ROSTERS + 1
}

/// Waits for this long on the real clock.
async fn pass(time: Duration) {
    let clock = SystemClock::shared();
    let until = clock.mono() + time;
    until_async("time has passed", PATIENCE, async || {
        breathe().await;
        clock.mono() >= until
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_idle_rosters_cost_a_statement_a_second() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::Server::with(&["log_statement=all"]) else {
        return;
    };
    let database = postgres.database();
    prepare("idle", &database, &stale_after(secs(59))).await;
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(Process::start("idle", &valkey.url(), &database, patient()).await);
    }
    for n in 0..ROSTERS {
        let roster = RosterName::new(format!("idle-{n}")).unwrap();
        let roster = processes[0].rosters.roster(&roster).unwrap();
        roster
            .put_provider(&name("ann"), &ProviderSpec::default())
            .await
            .unwrap();
    }
    until_async("every process believes every mirror", PATIENCE, async || {
        breathe().await;
        processes.iter().all(believes_all)
    })
    .await;
    until_async("nothing is left to do", PATIENCE, async || {
        let before = statements(&postgres).1;
        pass(secs(2)).await;
        statements(&postgres).1 == before
    })
    .await;

    // After a stall the mirrors are untrusted and are reconciled; such a period is not idle.
    let clock = SystemClock::shared();
    until_async("ten idle seconds cost at most 30 statements", PATIENCE, async || {
        let (begun, before) = (clock.mono(), statements(&postgres));
        pass(secs(10)).await;
        let now = statements(&postgres);
        let took = clock.mono().since(begun);
        let (made, others) = (now.0 - before.0, now.1 - before.1);
        eprintln!("{made} statements in {took:?}, {others} of them no poll");
        assert!(made > 5, "nothing polls");
        (made as u128) * 1_000 <= 3 * took.as_millis()
    })
    .await;
}
