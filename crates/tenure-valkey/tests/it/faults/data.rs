//! Foreign data, and numbers at the limit.

use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::event::{EventId, EventLog, EventQuery};
use tenure_core::lease::{LeaseStore, Token};
use tenure_core::membership::{BeatReply, EndBy, EndReason, MembershipStore};
use tenure_core::registry::RegistryStore;
use tenure_core::store::{Call, PageRequest, Store, StoreOptions};
use tenure_core::sweep::{ReleaseRequest, Sweep, SweepSteps};
use tenure_core::target::{TargetSpec, TargetStore};
use tenure_testkit::valkey::Flavour;
use tenure_valkey::ValkeyStore;

use crate::world::*;

on_both! {
    foreign_key_type_refuses_the_whole_step,
    foreign_values_are_errors,
    data_of_another_format_is_refused_by_name,
    group_recovers_after_losing_liveness_data,
    terms_near_2_pow_53_are_exact,
    large_group_is_listed_in_pages,
    unlisted_group_is_found_by_scan,
    forgotten_group_stays_unlisted,
}

/// Calls every verb once; returns the errors.
async fn every_verb(store: &ValkeyStore, tenure: &tenure_core::TenureId) -> Vec<tenure_core::Error> {
    let (group, registry, page) = (group(), devices(), PageRequest::default());
    let query = EventQuery {
        after: None,
        limit: 10,
        ..EventQuery::default()
    };
    let release = ReleaseRequest {
        pass: "p".to_owned(),
        limit: 10,
        force: true,
    };
    let token = Token::new(1).unwrap();
    let results = [
        try_join(store, "b").await.map(drop),
        try_beat(store, tenure).await.map(drop),
        claim(store, tenure, "k").await,
        store
            .release_claim(&group, &registry, &key("x"), tenure, Call::default())
            .await,
        store.claim_of(&group, &registry, &key("k")).await.map(drop),
        store.claims(&group, &registry, None, &page).await.map(drop),
        store
            .claims(&group, &registry, Some(&member("a")), &page)
            .await
            .map(drop),
        acquire(store, tenure, "l").await.map(drop),
        store
            .release_leases(
                &group,
                tenure,
                &[(lease("l"), token)],
                Some(&member("b")),
                Call::default(),
            )
            .await
            .map(drop),
        store.lease_of(&group, &lease("l")).await.map(drop),
        store.leases(&group, None, &page).await.map(drop),
        store.leases(&group, Some(&member("a")), &page).await.map(drop),
        store.held_leases(&group, tenure, &page).await.map(drop),
        store
            .put_target(&group, &lease("t"), TargetSpec::default(), Call::default())
            .await
            .map(drop),
        store.target(&group, &lease("t")).await.map(drop),
        store.targets(&group, &page).await.map(drop),
        store
            .remove_target(&group, &lease("t"), Call::default())
            .await
            .map(drop),
        store.member(&group, &member("a")).await.map(drop),
        store.members(&group, &page).await.map(drop),
        store.tick(&group).await.map(drop),
        store.status(&group).await.map(drop),
        store.end_lapsed(&group, 10, Call::default()).await.map(drop),
        store.release(&group, &release, Call::default()).await.map(drop),
        store.doomed(&group, 10).await.map(drop),
        store.events(&group, &query).await.map(drop),
        store.end(&group, tenure, EndBy::Leave, Call::default()).await.map(drop),
        store.groups().await.map(drop),
    ];
    results.into_iter().filter_map(Result::err).collect()
}

async fn data_of_another_format_is_refused_by_name(flavour: Flavour) {
    let server = server(flavour, &[]);
    mature(&server);
    server.cli(&["HSET", "tenure:store", "format", "3"]).unwrap();
    let store = open(&server.url()).await;
    let before = dump(&server);
    let error = try_join(&store, "a").await.expect_err("it is of a later version");
    assert_eq!(error.outcome(), Outcome::Unchanged, "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    for word in ["format 3", "format 2", "run that version"] {
        assert!(error.chain().contains(word), "{error:?}");
    }
    assert_eq!(dump(&server), before);
    server.cli(&["HDEL", "tenure:store", "format"]).unwrap();
    until_up(&store).await;
    join(&store, "a").await;
    assert_eq!(server.cli(&["HGET", "tenure:store", "format"]).unwrap().text(), "2");
    // Another program writes its own beside a program that is connected.
    server.cli(&["FLUSHALL"]).unwrap();
    server.cli(&["HSET", "tenure:store", "format", "0"]).unwrap();
    let other = open(&server.url()).await;
    let error = try_join(&other, "b").await.expect_err("it is of an earlier version");
    assert!(error.chain().contains("format 0"), "{error:?}");
}

async fn foreign_key_type_refuses_the_whole_step(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    let mut foreign: Vec<String> = [
        "meta",
        "members",
        "alive",
        "labels",
        "due",
        "ended",
        "forget",
        "releasing",
        "releasing:lapsed",
        "lapses",
        "events",
        "claims:devices",
        "leases",
        "reserved",
        "reservations",
        "targets",
        "unreleased:a",
        "sessions",
        "disconnected",
        "aliases",
    ]
    .iter()
    .map(|suffix| format!("{{tenure:ingest}}:{suffix}"))
    .collect();
    foreign.extend(["tenure:groups".to_owned(), "tenure:store".to_owned()]);
    for name in foreign {
        server.cli(&["FLUSHALL"]).unwrap();
        mature(&server);
        let tenure = join(&store, "a").await;
        claim(&store, &tenure, "held").await.unwrap();
        acquire(&store, &tenure, "held").await.unwrap();
        server.cli(&["DEL", &name]).unwrap();
        server.cli(&["SET", &name, "foreign"]).unwrap();
        for error in every_verb(&store, &tenure).await {
            let fine = matches!(error.kind(), ErrorKind::Internal | ErrorKind::Ended(_));
            assert!(fine, "{name}: {error:?}");
        }
        assert_eq!(server.cli(&["GET", &name]).unwrap().text(), "foreign", "{name}");
    }
    // A join whose last write meets a foreign type has made none of its other writes.
    server.cli(&["FLUSHALL"]).unwrap();
    join(&store, "a").await;
    server.cli(&["DEL", "{tenure:ingest}:events"]).unwrap();
    server.cli(&["SET", "{tenure:ingest}:events", "foreign"]).unwrap();
    let before = dump(&server);
    assert_eq!(try_join(&store, "a").await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(dump(&server), before);
}

/// A placeholder for the id of the joined tenure.
const TENURE: &str = "the tenure";

async fn foreign_values_are_errors(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    for (name, field, value) in [
        ("members", "a", "junk"),
        ("members", "a", "eight bytes of nonsense, or more"),
        ("alive", TENURE, "junk"),
        ("alive", TENURE, "twenty-four of nonsense."),
        ("alive", "no tenure", "junk"),
        ("members", "not a name", "junk"),
        ("labels", "a", "{not json"),
        ("claims:devices", "k", "no tenure"),
        ("claims:devices", "a key/with", "a@5"),
        ("leases", "l", "no tenure"),
        ("leases", "l", "a@5 0"),
        ("leases", "a lease", "a@5 6"),
        ("reserved", "l", "soon b"),
        ("targets", "t", "heavy"),
        ("ended", "b@5", ""),
        ("meta", "state", "soon"),
        ("meta", "state", &"eighty bytes of nonsense".repeat(4)),
        ("meta", "seq", "many"),
        ("meta", "events", "-1"),
    ] {
        server.cli(&["FLUSHALL"]).unwrap();
        mature(&server);
        let tenure = join(&store, "a").await;
        let own = tenure.to_string();
        let field = if field == TENURE { &own } else { field };
        server
            .cli(&["HSET", &format!("{{tenure:ingest}}:{name}"), field, value])
            .unwrap();
        for error in every_verb(&store, &tenure).await {
            let kinds = matches!(
                error.kind(),
                ErrorKind::Internal | ErrorKind::Unavailable | ErrorKind::Ended(_)
            );
            assert!(kinds, "{name} {field} {value}: {error:?}");
        }
        until_up(&store).await;
    }
}

/// A server that evicts keys removes one half of a member's data and keeps the other.
async fn group_recovers_after_losing_liveness_data(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    let (a, b) = (join(&store, "a").await, join(&store, "b").await);
    server.cli(&["DEL", "{tenure:ingest}:alive"]).unwrap();
    assert_eq!(beat(&store, &a).await, BeatReply::Unknown);
    let again = join(&store, "a").await;
    assert!(again.term() > a.term());
    assert!(matches!(beat(&store, &again).await, BeatReply::Renewed { .. }));
    // No tenure lapsed, and the rest of the other member is removed when it comes due.
    server.cli(&["ZADD", "{tenure:ingest}:due", "1", "b"]).unwrap();
    let swept = store.end_lapsed(&group(), 10, Call::default()).await.unwrap();
    assert!(swept.ended.is_empty(), "{swept:?}");
    assert_eq!(store.status(&group()).await.unwrap().members, 1);
    assert_eq!(beat(&store, &b).await, BeatReply::Unknown);
}

async fn terms_near_2_pow_53_are_exact(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    join(&store, "first").await;
    server
        .cli(&["HSET", "{tenure:ingest}:meta", "seq", "9007199254740988"])
        .unwrap();
    let one = join(&store, "a").await;
    // Reads numbers as well.
    claim(&store, &one, "k").await.unwrap();
    let last = join(&store, "b").await;
    assert_eq!(
        (one.term().get(), last.term().get()),
        (9_007_199_254_740_989, 9_007_199_254_740_991)
    );
    let claim = store.claim_of(&group(), &devices(), &key("k")).await.unwrap().unwrap();
    assert_eq!((claim.tenure, claim.alive), (one.clone(), true));
    for tenure in [&one, &last] {
        assert!(
            matches!(beat(&store, tenure).await, BeatReply::Renewed { .. }),
            "{tenure}"
        );
    }
    let before = dump(&server);
    assert_eq!(
        try_join(&store, "c").await.unwrap_err().kind(),
        ErrorKind::Internal,
        "no term is left"
    );
    assert_eq!(dump(&server), before);
    store.end(&group(), &last, EndBy::Leave, Call::default()).await.unwrap();
    assert_eq!(
        beat(&store, &last).await,
        BeatReply::Ended(tenure_core::membership::EndReason::Left)
    );
}

async fn large_group_is_listed_in_pages(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    let tenure = join(&store, "holder").await;
    let keys: Vec<_> = (0..1500).map(|n| key(&format!("device-{n:04}"))).collect();
    let mode = tenure_core::registry::ClaimMode::Take;
    store
        .claim(&group(), &devices(), &tenure, &keys, mode, Call::default())
        .await
        .unwrap();
    for n in 0..700 {
        join(&store, &format!("m{n:03}")).await;
    }
    for limit in [7, 100, 1000] {
        for owner in [None, Some(member("holder"))] {
            let (mut after, mut found) = (None, std::collections::BTreeSet::new());
            loop {
                let page = store
                    .claims(&group(), &devices(), owner.as_ref(), &PageRequest { after, limit })
                    .await
                    .unwrap();
                assert!(page.items.len() <= limit as usize, "{} items", page.items.len());
                found.extend(page.items.into_iter().map(|claim| claim.key));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found.len(), 1500, "limit {limit}, owner {owner:?}");
        }
        let (mut after, mut found) = (None, std::collections::BTreeSet::new());
        loop {
            let page = store.members(&group(), &PageRequest { after, limit }).await.unwrap();
            assert!(page.items.len() <= limit as usize);
            found.extend(page.items.into_iter().map(|member| member.member));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), 701, "limit {limit}");
    }
    let _ = StoreOptions::default();
}

async fn unlisted_group_is_found_by_scan(flavour: Flavour) {
    let server = server(flavour, &[]);
    mature(&server);
    let first = open(&server.url()).await;
    join(&first, "a").await;
    let strangers: Vec<String> = (0..60_000)
        .flat_map(|n| [format!("stranger:{n}"), "x".to_owned()])
        .collect();
    for some in strangers.chunks(2_000) {
        let command: Vec<&str> = std::iter::once("MSET").chain(some.iter().map(String::as_str)).collect();
        server.cli(&command).unwrap();
    }
    server.cli(&["SET", "{tenure:no group!}:meta", "x"]).unwrap();
    server.cli(&["DEL", "tenure:groups"]).unwrap();
    let store = open(&server.url()).await;
    let (mut steps, none) = (0, store.groups().await.unwrap());
    while store.find_groups().await.unwrap() {
        steps += 1;
    }
    assert_eq!(none, []);
    assert!(steps > 1, "all keys in one step");
    assert_eq!(store.groups().await.unwrap(), [group()]);
}

async fn forgotten_group_stays_unlisted(flavour: Flavour) {
    let world = TestClockStore::new(flavour).await;
    let (store, other, group) = (&world.store, open_at(&world.server.url()).await, group());
    let tenure = join(store, "a").await;
    let left = store.end(&group, &tenure, EndBy::Leave, Call::default()).await;
    assert_eq!(left.unwrap(), EndReason::Left);
    store.tick(&group).await.unwrap();
    world.pass_in_silence(StoreOptions::default().forget_after).await;
    other.tick(&group).await.unwrap();
    other.end_lapsed(&group, 10, Call::default()).await.unwrap();
    assert!(store.forget_group(&group, Call::default()).await.unwrap());
    assert_eq!(other.groups().await.unwrap(), [], "a sweep of an empty group lists it");
    // A process that used it recently adds it again.
    world.run(&["SADD", "tenure:groups", group.as_str()]);
    assert_eq!(other.tick(&group).await.unwrap().last_event, EventId(0));
    assert!(other.forget_group(&group, Call::default()).await.unwrap());
    assert_eq!(store.groups().await.unwrap(), []);
}
