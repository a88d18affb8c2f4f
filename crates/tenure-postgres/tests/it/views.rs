//! The guide that puts views of the ledger in place of an application's tables: its SQL runs here unchanged, under the
//! roles it names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::ledger::{Candidates, Change, NewEngagement, Reason, ReserveOutcome};
use tenure_core::store::PageRequest;
use tenure_core::{EngagementId, Ledger, ProviderId, RosterName};
use tenure_postgres::PostgresLedger;
use tenure_testkit::postgres::shared;
use tenure_testkit::wait::until_async;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::servers::{cell, connect, ledger, long_timeouts};

const GUIDE: &str = include_str!("../../../../docs/guides/roster-views.md");

/// The SQL blocks of the guide, by their first line without dashes.
fn blocks() -> BTreeMap<&'static str, &'static str> {
    let blocks = GUIDE.split("```sql\n").skip(1);
    blocks
        .map(|rest| {
            let block = rest.split("```").next().expect("a block ends");
            let title = block.lines().next().expect("a block has a title");
            (title.trim_start_matches("-- "), block)
        })
        .collect()
}

struct Fixture {
    ledger: Arc<PostgresLedger>,
    /// The owner of the tables.
    admin: Client,
    /// A connection with the application's rights.
    app: Client,
    database: String,
    /// Of the names of roles, which are global to the server.
    suffix: String,
}

impl Fixture {
    /// The application's tables before the move, with some data.
    async fn before() -> Option<Self> {
        let server = shared()?;
        let database = server.database();
        let (_, suffix) = database.split_once("/test").expect("the name of a test's database");
        let ledger = ledger(long_timeouts(&database));
        ledger.prepare().await.expect("a schema");
        let fixture = Self {
            admin: connect(&database).await,
            app: connect(&database).await,
            suffix: suffix.to_owned(),
            ledger,
            database,
        };
        fixture.run("Before.").await;
        let data = fixture.with_own_roles(
            "CREATE ROLE rides_app NOLOGIN;
             GRANT USAGE ON SCHEMA public TO rides_app;
             GRANT ALL ON public.drivers, public.rides TO rides_app;
             INSERT INTO public.drivers (name, blocked, on_shift, max_rides, vehicle, last_seen) VALUES
                 ('Ann', false, true, 2, 'car', '2026-01-01 10:00:00+00'), ('Bob', true, false, 1, NULL, NULL),
                 ('Cem', false, false, 3, 'bike', NULL);
             INSERT INTO public.rides (driver_id, state, pickup, fare_cents, created_at, expires_at) VALUES
                 (1, 'accepted', 'Station', 900, '2026-01-01 09:00:00+00', NULL),
                 (1, 'done', 'Airport', 4200, '2026-01-01 08:00:00+00', NULL),
                 (NULL, 'offered', 'Museum', NULL, '2026-01-01 10:00:00+00', '2036-01-01 10:00:00+00'),
                 (2, 'cancelled', 'Zoo', NULL, '2026-01-01 07:00:00+00', NULL);",
        );
        fixture.admin.batch_execute(&data).await.expect("data");
        Some(fixture)
    }

    /// The same after the steps of the guide.
    async fn after() -> Option<Self> {
        let fixture = Self::before().await?;
        fixture.move_over().await;
        Some(fixture)
    }

    async fn move_over(&self) {
        for title in [
            "Rights.",
            "The move, part one: what Tenure keeps goes into its tables.",
            "The move, part two: writing to the views.",
            "The move, part three: who may do what. The application is the role rides_app.",
        ] {
            self.run(title).await;
        }
        self.use_application_role(&self.app).await;
    }

    async fn use_application_role(&self, client: &Client) {
        client
            .batch_execute(&self.with_own_roles("SET ROLE rides_app"))
            .await
            .expect("a role");
    }

    /// Replaces the roles in statements of the guide by this fixture's.
    fn with_own_roles(&self, statements: &str) -> String {
        statements
            .replace("rides_app", &format!("rides_app{}", self.suffix))
            .replace("rides_bridge", &format!("rides_bridge{}", self.suffix))
    }

    async fn run(&self, title: &str) {
        let block = blocks()
            .get(title)
            .copied()
            .unwrap_or_else(|| panic!("the guide has no block {title:?}"));
        let done = self.admin.batch_execute(&self.with_own_roles(block)).await;
        done.unwrap_or_else(|error| panic!("{title}: {error:?}"));
    }

    /// The rows that the application sees, as text.
    async fn seen(&self, client: &Client) -> Vec<String> {
        let mut rows = Vec::new();
        for table in ["drivers", "rides"] {
            let statement = format!("SELECT to_jsonb(t) FROM (SELECT * FROM public.{table} ORDER BY id) t");
            for message in client.simple_query(&statement).await.expect("rows") {
                if let SimpleQueryMessage::Row(row) = message {
                    rows.push(row.get(0).expect("a row").to_owned());
                }
            }
        }
        rows
    }

    /// Runs a statement as the application. Returns the number of affected rows.
    async fn execute(&self, statement: &str) -> u64 {
        self.app
            .execute(statement, &[])
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error:?}"))
    }

    /// Runs a statement as the application that must be refused.
    async fn refused(&self, statement: &str) -> SqlState {
        let error = self.app.batch_execute(statement).await.expect_err(statement);
        error
            .code()
            .cloned()
            .unwrap_or_else(|| panic!("{statement}: {error:?}"))
    }
}

fn roster() -> RosterName {
    RosterName::new("rides").expect("a name")
}

fn provider(name: &str) -> ProviderId {
    ProviderId::new(name).expect("a name")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_application_sees_the_same_rows_after_the_move() {
    let Some(fixture) = Fixture::before().await else { return };
    let before = fixture.seen(&fixture.admin).await;
    assert_eq!(before.len(), 7);
    fixture.move_over().await;
    assert_eq!(fixture.seen(&fixture.app).await, before);

    let ledger = &fixture.ledger;
    assert_eq!(ledger.rosters().await.expect("rosters"), [roster()]);
    let ann = ledger
        .provider(&roster(), &provider("1"))
        .await
        .expect("a look-up")
        .expect("Ann");
    assert_eq!(
        (ann.display_name.as_deref(), ann.capacity, ann.occupancy),
        (Some("Ann"), 2, 1)
    );
    assert!(ann.active && ann.online.is_some() && ann.last_heartbeat_at.is_some());
    let bob = ledger
        .provider(&roster(), &provider("2"))
        .await
        .expect("a look-up")
        .expect("Bob");
    assert!(!bob.active && bob.online.is_none());
    assert_eq!(
        ledger.dirty(&roster(), 10).await.expect("the outbox").len(),
        3,
        "the mirror will hear of all"
    );
}

/// The deadline of an offer, copied by the move or kept by an old program, ends no accepted ride.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_rides_outlive_the_deadline_of_their_offer() {
    let Some(fixture) = Fixture::before().await else { return };
    let rides = "INSERT INTO public.rides (id, driver_id, state, pickup, expires_at) VALUES
                     (101, 1, 'accepted', 'Pier', now() - interval '1 hour'), (102, 1, 'offered', 'Park', now() - interval '1 s'),
                     (103, 1, 'offered', 'Pool', now() - interval '1 s')";
    fixture.admin.batch_execute(rides).await.expect("rides");
    fixture.move_over().await;
    fixture
        .execute("UPDATE rides SET state = 'accepted' WHERE id = 102")
        .await;
    let old = "INSERT INTO rides (id, driver_id, state, pickup, expires_at) VALUES (104, 1, 'accepted', 'Dock', now() - interval '1 s')";
    fixture.execute(old).await;
    let expired = fixture.ledger.expire_due(&roster(), 10).await.expect("a batch").expired;
    let names: Vec<_> = expired.iter().map(|e| e.engagement.as_str()).collect();
    assert_eq!(names, ["103"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_views_can_be_locked() {
    let Some(fixture) = Fixture::after().await else { return };
    for table in ["drivers", "rides"] {
        fixture
            .execute(&format!("SELECT * FROM {table} WHERE id = 1 FOR UPDATE"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_to_the_views_are_versioned_and_logged() {
    let Some(fixture) = Fixture::after().await else { return };
    let ledger = &fixture.ledger;
    let rows = ledger.dirty(&roster(), 10).await.expect("the outbox");
    let rows: Vec<_> = rows.into_iter().map(|dirty| (dirty.provider, dirty.version)).collect();
    assert_eq!(ledger.clean(&roster(), &rows).await.expect("an answer"), 3);

    let block = blocks()["The application."];
    let statements: Vec<&str> = block
        .split(';')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect();
    assert_eq!(statements.len(), 6);
    let mut versions = Vec::new();
    for statement in statements {
        assert_eq!(fixture.execute(statement).await, 1, "{statement}");
        let zoe = ledger
            .provider(&roster(), &provider("4"))
            .await
            .expect("a look-up")
            .expect("Zoe");
        versions.push(zoe.version);
    }
    assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
    let zoe = ledger
        .provider(&roster(), &provider("4"))
        .await
        .expect("a look-up")
        .expect("Zoe");
    assert!(!zoe.active && zoe.online.is_none() && zoe.revoked_before.is_some());
    assert_eq!((zoe.capacity, zoe.occupancy), (2, 0));
    let dirty = ledger.dirty(&roster(), 10).await.expect("the outbox");
    assert_eq!(dirty.len(), 1, "no other row has changed");
    assert_eq!(dirty[0].version, zoe.version);
    let log = ledger
        .log(&roster(), Some(&provider("4")), &PageRequest::default())
        .await
        .expect("the log")
        .items;
    let told: Vec<_> = log.iter().map(|entry| (entry.change, entry.reason)).collect();
    assert_eq!(
        told,
        [
            (Change::Online, Reason::Edited),
            (Change::Deactivated, Reason::Edited),
            (Change::Offline, Reason::Deactivated),
        ]
    );

    // An update that changes nothing draws no version, nor does one of the application's own columns.
    let same = fixture.execute("UPDATE drivers SET name = name").await;
    assert_eq!(
        (
            same,
            fixture
                .execute("UPDATE drivers SET vehicle = 'truck' WHERE id = 3")
                .await
        ),
        (4, 1)
    );
    assert_eq!(ledger.dirty(&roster(), 10).await.expect("the outbox").len(), 1);
    assert_eq!(
        cell(&fixture.app, "SELECT vehicle FROM drivers WHERE id = 3").await,
        "truck"
    );

    // A delete leaves a tombstone.
    assert_eq!(fixture.execute("DELETE FROM rides WHERE pickup = 'Harbour'").await, 1);
    assert_eq!(fixture.execute("DELETE FROM drivers WHERE name = 'Zoe'").await, 1);
    let dirty = ledger.dirty(&roster(), 10).await.expect("the outbox");
    assert!(
        dirty
            .iter()
            .any(|dirty| dirty.provider == provider("4") && dirty.row.is_none())
    );
    assert_eq!(
        cell(&fixture.admin, "SELECT count(*) FROM driver_details WHERE id = 4").await,
        "0"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_tenure_show_in_the_views() {
    let Some(fixture) = Fixture::after().await else { return };
    let (ledger, roster) = (&fixture.ledger, roster());
    ledger
        .go_online(&roster, &provider("3"), None)
        .await
        .expect("Cem comes");
    assert_eq!(
        cell(&fixture.app, "SELECT on_shift FROM drivers WHERE id = 3").await,
        "true"
    );

    // The application creates the ride, and Tenure assigns the driver.
    let id = cell(&fixture.app, "SELECT id FROM rides WHERE pickup = 'Museum'").await;
    let new = NewEngagement::new(EngagementId::new(id).expect("a name"));
    let anyone = Candidates::ANYONE;
    let reserved = ledger.reserve(&roster, &new, &anyone).await.expect("an answer");
    assert!(matches!(reserved, ReserveOutcome::Reserved(_)), "{reserved:?}");
    assert_eq!(
        cell(&fixture.app, "SELECT driver_id FROM rides WHERE pickup = 'Museum'").await,
        "3"
    );

    let soon = "UPDATE rides SET expires_at = now() - interval '1 second' WHERE pickup = 'Museum'";
    assert_eq!(fixture.execute(soon).await, 1);
    let batch = ledger.expire_due(&roster, 10).await.expect("a batch");
    assert_eq!(batch.expired.len(), 1);
    assert_eq!(
        cell(&fixture.app, "SELECT state FROM rides WHERE pickup = 'Museum'").await,
        "expired"
    );

    ledger
        .deactivate(&roster, &provider("1"))
        .await
        .expect("Ann is blocked");
    let ann = cell(
        &fixture.app,
        "SELECT blocked AND NOT on_shift FROM drivers WHERE id = 1",
    )
    .await;
    assert_eq!(ann, "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_application_has_rights_only_on_its_views() {
    let Some(fixture) = Fixture::after().await else { return };
    for forbidden in [
        "SELECT FROM tenure.providers",
        "UPDATE tenure.providers SET capacity = 9",
        "SELECT tenure.set_active('rides', '1', false, NULL)",
        "SELECT FROM driver_details",
        "UPDATE ride_details SET fare_cents = 1",
        "SELECT nextval('public.drivers_id_seq')",
        "DROP VIEW drivers",
    ] {
        assert_eq!(
            fixture.refused(forbidden).await,
            SqlState::INSUFFICIENT_PRIVILEGE,
            "{forbidden}"
        );
    }
    // The bridging role has no more rights than it needs.
    let bridge = connect(&fixture.database).await;
    bridge
        .batch_execute(&fixture.with_own_roles("SET ROLE rides_bridge"))
        .await
        .expect("a role");
    for forbidden in [
        "DELETE FROM tenure.outbox",
        "SELECT FROM tenure.provider_log",
        "UPDATE tenure.rosters SET snapshot_ms = 0",
        "DELETE FROM tenure.heartbeats",
        "SELECT FROM tenure.migrations",
    ] {
        let error = bridge.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{forbidden}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_takers_of_a_ride_conflict_and_one_wins() {
    let Some(fixture) = Fixture::after().await else { return };
    let take = |driver: u32| {
        format!(
            "UPDATE rides SET driver_id = {driver}, state = 'accepted' WHERE pickup = 'Museum' AND driver_id IS NULL"
        )
    };
    let other = connect(&fixture.database).await;
    fixture.use_application_role(&other).await;
    let pid = cell(&other, "SELECT pg_backend_pid()").await;
    fixture.execute("BEGIN").await;
    assert_eq!(fixture.execute(&take(1)).await, 1);
    let second = tokio::spawn(async move {
        let refused = other.execute(&take(3), &[]).await.expect_err("it is being taken");
        let again = other.execute(&take(3), &[]).await.expect("an answer");
        (refused.code().cloned(), again)
    });
    let waits = format!("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {pid}");
    let second_waits = async || cell(&fixture.admin, &waits).await == "true";
    until_async("the second waits for the first", Duration::from_secs(20), second_waits).await;
    fixture.execute("COMMIT").await;
    assert_eq!(
        second.await.expect("a task"),
        (Some(SqlState::T_R_SERIALIZATION_FAILURE), 0)
    );
    assert_eq!(
        cell(&fixture.app, "SELECT driver_id FROM rides WHERE pickup = 'Museum'").await,
        "1"
    );

    // A concurrent heartbeat causes no conflict.
    fixture.execute("BEGIN").await;
    let beat = "UPDATE tenure.heartbeats SET heard_at = now() WHERE provider = '1'";
    fixture.execute("SELECT FROM drivers").await;
    fixture.admin.batch_execute(beat).await.expect("a heartbeat");
    assert_eq!(
        fixture.execute("UPDATE drivers SET name = 'Anna' WHERE id = 1").await,
        1
    );
    fixture.execute("COMMIT").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_match_the_guide() {
    let Some(fixture) = Fixture::after().await else { return };
    for (statement, state) in [
        ("UPDATE drivers SET last_seen = now() WHERE id = 1", "0A000"),
        ("INSERT INTO drivers (name, last_seen) VALUES ('Eve', now())", "0A000"),
        ("UPDATE drivers SET on_shift = true WHERE id = 2", "23514"),
        ("UPDATE drivers SET id = 9 WHERE id = 2", "23514"),
        ("UPDATE drivers SET max_rides = -1 WHERE id = 1", "23514"),
        ("INSERT INTO drivers (vehicle) VALUES ('van')", "23502"),
        ("DELETE FROM drivers WHERE id = 1", "23503"),
        ("UPDATE rides SET state = 'accepted' WHERE pickup = 'Airport'", "23514"),
        ("UPDATE rides SET state = 'lost' WHERE pickup = 'Station'", "23514"),
        ("INSERT INTO rides (pickup, driver_id) VALUES ('Park', 99)", "TN404"),
        ("INSERT INTO rides (driver_id) VALUES (1)", "23502"),
        ("INSERT INTO drivers (id, name) VALUES (1, 'Ann')", "23505"),
        (
            "INSERT INTO drivers (id, name) VALUES (1, 'Ann') ON CONFLICT (id) DO NOTHING",
            "42P10",
        ),
        (
            "INSERT INTO drivers (id, name) VALUES (1, 'Ann') ON CONFLICT DO NOTHING",
            "23505",
        ),
        ("TRUNCATE drivers", "42809"),
    ] {
        assert_eq!(fixture.refused(statement).await.code(), state, "{statement}");
    }
    let before = cell(&fixture.app, "SELECT count(*) FROM drivers").await;
    assert_eq!(before, "3", "what is refused leaves nothing behind");
    // Foreign keys follow the renamed tables.
    let key = "CREATE TABLE public.ratings (driver bigint REFERENCES public.driver_details)";
    fixture.admin.batch_execute(key).await.expect("a key to the details");
    fixture
        .admin
        .batch_execute("CREATE TABLE public.tips (driver bigint REFERENCES public.drivers)")
        .await
        .expect_err("no key to a view");
}
