//! A service as a claim.

use std::time::Duration;

use tenure::{JoinOptions, Tenure};
use tenure_core::clock::within;

use super::*;
use crate::catalog::{Flushed, Phase};

const PATIENCE: Duration = Duration::from_secs(30);
const KEY: &str = "web:web-1:10.1.2.3:80";

fn service() -> Service {
    let mut service = Service::new("web-1", "web", 80);
    service.address = Some("10.1.2.3".to_owned());
    service.ttl = Duration::from_secs(1);
    service
}

async fn join(tenure: &Tenure, name: &str) -> Arc<Membership> {
    let options = JoinOptions::named(name).unwrap();
    Arc::new(tenure.group("web").unwrap().join(options).await.unwrap())
}

fn joined(membership: &Arc<Membership>) -> MembershipWatch {
    tokio::sync::watch::channel(Some(Arc::clone(membership))).1
}

async fn phase(tenure: &Tenure, catalog: &Catalog, wanted: Phase) {
    let mut status = catalog.watch();
    let came = within(
        &**tenure.clock(),
        PATIENCE,
        status.wait_for(|status| status.phase == wanted),
    )
    .await;
    assert!(came.is_some(), "timed out waiting for {wanted:?}: {}", catalog.status());
}

#[tokio::test]
async fn service_is_claimed_while_wanted_and_reclaimed_when_lost() {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let one = join(&tenure, "one").await;
    let catalog = catalog(joined(&one), service(), tenure.clock()).unwrap();
    let claims = one.registry(SERVICES).unwrap();
    catalog.want(true);
    phase(&tenure, &catalog, Phase::Passing).await;
    assert_eq!(claims.look_up(KEY).await.unwrap().unwrap().tenure, one.tenure());
    claims.release(KEY).await.unwrap();
    let mut found = None;
    while found.is_none() {
        found = claims.look_up(KEY).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
    assert!(claims.look_up(KEY).await.unwrap().is_none());
}

#[tokio::test]
async fn claim_of_another_member_is_left_alone_until_it_ends() {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let (one, two) = (join(&tenure, "one").await, join(&tenure, "two").await);
    let catalog = catalog(joined(&one), service(), tenure.clock()).unwrap();
    catalog.want(true);
    phase(&tenure, &catalog, Phase::Passing).await;
    two.registry(SERVICES).unwrap().claim(KEY).await.unwrap();
    phase(&tenure, &catalog, Phase::Taken).await;
    two.leave().await.unwrap();
    phase(&tenure, &catalog, Phase::Passing).await;
}

#[test]
fn service_without_a_usable_address_is_rejected() {
    assert_eq!(key_of(&service()).unwrap().as_str(), KEY);
    let nowhere = Service {
        address: None,
        ..service()
    };
    let unwritable = Service {
        address: Some("[::1]".to_owned()),
        ..service()
    };
    assert!(key_of(&nowhere).is_err() && key_of(&unwritable).is_err());
}

#[tokio::test]
async fn service_is_claimed_once_the_store_is_joined() {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let (tell, joined) = tokio::sync::watch::channel(None);
    let catalog = catalog(joined, service(), tenure.clock()).unwrap();
    catalog.want(true);
    phase(&tenure, &catalog, Phase::Registering).await;
    let one = join(&tenure, "one").await;
    tell.send_replace(Some(Arc::clone(&one)));
    phase(&tenure, &catalog, Phase::Passing).await;
    let claims = one.registry(SERVICES).unwrap();
    assert_eq!(claims.look_up(KEY).await.unwrap().unwrap().tenure, one.tenure());
}
