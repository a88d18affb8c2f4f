//! The client's estimate of the store's clock, seen in the not-after times that it sends.

use tenure_core::clock::ManualClock;
use tenure_core::remote_clock::FRESH;

use super::*;

/// When a client's own clock begins. It runs only where a test moves it, so that a slow machine changes no estimate.
const START: u64 = 1_763_676_800_000_000;

struct Asked {
    clock: Arc<ManualClock>,
    store: HttpStore,
    heads: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Asked {
    /// A client of a daemon that gives these replies.
    async fn with(replies: &[&str]) -> Self {
        let (addr, heads) = stub(replies).await;
        let clock = Arc::new(ManualClock::new(START, 1));
        let store = HttpStore::new(&format!("http://{addr}"), clock.clone(), Handle::current(), PATIENT);
        Self {
            clock,
            store: store.expect("a client"),
            heads,
        }
    }

    async fn join(&self, call: Call) -> tenure_core::Result<TenureId> {
        let joined = self.store.join(&group(), &join("a"), call).await?;
        Ok(joined.tenure)
    }

    /// The requests so far, each by its line and the year of its not-after.
    fn requests(&mut self) -> Vec<String> {
        let mut requests = Vec::new();
        while let Ok(head) = self.heads.try_recv() {
            let path = head.split(' ').nth(1).expect("a path");
            let limit = head.split("tenure-not-after: ").nth(1).map_or("", |limit| &limit[..4]);
            requests.push(format!("{path} {limit}").trim().to_owned());
        }
        requests
    }
}

fn now(at: &str) -> String {
    reply("200 OK", "application/json", &json!({ "now": at }).to_string())
}

fn late() -> String {
    let late = json!({"type": "x", "title": "x", "status": 409, "code": "too_late", "detail": "late"}).to_string();
    reply("409 Conflict", "application/problem+json", &late)
}

/// A tenure, from a daemon whose store has this time.
fn joined(at: &str) -> String {
    let joined = json!({
        "tenure": "a@5", "member": "a", "term": 5, "ttl_ms": 30_000, "expires_in_ms": 30_000, "as_of": at
    });
    let reply = reply("201 Created", "application/json", &joined.to_string());
    reply.replacen("\r\n", &format!("\r\ntenure-store-time: {at}\r\n"), 1)
}

#[tokio::test]
async fn clock_set_forward_costs_one_retry() {
    let (before, after) = ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    let mut asked = Asked::with(&[&now(before), &late(), &now(after), &joined(after)]).await;
    assert_eq!(asked.join(Call::default()).await.unwrap(), "a@5".parse().unwrap());
    let members = "/v1/groups/g/members";
    assert_eq!(
        asked.requests(),
        [
            "/v1/now".to_owned(),
            format!("{members} 2026"),
            "/v1/now".to_owned(),
            format!("{members} 2027")
        ]
    );
}

#[tokio::test]
async fn a_callers_own_limit_is_never_stretched() {
    let asked = Asked::with(&[&now("2026-01-01T00:00:00Z"), &late()]).await;
    let call = Call::not_after("2026-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(asked.join(call).await.unwrap_err().kind(), ErrorKind::TooLate);
}

#[tokio::test]
async fn a_clock_that_fell_back_counts_from_the_next_call() {
    let (before, after) = ("2027-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
    let mut asked = Asked::with(&[&now(before), &joined(after)]).await;
    for _ in 0..2 {
        asked.join(Call::default()).await.unwrap();
        // The next request is asked for after this reply arrived.
        asked.clock.advance(Duration::from_millis(1));
    }
    let requests = asked.requests();
    assert_eq!(requests.len(), 3);
    assert!(
        requests[1].ends_with(" 2027") && requests[2].ends_with(" 2026"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn a_client_that_was_idle_asks_for_the_time_again() {
    let at = "2026-01-01T00:00:00Z";
    let mut asked = Asked::with(&[&now(at), &joined(at), &joined(at), &now(at), &joined(at)]).await;
    asked.join(Call::default()).await.unwrap();
    asked.clock.advance(FRESH);
    asked.join(Call::default()).await.unwrap();
    asked.clock.advance(FRESH + Duration::from_millis(1));
    asked.join(Call::default()).await.unwrap();
    let asks = |request: &String| request == "/v1/now";
    let asked: Vec<_> = asked.requests().iter().map(asks).collect();
    assert_eq!(asked, [true, false, false, true, false]);
}
