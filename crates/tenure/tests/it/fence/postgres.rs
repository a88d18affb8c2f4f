//! The function in Postgres.

use tenure::fence::POSTGRES;
use tokio_postgres::Client;

use crate::fence::sql::{connect, fence, outcome, sink, until_one_waits};

const HIGHEST: i64 = (1 << 53) - 1;

async fn numbers(client: &Client, query: &str) -> Vec<i64> {
    let rows = client.query(query, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn equal_or_higher_tokens_are_admitted() {
    let Some(database) = sink().await else { return };
    let client = connect(&database).await;
    for (token, expected) in [
        (5, "ok"),
        (5, "ok"),
        (4, "TF001"),
        (6, "ok"),
        (5, "TF001"),
        (6, "ok"),
        (HIGHEST - 1, "ok"),
        (HIGHEST, "ok"),
        (HIGHEST - 1, "TF001"),
    ] {
        assert_eq!(outcome(fence(&client, token).await), expected, "{token}");
    }
    assert_eq!(fence(&client, HIGHEST).await.unwrap(), HIGHEST);
    let other = client.query_one("SELECT tenure_fence('another', 1)", &[]).await;
    assert_eq!(outcome(other), "ok");
    // The file can be applied again and keeps the marks.
    client.batch_execute(POSTGRES).await.unwrap();
    assert_eq!(outcome(fence(&client, 7).await), "TF001");
}

#[tokio::test]
async fn rejection_names_the_seen_token_and_the_fix() {
    let Some(database) = sink().await else { return };
    let client = connect(&database).await;
    fence(&client, 43).await.unwrap();
    let error = fence(&client, 42).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.message(), "fenced: r has seen the token 43, and 42 is older");
    assert!(error.hint().unwrap().contains("acquire the lease again"), "{error:?}");
}

#[tokio::test]
async fn invalid_token_is_rejected_and_changes_nothing() {
    let Some(database) = sink().await else { return };
    let client = connect(&database).await;
    for call in ["'r', 0", "'r', -1", "'r', 9007199254740992", "'r', NULL", "NULL, 5"] {
        let refused = client.query_one(&format!("SELECT tenure_fence({call})"), &[]).await;
        assert_eq!(outcome(refused), "22023", "{call}");
    }
    assert_eq!(outcome(fence(&client, 1).await), "ok");
    assert_eq!(
        outcome(client.execute("UPDATE tenure_fence_marks SET token = 0", &[]).await),
        "23514"
    );
}

#[tokio::test]
async fn rejected_write_leaves_no_trace() {
    let Some(database) = sink().await else { return };
    let mut client = connect(&database).await;
    client
        .batch_execute("CREATE TABLE writes (token bigint)")
        .await
        .unwrap();
    let write = "INSERT INTO writes SELECT $1 FROM tenure_fence('r', $1)";
    assert_eq!(outcome(client.execute(write, &[&2_i64]).await), "ok");
    assert_eq!(outcome(client.execute(write, &[&1_i64]).await), "TF001");
    // In a transaction the order does not matter: a rejection rolls back what came before.
    let transaction = client.transaction().await.unwrap();
    transaction.execute("INSERT INTO writes VALUES (1)", &[]).await.unwrap();
    let refused = transaction.query_one("SELECT tenure_fence('r', 1)", &[]).await;
    assert_eq!(outcome(refused), "TF001");
    transaction.commit().await.unwrap(); // Postgres rolls it back
    assert_eq!(numbers(&client, "SELECT token FROM writes").await, [2]);
    // A rolled-back transaction leaves no mark.
    let transaction = client.transaction().await.unwrap();
    transaction.query_one("SELECT tenure_fence('r', 9)", &[]).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(outcome(client.execute(write, &[&3_i64]).await), "ok");
}

#[tokio::test]
async fn successor_waits_for_admitted_writes() {
    let Some(database) = sink().await else { return };
    let (old, same, new, watcher) = (
        connect(&database).await,
        connect(&database).await,
        connect(&database).await,
        connect(&database).await,
    );
    fence(&old, 41).await.unwrap();
    old.batch_execute("BEGIN").await.unwrap();
    fence(&old, 41).await.unwrap();
    // The holder's own sessions do not block each other.
    same.batch_execute("SET lock_timeout = '1s'; BEGIN").await.unwrap();
    fence(&same, 41).await.unwrap();
    same.batch_execute("COMMIT").await.unwrap();
    let (successor, ()) = tokio::join!(fence(&new, 42), async {
        until_one_waits(&watcher).await;
        assert_eq!(outcome(fence(&old, 41).await), "ok", "it is still inside");
        old.batch_execute("COMMIT").await.unwrap();
    });
    assert_eq!(successor.unwrap(), 42);
    assert_eq!(outcome(fence(&old, 41).await), "TF001");
}

#[tokio::test]
async fn old_holder_waits_for_a_rising_mark() {
    let Some(database) = sink().await else { return };
    let (old, new, watcher) = (
        connect(&database).await,
        connect(&database).await,
        connect(&database).await,
    );
    fence(&old, 41).await.unwrap();
    for (end, expected) in [("ROLLBACK", "ok"), ("COMMIT", "TF001")] {
        new.batch_execute("BEGIN").await.unwrap();
        fence(&new, 42).await.unwrap();
        let (late, ()) = tokio::join!(fence(&old, 41), async {
            until_one_waits(&watcher).await;
            new.batch_execute(end).await.unwrap();
        });
        assert_eq!(outcome(late), expected, "{end}");
    }
}

#[tokio::test]
async fn first_writers_of_a_resource_are_ordered() {
    let Some(database) = sink().await else { return };
    let (first, second, watcher) = (
        connect(&database).await,
        connect(&database).await,
        connect(&database).await,
    );
    first.batch_execute("BEGIN").await.unwrap();
    fence(&first, 42).await.unwrap();
    let (late, ()) = tokio::join!(fence(&second, 41), async {
        until_one_waits(&watcher).await;
        first.batch_execute("COMMIT").await.unwrap();
    });
    assert_eq!(outcome(late), "TF001");
}

#[tokio::test]
async fn moved_mark_fails_serialization_under_a_fixed_snapshot() {
    let Some(database) = sink().await else { return };
    let (fixed, other) = (connect(&database).await, connect(&database).await);
    let mut mark = 100;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for ahead in [-1, 0, 5] {
            fence(&other, mark).await.unwrap();
            fixed
                .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}"))
                .await
                .unwrap();
            // The snapshot is taken here.
            numbers(&fixed, "SELECT token FROM tenure_fence_marks").await;
            fence(&other, mark + 2).await.unwrap();
            let expected = if ahead < 0 { "TF001" } else { "40001" };
            assert_eq!(outcome(fence(&fixed, mark + ahead).await), expected, "{level} {ahead}");
            fixed.batch_execute("ROLLBACK").await.unwrap();
            let again = outcome(fence(&fixed, mark + ahead).await);
            assert_eq!(again, if ahead < 2 { "TF001" } else { "ok" }, "{level} {ahead}");
            mark += 10;
        }
    }
}

#[tokio::test]
async fn concurrent_writers_leave_a_monotonic_log() {
    let Some(database) = sink().await else { return };
    let watcher = connect(&database).await;
    // The number is drawn after the token was admitted and before the transaction ends.
    watcher
        .batch_execute("CREATE TABLE writes (at bigserial, token bigint)")
        .await
        .unwrap();
    let next = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(1));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (mut client, next) = (connect(&database).await, next.clone());
        writers.spawn(async move {
            let mut refused = 0;
            for _ in 0..60 {
                // Each token is used by two transactions, often by two writers.
                let token = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) / 2;
                let transaction = client.transaction().await.unwrap();
                match transaction
                    .query_one("SELECT tenure_fence('r', $1)", &[&(token + 1)])
                    .await
                {
                    Ok(_) => {
                        let write = "INSERT INTO writes (token) VALUES ($1)";
                        transaction.execute(write, &[&(token + 1)]).await.unwrap();
                        transaction.commit().await.unwrap();
                    }
                    Err(error) => {
                        assert_eq!(outcome::<()>(Err(error)), "TF001");
                        refused += 1;
                    }
                }
            }
            refused
        });
    }
    let refused: usize = writers.join_all().await.iter().sum();
    let tokens = numbers(&watcher, "SELECT token FROM writes ORDER BY at").await;
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_eq!(tokens.len() + refused, 360);
    assert!(tokens.len() > 50, "only {}", tokens.len());
}

#[tokio::test]
async fn stalled_transaction_of_a_holder_is_terminated() {
    let Some(database) = sink().await else { return };
    let (old, new) = (connect(&database).await, connect(&database).await);
    // In one message, so that the time-out starts with the stall.
    let admitted = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '200ms'; SELECT tenure_fence('r', 41)";
    old.batch_execute(admitted).await.unwrap();
    // The holder stays silent, and its successor is admitted.
    assert_eq!(outcome(fence(&new, 42).await), "ok");
    assert!(fence(&old, 41).await.is_err());
}

#[tokio::test]
async fn function_works_from_any_schema_with_three_privileges() {
    let Some(database) = sink().await else { return };
    let client = connect(&database).await;
    client
        .batch_execute(
            "CREATE SCHEMA app; CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.tenure_fence_marks (n int);
             SET search_path = app",
        )
        .await
        .unwrap();
    client.batch_execute(POSTGRES).await.unwrap();
    client
        .batch_execute(
            "CREATE ROLE writer; GRANT USAGE ON SCHEMA app TO writer;
             GRANT SELECT, INSERT, UPDATE ON app.tenure_fence_marks TO writer;
             SET search_path = elsewhere; SET ROLE writer",
        )
        .await
        .unwrap();
    for (token, expected) in [(5, "ok"), (5, "ok"), (6, "ok"), (5, "TF001")] {
        let row = client
            .query_one("SELECT app.tenure_fence('r', $1)", &[&i64::from(token)])
            .await;
        assert_eq!(outcome(row), expected, "{token}");
    }
    let named = "SELECT app.tenure_fence(token => 6, resource => 'r')";
    assert_eq!(outcome(client.query_one(named, &[]).await), "ok");
    client
        .batch_execute("RESET ROLE; REVOKE UPDATE ON app.tenure_fence_marks FROM writer; SET ROLE writer")
        .await
        .unwrap();
    assert_eq!(outcome(client.query_one(named, &[]).await), "42501");
}
