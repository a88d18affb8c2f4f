//! Transactions of other programs that are open, or that bypass the triggers.

use std::sync::Arc;

use tenure_core::ledger::{Candidates, Capacity, EndedTenure, NewEngagement, ProviderSpec, ReserveOutcome, Status};
use tenure_core::membership::EndReason;
use tenure_core::{EngagementId, Ledger, ProviderId, RosterName, TenureId};
use tenure_postgres::PostgresLedger;
use tenure_testkit::postgres::shared;
use tokio_postgres::Client;

use crate::servers::{connect, ledger, long_timeouts};

struct Fixture {
    ledger: Arc<PostgresLedger>,
    admin: Client,
    roster: RosterName,
}

impl Fixture {
    /// Providers of capacity 2, online under the term 7.
    async fn with(names: &[&str]) -> Option<Self> {
        let database = shared()?.database();
        let fixture = Self {
            ledger: ledger(long_timeouts(&database)),
            admin: connect(&database).await,
            roster: RosterName::new("care").expect("a name"),
        };
        for name in names {
            let (name, tenure) = (provider(name), tenure(name));
            let spec = ProviderSpec {
                display_name: None,
                capacity: Capacity::Own(2),
            };
            let put = fixture.ledger.put_provider(&fixture.roster, &name, &spec).await;
            put.expect("a provider");
            let online = fixture.ledger.go_online(&fixture.roster, &name, Some(&tenure)).await;
            online.expect("online");
        }
        Some(fixture)
    }

    async fn run(&self, statements: &str) {
        self.admin.batch_execute(statements).await.expect(statements);
    }

    async fn occupancy(&self, name: &str) -> u32 {
        let row = self.ledger.provider(&self.roster, &provider(name)).await;
        row.expect("a look-up").expect("a provider").occupancy
    }

    async fn reserve(&self, engagement: &str) -> ReserveOutcome {
        let new = NewEngagement::new(EngagementId::new(engagement).expect("a name"));
        let anyone = Candidates::ANYONE;
        let reserved = self.ledger.reserve(&self.roster, &new, &anyone).await;
        reserved.expect("an answer")
    }
}

fn provider(name: &str) -> ProviderId {
    ProviderId::new(name).expect("a name")
}

fn tenure(name: &str) -> TenureId {
    format!("{name}@7").parse().expect("a tenure")
}

/// One provider's row is locked by an open transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_delays_the_end_of_no_other_provider() {
    let Some(fixture) = Fixture::with(&["ann", "bob", "cyd"]).await else {
        return;
    };
    fixture
        .run("BEGIN; SELECT FROM tenure.providers WHERE provider = 'bob' FOR UPDATE")
        .await;
    let at = fixture.ledger.now().await.expect("the time");
    let ended = ["ann", "bob", "cyd"].map(|name| EndedTenure {
        tenure: tenure(name),
        at,
        reason: EndReason::Lapsed,
        heard_at: None,
    });
    let done = fixture
        .ledger
        .offline_ended(&fixture.roster, &ended)
        .await
        .expect("a batch");
    let names: Vec<_> = done.offline.iter().map(|row| row.provider.as_str()).collect();
    assert_eq!((names, done.busy), (vec!["ann", "cyd"], vec![provider("bob")]));
    fixture.run("COMMIT").await;
    let done = fixture
        .ledger
        .offline_ended(&fixture.roster, &ended)
        .await
        .expect("a batch");
    assert_eq!((done.offline.len(), done.busy.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engagements_written_without_triggers_are_counted() {
    let Some(fixture) = Fixture::with(&["ann"]).await else {
        return;
    };
    let recount = async || fixture.ledger.recount(&fixture.roster).await.expect("a count");
    assert_eq!(recount().await, 0);
    fixture
        .run(
            "SET session_replication_role = replica;
             INSERT INTO tenure.engagements (roster, engagement, provider, status)
             VALUES ('care', 'e1', 'ann', 'active'), ('care', 'e2', 'ann', 'active');
             SET session_replication_role = origin",
        )
        .await;
    assert_eq!(fixture.occupancy("ann").await, 0, "no trigger ran");
    assert_eq!(
        fixture.reserve("e3").await,
        ReserveOutcome::NoneAvailable,
        "both places are taken"
    );
    assert_eq!((recount().await, fixture.occupancy("ann").await), (0, 2));
    fixture.run("TRUNCATE tenure.engagements").await;
    assert_eq!((recount().await, fixture.occupancy("ann").await), (0, 0));
    fixture
        .run(
            "INSERT INTO tenure.engagements (roster, engagement, provider, status) VALUES ('care', 'e4', 'ann', 'active');
             SET session_replication_role = replica; DELETE FROM tenure.engagements; SET session_replication_role = origin",
        )
        .await;
    assert_eq!(fixture.occupancy("ann").await, 1, "no trigger ran");
    assert_eq!((recount().await, fixture.occupancy("ann").await), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepting_an_offer_by_sql_clears_its_deadline() {
    let Some(fixture) = Fixture::with(&["ann"]).await else {
        return;
    };
    fixture
        .run(
            "INSERT INTO tenure.engagements (roster, engagement, provider, status, expires_at)
             SELECT 'care', 'e' || n, 'ann', 'pending', now() - interval '1 s' FROM generate_series(1, 3) n;
             UPDATE tenure.engagements SET status = 'active' WHERE engagement = 'e1';
             UPDATE tenure.engagements SET status = 'active', expires_at = now() - interval '2 s' WHERE engagement = 'e2'",
        )
        .await;
    let expired = fixture.ledger.expire_due(&fixture.roster, 10).await.expect("a batch");
    let names: Vec<_> = expired.expired.iter().map(|e| e.engagement.as_str()).collect();
    assert_eq!(names, ["e2", "e3"]);
    let name = EngagementId::new("e1").expect("a name");
    let kept = fixture
        .ledger
        .engagement(&fixture.roster, &name)
        .await
        .expect("a look-up")
        .expect("it is there");
    assert_eq!((kept.status, kept.expires_at), (Status::Active, None));
}
