//! Calls that are sent in parts, where one part succeeds and the next is refused.

use std::sync::Arc;

use tenure_core::error::{Error, Outcome};
use tenure_core::id::{ConnectionId, LeaseName, SessionId};
use tenure_core::lease::LeaseStore;
use tenure_core::registry::{ClaimMode, RegistryStore};
use tenure_core::session::{Attach, Detach, SessionStore};
use tenure_core::store::Call;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_valkey::ValkeyStore;

use crate::relay::Relay;
use crate::world::*;

on_both! { partly_applied_call_has_unknown_outcome }

/// More than two parts of any step.
const MANY: usize = 450;

/// Fills the memory from the second request of a step on.
fn fill_after_one(relay: &Relay, server: &Arc<Server>) {
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap().text(), "OK");
    let (server, mut seen) = (Arc::clone(server), 0);
    relay.before_requests(move |request| {
        seen += usize::from(request.windows(7).any(|word| word == b"EVALSHA"));
        if seen == 2 {
            assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap().text(), "OK");
        }
    });
}

#[track_caller]
fn is_unknown<T: std::fmt::Debug>(what: &str, done: Result<T, Error>) {
    let error = unavailable(done, Outcome::Unknown);
    assert!(error.chain().contains("OOM"), "{what}: {error:?}");
}

async fn partly_applied_call_has_unknown_outcome(flavour: Flavour) {
    let server = Arc::new(server(flavour, &["--maxmemory-policy", "noeviction"]));
    mature(&server);
    let relay = Relay::start("127.0.0.1", server.addr()).await;
    let store: Arc<ValkeyStore> = open(&format!("valkey://{}", relay.addr())).await;
    let (tenure, group, call) = (join(&store, "a").await, group(), Call::default());
    let names: Vec<String> = (0..MANY).map(|n| format!("n{n}")).collect();
    let leases: Vec<LeaseName> = names.iter().map(|name| lease(name)).collect();
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    let (session, connection) = (SessionId::new("chat").unwrap(), |name: &String| {
        ConnectionId::new(name).unwrap()
    });
    let attaches: Vec<Attach> = names
        .iter()
        .map(|name| Attach::new(session.clone(), connection(name)))
        .collect();
    let detaches: Vec<Detach> = names
        .iter()
        .map(|name| Detach {
            session: session.clone(),
            connection: connection(name),
            epoch: None,
        })
        .collect();
    // The server has every script from here on.
    let granted = store.acquire(&group, &tenure, &leases[..1], call).await.unwrap();
    let token = granted.outcomes[0].token().expect("a grant");
    let held: Vec<_> = leases.iter().map(|lease| (lease.clone(), token)).collect();
    store
        .release_leases(&group, &tenure, &held[..1], None, call)
        .await
        .unwrap();
    claim(&store, &tenure, "k").await.unwrap();
    store.attach(&group, &tenure, &attaches[..1], call).await.unwrap();
    store.detach(&group, &tenure, &detaches[..1], call).await.unwrap();

    fill_after_one(&relay, &server);
    is_unknown("acquire", store.acquire(&group, &tenure, &leases, call).await);
    fill_after_one(&relay, &server);
    is_unknown(
        "release",
        store.release_leases(&group, &tenure, &held, None, call).await,
    );
    fill_after_one(&relay, &server);
    let claimed = store
        .claim(&group, &devices(), &tenure, &keys, ClaimMode::Take, call)
        .await;
    is_unknown("claim", claimed);
    fill_after_one(&relay, &server);
    is_unknown("attach", store.attach(&group, &tenure, &attaches, call).await);
    fill_after_one(&relay, &server);
    is_unknown("detach", store.detach(&group, &tenure, &detaches, call).await);

    // A call whose first part is refused has changed nothing.
    let refused = store.acquire(&group, &tenure, &leases, call).await;
    unavailable(refused, Outcome::Unchanged);
}
