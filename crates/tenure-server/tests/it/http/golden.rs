//! The HTTP surface word for word: golden files of every route but those of rosters.

use tenure_core::error::ErrorKind;

use crate::common::faulty::{Faulty, Mood};
use crate::common::golden::Golden;

#[tokio::test]
async fn members_and_beats() {
    Golden::start().await.play("members").await;
}

#[tokio::test]
async fn registries() {
    Golden::start().await.play("registries").await;
}

#[tokio::test]
async fn leases() {
    Golden::start().await.play("leases").await;
}

#[tokio::test]
async fn targets() {
    Golden::start().await.play("targets").await;
}

#[tokio::test]
async fn sessions() {
    Golden::start().await.play("sessions").await;
}

#[tokio::test]
async fn events() {
    Golden::start().await.play("events").await;
}

#[tokio::test]
async fn sweep_and_settle() {
    Golden::start().await.play("sweep").await;
}

#[tokio::test]
async fn daemon() {
    Golden::start().await.play("daemon").await;
}

#[tokio::test]
async fn refused_requests() {
    Golden::start().await.play("refused").await;
}

/// The error of a failing store is passed on, with what is known of the outcome.
#[tokio::test]
async fn failing_store() {
    for (kind, name) in [
        (ErrorKind::Unavailable, "store_unavailable"),
        (ErrorKind::Internal, "store_internal"),
        (ErrorKind::Denied, "store_denied"),
    ] {
        let golden = Golden::over(|clock| {
            let store = Faulty::new(clock);
            store.be(Mood::Fails(kind));
            store
        });
        golden.await.play(name).await;
    }
}
