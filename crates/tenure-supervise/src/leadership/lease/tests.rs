//! Nodes that ask for one lease.

use tenure::{JoinOptions, Tenure};
use tenure_core::clock::SystemClock;
use tokio::sync::watch::Receiver;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// A node of its own: a membership that asks for the lease.
struct Node {
    membership: Arc<Membership>,
    contender: Contender,
    source: Option<Leadership>,
    said: Receiver<Evidence>,
}

async fn node(tenure: &Tenure, name: &str, contending: bool) -> Node {
    let options = JoinOptions {
        // So long that a machine which stands still for a moment costs nobody the lease.
        ttl: Duration::from_secs(9),
        ..JoinOptions::named(name).unwrap()
    };
    let membership = Arc::new(tenure.group("nodes").unwrap().join(options).await.unwrap());
    let clock: Arc<dyn Clock> = Arc::clone(tenure.clock());
    let (source, contender) = watch(Arc::clone(&membership), "primary", contending, &clock).unwrap();
    let said = source.evidence();
    Node {
        membership,
        contender,
        source: Some(source),
        said,
    }
}

impl Node {
    async fn says(&mut self, what: &str, wanted: impl Fn(&Evidence) -> bool) -> Evidence {
        let clock = SystemClock::new();
        let came = within(&clock, PATIENCE, self.said.wait_for(|said| wanted(said))).await;
        let came = came.map(|said| said.unwrap().clone());
        came.unwrap_or_else(|| panic!("waited in vain for {what}: {:?}", *self.said.borrow()))
    }

    async fn primary(&mut self) -> Primacy {
        match self.says("primary", |said| matches!(said, Evidence::Primary(_))).await {
            Evidence::Primary(primacy) => primacy,
            said => panic!("{said:?}"),
        }
    }

    async fn asks(&self, whether: bool) {
        let (clock, mut wanted) = (SystemClock::new(), self.contender.shared.wanted.subscribe());
        let came = within(&clock, PATIENCE, wanted.wait_for(|wanted| *wanted == whether)).await;
        assert!(came.is_some(), "asks for it: not {whether}");
    }

    async fn replica(&mut self) {
        self.says("replica", |said| *said == Evidence::Replica).await;
    }
}

#[tokio::test]
async fn one_node_has_it_until_it_gives_it_up_and_its_successor_has_a_higher_token() {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let mut one = node(&tenure, "one", true).await;
    let first = one.primary().await;
    assert_eq!(first.term, Some(one.membership.tenure().term()));
    assert!(first.until.unwrap() > tenure.clock().mono());
    let mut two = node(&tenure, "two", true).await;
    two.replica().await;
    // Beats move the deadline on.
    one.says(
        "a later deadline",
        |said| matches!(said, Evidence::Primary(now) if now.until > first.until),
    )
    .await;
    assert!(one.contender.give_up(PATIENCE).await);
    one.replica().await;
    let second = two.primary().await;
    assert!(second.token > first.token, "{second:?} {first:?}");
    // It does not come back for it by itself.
    assert!(two.contender.give_up(PATIENCE).await);
    two.replica().await;
    assert_eq!(*one.said.borrow(), Evidence::Replica);
    one.contender.contend();
    assert!(one.primary().await.token > second.token);
}

#[tokio::test]
async fn a_node_whose_tenure_is_over_is_a_replica_and_never_doubts_that() {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let mut one = node(&tenure, "one", true).await;
    one.primary().await;
    let mut two = node(&tenure, "two", true).await;
    let ended = one.membership.tenure();
    tenure.group("nodes").unwrap().expel(&ended).await.unwrap();
    one.replica().await;
    two.primary().await;
    // It cannot ask any more, and a doubt might overtake what it has said.
    assert_eq!(*one.said.borrow(), Evidence::Replica);
}

#[tokio::test]
async fn as_a_second_guard_it_is_asked_for_only_where_the_first_says_primary() {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let clock: Arc<dyn Clock> = Arc::clone(tenure.clock());
    let (file, told) = tokio::sync::watch::channel(Evidence::Replica);
    let mut one = node(&tenure, "one", false).await;
    let (first, lease) = (Leadership::new(told, Vec::new()), one.source.take().unwrap());
    let together = guarded(&clock, first, lease, one.contender.clone());
    one.said = together.evidence();
    one.replica().await;
    let mut two = node(&tenure, "two", true).await;
    two.primary().await;
    two.contender.give_up(PATIENCE).await;
    file.send_replace(Evidence::primary());
    let primacy = one.primary().await;
    assert!(primacy.token.is_some() && primacy.until.is_some());
    // The file says replica: so does it, and keeps the lease until the child is gone.
    file.send_replace(Evidence::Replica);
    one.replica().await;
    assert_eq!(one.membership.leases().held(), 1);
    assert!(one.contender.give_up(PATIENCE).await && !one.contender.holds());
    assert_eq!(one.membership.leases().held(), 0);
    two.contender.contend();
    let second = two.primary().await;
    // While it is another's the file says primary for a while: a replica that has asked asks no more.
    file.send_replace(Evidence::primary());
    one.asks(true).await;
    file.send_replace(Evidence::Replica);
    one.asks(false).await;
    // What was given up is asked for again where the file still says primary.
    file.send_replace(Evidence::primary());
    one.asks(true).await;
    two.contender.give_up(PATIENCE).await;
    let third = one.primary().await;
    assert!(third.token > second.token);
    assert!(one.contender.give_up(PATIENCE).await);
    one.says(
        "primary again",
        |said| matches!(said, Evidence::Primary(now) if now.token > third.token),
    )
    .await;
}
