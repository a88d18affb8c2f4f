//! Short rounds on real processes, as part of all tests.

use std::time::Duration;

use tenure_robust::round::{self, Order};
use tenure_robust::world::{self, Kind};

async fn holds(kind: Kind) {
    let tenure = world::program().expect("the program is built with the tests");
    let folder = tempfile_folder();
    let order = Order {
        kind,
        length: Duration::from_secs(5),
        seed: 7,
        tenure: &tenure,
        planted: None,
        folder: &folder,
    };
    let verdict = round::run(order).await.expect("the round ends");
    assert!(verdict.calls > 100, "{verdict:?}");
    assert!(verdict.violations.is_empty(), "{:#?}", verdict.violations);
}

fn tempfile_folder() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("tenure-robust-{}", std::process::id()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_break_nothing_on_the_embedded_store() {
    holds(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_break_nothing_on_valkey() {
    if tenure_testkit::have("valkey-server").or_skip().is_some() {
        holds(Kind::Valkey).await;
    }
}
