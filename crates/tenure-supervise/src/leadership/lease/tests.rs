//! Candidates for one lease.

use tenure::{JoinOptions, Tenure};
use tenure_core::clock::SystemClock;
use tokio::sync::watch::Receiver;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// A node: a membership that tries to acquire the lease.
struct Node {
    membership: Arc<Membership>,
    candidate: LeaseCandidate,
    source: Option<Leadership>,
    said: Receiver<Evidence>,
}

async fn node(tenure: &Tenure, name: &str, campaigning: bool) -> Node {
    let options = JoinOptions {
        // Long enough to survive a short stall of the machine.
        ttl: Duration::from_secs(9),
        ..JoinOptions::named(name).unwrap()
    };
    let membership = Arc::new(tenure.group("nodes").unwrap().join(options).await.unwrap());
    let clock: Arc<dyn Clock> = Arc::clone(tenure.clock());
    let (source, candidate) = watch(Arc::clone(&membership), "primary", campaigning, &clock).unwrap();
    let said = source.evidence();
    Node {
        membership,
        candidate,
        source: Some(source),
        said,
    }
}

impl Node {
    async fn says(&mut self, what: &str, wanted: impl Fn(&Evidence) -> bool) -> Evidence {
        let clock = SystemClock::new();
        let came = within(&clock, PATIENCE, self.said.wait_for(|said| wanted(said))).await;
        let came = came.map(|said| said.unwrap().clone());
        came.unwrap_or_else(|| panic!("timed out waiting for {what}: {:?}", *self.said.borrow()))
    }

    async fn primary(&mut self) -> Primacy {
        match self.says("primary", |said| matches!(said, Evidence::Primary(_))).await {
            Evidence::Primary(primacy) => primacy,
            said => panic!("{said:?}"),
        }
    }

    async fn asks(&self, whether: bool) {
        let (clock, mut wanted) = (SystemClock::new(), self.candidate.shared.wanted.subscribe());
        let came = within(&clock, PATIENCE, wanted.wait_for(|wanted| *wanted == whether)).await;
        assert!(came.is_some(), "campaigning is not {whether}");
    }

    async fn replica(&mut self) {
        self.says("replica", |said| *said == Evidence::Replica).await;
    }
}

#[tokio::test]
async fn successor_gets_the_lease_with_a_higher_token() {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let mut one = node(&tenure, "one", true).await;
    let first = one.primary().await;
    assert_eq!(first.term, Some(one.membership.tenure().term()));
    assert!(first.until.unwrap() > tenure.clock().mono());
    let mut two = node(&tenure, "two", true).await;
    two.replica().await;
    // Beats extend the deadline.
    one.says(
        "a later deadline",
        |said| matches!(said, Evidence::Primary(now) if now.until > first.until),
    )
    .await;
    assert!(one.candidate.release(PATIENCE).await);
    one.replica().await;
    let second = two.primary().await;
    assert!(second.token > first.token, "{second:?} {first:?}");
    // A released lease is not acquired again automatically.
    assert!(two.candidate.release(PATIENCE).await);
    two.replica().await;
    assert_eq!(*one.said.borrow(), Evidence::Replica);
    one.candidate.campaign();
    assert!(one.primary().await.token > second.token);
}

#[tokio::test]
async fn expelled_node_stays_replica() {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let mut one = node(&tenure, "one", true).await;
    one.primary().await;
    let mut two = node(&tenure, "two", true).await;
    let ended = one.membership.tenure();
    tenure.group("nodes").unwrap().expel(&ended).await.unwrap();
    one.replica().await;
    two.primary().await;
    // It cannot acquire any more, and an *uncertain* must not overwrite the replica.
    assert_eq!(*one.said.borrow(), Evidence::Replica);
}

#[tokio::test]
async fn second_guard_is_acquired_only_while_first_says_primary() {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let clock: Arc<dyn Clock> = Arc::clone(tenure.clock());
    let (file, told) = tokio::sync::watch::channel(Evidence::Replica);
    let mut one = node(&tenure, "one", false).await;
    let (first, lease) = (Leadership::new(told, Vec::new()), one.source.take().unwrap());
    let together = guarded(&clock, first, lease, one.candidate.clone());
    one.said = together.evidence();
    one.replica().await;
    let mut two = node(&tenure, "two", true).await;
    two.primary().await;
    two.candidate.release(PATIENCE).await;
    file.send_replace(Evidence::primary());
    let primacy = one.primary().await;
    assert!(primacy.token.is_some() && primacy.until.is_some());
    // When the file says replica, the node is a replica but keeps the lease until the child is gone.
    file.send_replace(Evidence::Replica);
    one.replica().await;
    assert_eq!(one.membership.leases().held(), 1);
    assert!(one.candidate.release(PATIENCE).await && !one.candidate.holds());
    assert_eq!(one.membership.leases().held(), 0);
    two.candidate.campaign();
    let second = two.primary().await;
    // While another node holds it and the file says primary for a moment, the replica campaigns, then stops.
    file.send_replace(Evidence::primary());
    one.asks(true).await;
    file.send_replace(Evidence::Replica);
    one.asks(false).await;
    // A released lease is acquired again while the file still says primary.
    file.send_replace(Evidence::primary());
    one.asks(true).await;
    two.candidate.release(PATIENCE).await;
    let third = one.primary().await;
    assert!(third.token > second.token);
    assert!(one.candidate.release(PATIENCE).await);
    one.says(
        "primary again",
        |said| matches!(said, Evidence::Primary(now) if now.token > third.token),
    )
    .await;
}
