//! Tables in Postgres that carry the token themselves: the trigger, and the condition.

use tokio_postgres::Client;

use crate::fence::sql::{connect, outcome, sink, until_one_waits};

const TABLE: &str = "CREATE TABLE devices (id text PRIMARY KEY, level int, fence_token bigint);
    INSERT INTO devices VALUES ('before', 1, NULL);
    CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON devices FOR EACH ROW EXECUTE FUNCTION tenure_fence_row()";

const UPSERT: &str = "INSERT INTO devices VALUES ('d', $1, $2)
    ON CONFLICT (id) DO UPDATE SET level = EXCLUDED.level, fence_token = EXCLUDED.fence_token";

async fn level(client: &Client, id: &str) -> i32 {
    let row = client
        .query_one("SELECT level FROM devices WHERE id = $1", &[&id])
        .await;
    row.unwrap().get(0)
}

#[tokio::test]
async fn trigger_rejects_a_token_older_than_the_rows() {
    let Some(database) = sink().await else { return };
    let client = connect(&database).await;
    client.batch_execute(TABLE).await.unwrap();
    for (value, token, expected) in [
        (1, 5_i64, "ok"),
        (2, 5, "ok"),
        (3, 4, "TF001"),
        (4, 6, "ok"),
        (5, 5, "TF001"),
        (6, 0, "22023"),
        (7, 1 << 53, "22023"),
    ] {
        assert_eq!(
            outcome(client.execute(UPSERT, &[&value, &token]).await),
            expected,
            "{value}"
        );
    }
    assert_eq!(level(&client, "d").await, 4);
    let without = client
        .execute("INSERT INTO devices (id, level) VALUES ('e', 1)", &[])
        .await;
    assert_eq!(outcome(without), "22023");
    // A row from before the fence takes its first token.
    let first = "UPDATE devices SET fence_token = 3 WHERE id = 'before'";
    assert_eq!(outcome(client.execute(first, &[]).await), "ok");
    // What the trigger cannot see, as the file says.
    let silent = "UPDATE devices SET level = 9 WHERE id = 'd'";
    assert_eq!(outcome(client.execute(silent, &[]).await), "ok");
    let error = client.execute(UPSERT, &[&1, &2_i64]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(
        error.message(),
        "fenced: a row of devices has seen the token 6, and 2 is older"
    );
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn writer_blocked_on_a_row_sees_the_newest_token() {
    let Some(database) = sink().await else { return };
    let (old, new, watcher) = (
        connect(&database).await,
        connect(&database).await,
        connect(&database).await,
    );
    old.batch_execute(TABLE).await.unwrap();
    old.execute(UPSERT, &[&1, &5_i64]).await.unwrap();
    new.batch_execute("BEGIN").await.unwrap();
    new.execute(UPSERT, &[&2, &6_i64]).await.unwrap();
    let late = [&3_i32 as &(dyn tokio_postgres::types::ToSql + Sync), &5_i64];
    let (late, ()) = tokio::join!(old.execute(UPSERT, &late), async {
        until_one_waits(&watcher).await;
        new.batch_execute("COMMIT").await.unwrap();
    });
    assert_eq!(outcome(late), "TF001");
    assert_eq!(level(&old, "d").await, 2);
}

#[tokio::test]
async fn condition_matches_no_row_for_an_older_token() {
    let Some(database) = sink().await else { return };
    let (old, new, watcher) = (
        connect(&database).await,
        connect(&database).await,
        connect(&database).await,
    );
    old.batch_execute("CREATE TABLE devices (id text PRIMARY KEY, level int, fence_token bigint NOT NULL DEFAULT 0)")
        .await
        .unwrap();
    old.batch_execute("INSERT INTO devices VALUES ('d', 0)").await.unwrap();
    let write = "UPDATE devices SET level = $1, fence_token = $2 WHERE id = 'd' AND fence_token <= $2";
    for (value, token, rows) in [(1, 5_i64, 1), (2, 5, 1), (3, 4, 0), (4, 6, 1), (5, 5, 0)] {
        assert_eq!(old.execute(write, &[&value, &token]).await.unwrap(), rows, "{value}");
    }
    new.batch_execute("BEGIN").await.unwrap();
    assert_eq!(new.execute(write, &[&6, &7_i64]).await.unwrap(), 1);
    let (late, ()) = tokio::join!(async { old.execute(write, &[&7, &6_i64]).await.unwrap() }, async {
        until_one_waits(&watcher).await;
        new.batch_execute("COMMIT").await.unwrap();
    });
    assert_eq!((late, level(&old, "d").await), (0, 6));
}
