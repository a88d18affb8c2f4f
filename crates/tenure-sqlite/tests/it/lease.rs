//! Leases across restarts: grants remain, tokens keep rising, and no lease is granted that another member may still
//! be working on.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use tenure_core::event::{EventLog, EventQuery};
use tenure_core::lease::{
    Acquire, AcquireOutcome, FreeWhen, Holders, LeaseStore, Place, Queue, RESERVATION, ReleaseOutcome, RequestId,
    RevokeOf, Token, Withdrawn,
};
use tenure_core::membership::{Beat, BeatReply, EndBy, MembershipStore, Revision};
use tenure_core::settling::GapCause;
use tenure_core::store::{Backend, Call, PageRequest, StoreOptions};
use tenure_core::sweep::{SweepRequest, SweepSteps, run_pass};
use tenure_core::target::{TargetSpec, TargetStore};
use tenure_core::{Group, TenureId};
use tenure_sqlite::SqliteStore;
use tenure_testkit::own_test;

use crate::common::{
    START, acquire, beat, claim, granted, group, held, holder, join, joining, lease, manual, member, open, pass,
    release, s, settled, system,
};

#[tokio::test]
async fn leases_reservations_targets_and_revisions_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let (a, b) = (join(&store, "a", s(10)).await, join(&store, "b", s(10)).await);
    let (kept, given) = (granted(&store, &a, "kept").await, granted(&store, &a, "given").await);
    let outcome = release(&store, &a, "given", given, Some("b")).await;
    assert_eq!(outcome, ReleaseOutcome::Reserved);
    let spec = TargetSpec {
        paused: true,
        weight: 7,
    };
    let target = lease("endpoint-1");
    store
        .put_target(&group(), &target, spec, Call::default())
        .await
        .unwrap();
    let before = held(&store, &a).await;
    assert!(before.1 > Revision(given.get()), "giving up is a change of its own");
    store.close().await;

    let store = open(&path, &clock);
    assert_eq!(holder(&store, "kept").await, Some((a.clone(), kept, true)));
    assert_eq!(held(&store, &a).await, before);
    let renewed = BeatReply::Renewed {
        expires_in: s(10),
        revision: before.1,
    };
    assert_eq!(beat(&store, &a).await, renewed);
    assert_eq!(
        acquire(&store, &a, "kept").await,
        AcquireOutcome::Kept {
            token: kept,
            place: Place::FIRST,
            generation: kept,
        }
    );
    let reserved = AcquireOutcome::Reserved {
        to: member("b"),
        free_in: RESERVATION,
    };
    assert_eq!(acquire(&store, &a, "given").await, reserved);
    let seen = store.target(&group(), &target).await.unwrap().unwrap();
    assert_eq!((seen.target, seen.spec), (target, spec));
    let seen = store.member(&group(), &member("a")).await.unwrap().unwrap();
    assert_eq!(seen.holdings.leases, 1);
    assert!(matches!(beat(&store, &b).await, BeatReply::Renewed { revision, .. } if revision.is_none()));
    store.close().await;
}

/// Places, an operator's release and the number of a request are on disk. Which revisions beats named is not: the
/// holder's deadline at the release is.
#[tokio::test]
async fn places_and_releases_by_an_operator_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let (a, b) = (join(&store, "a", s(10)).await, join(&store, "b", s(10)).await);
    let (request, node) = (RequestId::new(5).unwrap(), "node".parse().unwrap());
    let ask = |tenure: &TenureId| Acquire {
        holders: Holders::new(3).unwrap(),
        ..Acquire::new(tenure.clone(), vec![lease("pool")])
    };
    let waits = Acquire {
        queue: Some(Queue {
            within: s(9),
            request,
            node,
        }),
        ..ask(&b)
    };
    let known = store
        .acquire_with(&group(), ask(&a), Call::default())
        .await
        .unwrap()
        .revision;
    let of_b = store
        .acquire_with(&group(), waits, Call::default())
        .await
        .unwrap()
        .outcomes[0]
        .token()
        .unwrap();
    let told = Beat {
        revision: known,
        ..Beat::of(a.clone())
    };
    store.beat(&group(), &[told]).await.unwrap();
    let of = RevokeOf::Holder(member("a"));
    let revoked = store
        .revoke_lease(&group(), &lease("pool"), of.clone(), Call::default())
        .await
        .unwrap();
    assert_eq!((revoked.free_when, revoked.free_in), (FreeWhen::Noticed, s(10)));
    let before = store.lease_of(&group(), &lease("pool")).await.unwrap().unwrap();
    let told = store
        .events(
            &group(),
            &EventQuery {
                limit: 100,
                ..EventQuery::default()
            },
        )
        .await
        .unwrap();
    store.close().await;

    let store = open(&path, &clock);
    assert_eq!(store.lease_of(&group(), &lease("pool")).await.unwrap().unwrap(), before);
    assert_eq!(
        (before.places.get(), before.free, before.holders[1].place.get()),
        (3, 1, 1)
    );
    let again = store
        .events(
            &group(),
            &EventQuery {
                limit: 100,
                ..EventQuery::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(again.events, told.events);
    let revoked = store
        .revoke_lease(&group(), &lease("pool"), of, Call::default())
        .await
        .unwrap();
    assert_eq!((revoked.free_when, revoked.free_in), (FreeWhen::Noticed, s(10)));
    for _ in 0..5 {
        beat(&store, &a).await;
        beat(&store, &b).await;
        pass(&store, &clock, s(2)).await;
    }
    let acquired = store.acquire_with(&group(), ask(&a), Call::default()).await.unwrap();
    assert_eq!(
        acquired.outcomes[0].place(),
        Some(Place::FIRST),
        "the place is free at that deadline"
    );
    let withdrawn = store
        .withdraw(&group(), &b, &lease("pool"), request, Call::default())
        .await;
    assert_eq!(withdrawn.unwrap(), Withdrawn::GivenBack { token: of_b });
    store.close().await;
}

#[tokio::test]
async fn claims_and_leases_of_one_tenure_share_a_durable_revision() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let mut last = Revision::NONE;
    let store = open(&path, &clock);
    let a = join(&store, "a", s(100)).await;
    store.close().await;
    for round in 0..4 {
        let store = open(&path, &clock);
        assert_eq!(held(&store, &a).await.1, last, "round {round}");
        claim(&store, &a, &format!("dev-{round}")).await.unwrap();
        let now = held(&store, &a).await.1;
        assert!(now > last);
        last = now;
        store.close().await;
    }
    let store = open(&path, &clock);
    assert!(matches!(beat(&store, &a).await, BeatReply::Renewed { revision, .. } if revision == last));
    // The next tenure of the same member begins with none.
    let again = join(&store, "a", s(100)).await;
    assert!(matches!(beat(&store, &again).await, BeatReply::Renewed { revision, .. } if revision.is_none()));
    assert_eq!(held(&store, &a).await.1, Revision::NONE);
    store.close().await;
}

/// Every grant is in the file. So free leases are granted immediately, and held leases stay with their holders.
#[tokio::test]
async fn restart_withholds_held_leases_for_one_ttl_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let (a, b) = (join(&store, "a", s(6)).await, join(&store, "b", s(6)).await);
    let old = granted(&store, &a, "poll").await;
    store.close().await;
    // The machine comes back with a wall clock that is an hour slow.
    clock.set_wall_micros(START - 3_600_000_000);
    let store = open(&path, &clock);
    let token = granted(&store, &b, "free").await;
    assert!(token > old && token.get() > b.term().get());
    let by_a = AcquireOutcome::Held {
        by: a.clone(),
        free_in: s(6),
    };
    assert_eq!(acquire(&store, &b, "poll").await, by_a);
    pass(&store, &clock, s(3)).await;
    // Who beats in time keeps what it has.
    for tenure in [&a, &b] {
        assert!(matches!(beat(&store, tenure).await, BeatReply::Renewed { .. }));
    }
    pass(&store, &clock, s(3)).await;
    assert_eq!(
        acquire(&store, &a, "poll").await,
        AcquireOutcome::Kept {
            token: old,
            place: Place::FIRST,
            generation: old,
        }
    );
    // Who does not is taken over at its end, and not before.
    beat(&store, &b).await;
    pass(&store, &clock, s(3) - std::time::Duration::from_millis(1)).await;
    assert!(matches!(acquire(&store, &b, "poll").await, AcquireOutcome::Held { .. }));
    pass(&store, &clock, std::time::Duration::from_millis(1)).await;
    match acquire(&store, &b, "poll").await {
        AcquireOutcome::Granted { token: next, from, .. } => {
            assert!(next > token);
            assert_eq!(from, Some(a));
        }
        other => panic!("{other:?}"),
    }
    store.close().await;
}

#[tokio::test]
async fn the_lease_of_one_that_may_still_run_waits_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let (a, b) = (join(&store, "a", s(6)).await, join(&store, "b", s(60)).await);
    let token = granted(&store, &a, "poll").await;
    pass(&store, &clock, s(1)).await;
    store.end(&group(), &a, EndBy::Expel, Call::default()).await.unwrap();
    store.close().await;
    // It had 5 s left when it was expelled; a beat that it sent before may have told it so just before the store stopped.
    clock.advance(s(30));
    let store = open(&path, &clock);
    let seen = store.lease_of(&group(), &lease("poll")).await.unwrap().unwrap();
    assert_eq!((seen.tenure, seen.token, seen.alive), (a.clone(), token, false));
    assert_eq!(seen.expires_in, s(5));
    let held = AcquireOutcome::Held {
        by: a.clone(),
        free_in: s(5),
    };
    assert_eq!(acquire(&store, &b, "poll").await, held);
    let (group, whole) = (group(), SweepRequest::default());
    let sweep = || run_pass(&*store, &group, &whole, "p", Call::default());
    pass(&store, &clock, s(4)).await;
    beat(&store, &b).await;
    assert_eq!(sweep().await.unwrap().leases_total(), 0);
    pass(&store, &clock, s(1)).await;
    assert_eq!(sweep().await.unwrap().leases_total(), 1);
    assert_eq!(holder(&store, "poll").await, None);
    store.close().await;
}

#[tokio::test]
async fn reservations_that_are_over_leave_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let (a, _b) = (join(&store, "a", s(60)).await, join(&store, "b", s(60)).await);
    for n in 0..30 {
        let name = format!("l{n}");
        let token = granted(&store, &a, &name).await;
        release(&store, &a, &name, token, Some("b")).await;
    }
    let reader = rusqlite::Connection::open(&path).unwrap();
    let rows = || -> i64 {
        reader
            .query_row("SELECT count(*) FROM reserved", [], |row| row.get(0))
            .unwrap()
    };
    pass(&store, &clock, RESERVATION - std::time::Duration::from_millis(1)).await;
    store.end_lapsed(&group(), 20, Call::default()).await.unwrap();
    assert_eq!(rows(), 30);
    pass(&store, &clock, std::time::Duration::from_millis(1)).await;
    for left in [10, 0] {
        store.end_lapsed(&group(), 20, Call::default()).await.unwrap();
        assert_eq!(rows(), left);
    }
    store.close().await;
}

/// An older copy of the file is put in place while everyone still holds what the newer one gave out.
#[tokio::test]
async fn a_restored_copy_grants_nothing_before_its_holders_were_heard() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy, clock) = (dir.path().join("tenure.db"), dir.path().join("copy.db"), manual());
    let store = open(&path, &clock);
    let (a, b) = (join(&store, "a", s(10)).await, join(&store, "b", s(10)).await);
    store.close().await;
    std::fs::copy(&path, &copy).unwrap();
    let store = open(&path, &clock);
    pass(&store, &clock, s(5)).await;
    beat(&store, &a).await;
    beat(&store, &b).await;
    pass(&store, &clock, s(5)).await;
    let lost = granted(&store, &a, "poll").await;
    store.close().await;
    let store = open(&copy, &clock);
    assert_eq!(
        acquire(&store, &b, "poll").await,
        AcquireOutcome::Unsettled {
            retry_in: s(120),
            cause: GapCause::New
        }
    );
    let told = [Beat {
        revision: Revision(lost.get()),
        ..Beat::of(a.clone())
    }];
    let reply = store.beat(&group(), &told).await.unwrap().replies[0];
    // The holder hears of a lower revision than it was told, and reads back that it holds nothing.
    assert!(matches!(reply, BeatReply::Renewed { revision, .. } if revision.is_none()));
    assert!(held(&store, &a).await.0.is_empty());
    for _ in 0..24 {
        assert!(matches!(
            acquire(&store, &b, "poll").await,
            AcquireOutcome::Unsettled { .. }
        ));
        pass(&store, &clock, s(5)).await;
        beat(&store, &b).await;
    }
    assert!(granted(&store, &b, "poll").await > lost);
    store.close().await;
}

/// Not a test of its own: the process that is killed below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test that kills it"]
async fn child_that_acquires_until_it_is_killed() {
    let path = std::env::var_os("TENURE_TEST_FILE").expect("the file to write to");
    let store = SqliteStore::open(path, StoreOptions::default(), system()).unwrap();
    // A member that joins again waits for the leases of its superseded tenure, so each process has its own group.
    let group = Group::new(format!("group-{}", std::process::id())).unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (store, group) = (Arc::clone(&store), group.clone());
            tokio::spawn(async move {
                let join = joining(&format!("m{task}"), s(100));
                let tenure = store.join(&group, &join, Call::default()).await.unwrap().tenure;
                let heir = member(&format!("m{}", (task + 1) % 8));
                for n in 0u64.. {
                    let (kept, given) = (lease(&format!("kept-{task}-{n}")), lease(&format!("given-{task}-{n}")));
                    let asked = [kept.clone(), given.clone()];
                    let acquired = store.acquire(&group, &tenure, &asked, Call::default()).await.unwrap();
                    let tokens: Vec<_> = acquired.outcomes.iter().filter_map(|o| o.token()).collect();
                    let pair = [(given.clone(), tokens[1])];
                    let gave = store.release_leases(&group, &tenure, &pair, Some(&heir), Call::default());
                    let revision = gave.await.unwrap().revision.0;
                    store
                        .put_target(&group, &kept, TargetSpec::default(), Call::default())
                        .await
                        .unwrap();
                    println!("ACK {group} {tenure} {kept} {} {given} {revision}", tokens[0]);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// What the child has said: group, tenure, the lease it kept with its token, the one it handed off, its revision.
struct Said {
    group: Group,
    tenure: TenureId,
    kept: String,
    token: Token,
    given: String,
    revision: Revision,
}

fn said(line: &str) -> Option<Said> {
    let (_, ack) = line.split_once("ACK ")?;
    let words: Vec<_> = ack.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a line as the child writes it");
    Some(Said {
        group: Group::new(words[0]).expect("a line as the child writes it"),
        tenure: words[1].parse().expect("a line as the child writes it"),
        kept: words[2].to_owned(),
        token: Token::new(number(3)).expect("a line as the child writes it"),
        given: words[4].to_owned(),
        revision: Revision(number(5)),
    })
}

#[tokio::test]
async fn a_kill_in_the_middle_of_commits_loses_no_lease() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    settled(&path);
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut child = own_test(module_path!(), "child_that_acquires_until_it_is_killed")
            .env("TENURE_TEST_FILE", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = Vec::new();
        while seen.len() < 200 {
            seen.extend(said(&lines.next().unwrap().unwrap()));
        }
        child.kill().unwrap();
        // What it had still said before it died counts as well.
        seen.extend(lines.map_while(Result::ok).filter_map(|line| said(&line)));
        child.wait().unwrap();
        all.push(seen);
    }
    let store = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap();
    for seen in all {
        check(&store, seen).await;
    }
    let ok: String = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(ok, "ok");
    store.close().await;
}

/// Everything that one killed process was told is there.
async fn check(store: &SqliteStore, seen: Vec<Said>) {
    let group = seen[0].group.clone();
    let highest = seen
        .iter()
        .map(|said| said.revision)
        .max()
        .expect("it has said something");
    for said in &seen {
        let kept = store
            .lease_of(&group, &lease(&said.kept))
            .await
            .expect("a look-up")
            .expect("a lease");
        assert_eq!((&kept.tenure, kept.token), (&said.tenure, said.token), "{}", said.kept);
        assert_eq!(
            store.lease_of(&group, &lease(&said.given)).await.expect("an answer"),
            None
        );
        assert!(
            store
                .target(&group, &lease(&said.kept))
                .await
                .expect("an answer")
                .is_some()
        );
        let one = PageRequest { after: None, limit: 1 };
        let held = store.held_leases(&group, &said.tenure, &one).await.expect("an answer");
        assert!(held.revision >= said.revision, "{}", said.tenure);
    }
    let next = store
        .join(&group, &joining("next", s(100)), Call::default())
        .await
        .expect("a join");
    assert!(next.tenure.term().get() > highest.0);
}
