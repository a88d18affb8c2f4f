//! Cases about leases.

use super::world::{Make, World, lease, leases, member, ms, refused, s};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::id::{LeaseName, TenureId};
use crate::lease::{Acquire, AcquireOutcome, Place, ReleaseOutcome, Token};
use crate::membership::{Beat, BeatReply, EndReason, Revision};
use crate::settling::GapCause;
use crate::store::{Call, PageRequest};

/// A lease has one holder, and a repeated acquire is idempotent.
pub async fn a_lease_has_one_holder(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(30)).await);
    let token = world.granted(&a, "poll").await;
    assert_eq!(
        world.acquire(&a, "poll").await,
        AcquireOutcome::Kept {
            token,
            place: Place::FIRST,
            generation: token,
        }
    );
    assert_eq!(
        world.acquire(&b, "poll").await,
        AcquireOutcome::Held {
            by: a.clone(),
            free_in: s(30)
        }
    );
    assert_eq!(world.holder("poll").await, Some((a.clone(), token, true)));
    assert_eq!(world.holder("other").await, None);
    assert_eq!(world.release(&a, "poll", token, None).await, ReleaseOutcome::Released);
    assert_eq!(world.holder("poll").await, None);
    assert!(world.granted(&b, "poll").await > token);
    for (name, held) in [("a", 0), ("b", 1)] {
        let seen = world.store.member(&world.group, &member(name)).await;
        let seen = seen.expect("a look-up").expect("a member");
        assert_eq!((seen.holdings.leases, seen.holdings.claims), (held, 0), "{name}");
    }
}

/// Invariant 8: tokens rise across releases, holders and terms.
pub async fn tokens_rise_for_ever(make: Make<'_>) {
    let world = World::new(make).await;
    let mut last = 0;
    for round in 0..5 {
        let tenure = world.join(&format!("m{round}"), s(30)).await;
        assert!(tenure.term().get() > last, "terms and tokens come from one sequence");
        last = tenure.term().get();
        for name in ["x", "y"] {
            let token = world.granted(&tenure, name).await;
            assert!(token.get() > last, "{token} after {last}");
            last = token.get();
            world.release(&tenure, name, token, None).await;
        }
    }
}

/// A takeover needs no sweep. It succeeds at the holder's end time, not before.
pub async fn a_lapsed_holders_lease_is_granted_without_a_sweep(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(4)).await, world.join("b", s(30)).await);
    let old = world.granted(&a, "poll").await;
    world.pass(s(4) - ms(1)).await;
    assert_eq!(
        world.acquire(&b, "poll").await,
        AcquireOutcome::Held {
            by: a.clone(),
            free_in: ms(1)
        }
    );
    world.pass(ms(1)).await;
    assert_eq!(world.holder("poll").await, Some((a.clone(), old, false)));
    match world.acquire(&b, "poll").await {
        AcquireOutcome::Granted { token, from, .. } => {
            assert!(token > old);
            assert_eq!(from, Some(a.clone()));
        }
        other => panic!("{other:?}"),
    }
    world.ended(&a, EndReason::Lapsed).await;
    let taken = world.events_of(EventKind::LeaseTakenOver).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(
        (&taken[0].tenure, &taken[0].from, taken[0].reason.as_deref()),
        (&Some(b.clone()), &Some(a), Some("lapsed"))
    );
    // The janitor runs later and finds nothing of the lapsed holder.
    world.pass(s(1)).await;
    assert_eq!(world.sweep("late").await.leases_total(), 0);
    assert_eq!(world.holder("poll").await.map(|(tenure, ..)| tenure), Some(b));
}

/// Invariant 2: an ended tenure neither acquires nor releases.
pub async fn nothing_is_acquired_or_released_under_an_ended_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(4)).await;
    let token = world.granted(&a, "poll").await;
    world.pass(s(4)).await;
    let call = Call::default();
    refused(
        world.store.acquire(&world.group, &a, &[lease("other")], call).await,
        ErrorKind::Ended(EndReason::Lapsed),
    );
    let given = [(lease("poll"), token)];
    refused(
        world.store.release_leases(&world.group, &a, &given, None, call).await,
        ErrorKind::Ended(EndReason::Lapsed),
    );
    assert_eq!(world.holder("poll").await, Some((a.clone(), token, false)));
    let nobody: TenureId = "nobody@7".parse().expect("a tenure id");
    refused(
        world
            .store
            .acquire(&world.group, &nobody, &[lease("other")], call)
            .await,
        ErrorKind::Ended(EndReason::Unknown),
    );
    assert_eq!(world.holder("other").await, None);
}

/// Invariant 5: a release is compare-and-delete on tenure and token.
pub async fn a_release_names_the_exact_tenure_and_token(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(30)).await);
    let first = world.granted(&a, "poll").await;
    world.release(&a, "poll", first, None).await;
    let second = world.granted(&a, "poll").await;
    let not_holder = ReleaseOutcome::NotHolder { by: a.clone() };
    assert_eq!(world.release(&a, "poll", first, None).await, not_holder);
    assert_eq!(world.release(&b, "poll", second, None).await, not_holder);
    assert_eq!(world.holder("poll").await, Some((a.clone(), second, true)));
    assert_eq!(world.release(&a, "poll", second, None).await, ReleaseOutcome::Released);
    // Repeats the release, as after a lost reply.
    assert_eq!(world.release(&a, "poll", second, None).await, ReleaseOutcome::Released);
    assert_eq!(world.events_of(EventKind::LeaseReleased).await.len(), 2);
}

/// A call larger than one atomic part succeeds, each lease gets its own outcome, and a call over the limit is refused.
pub async fn many_leases_in_one_call(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(60)).await, world.join("b", s(60)).await);
    world.granted(&b, "l-00003").await;
    let names = leases("l-", 450);
    let acquired = world.store.acquire(&world.group, &a, &names, Call::default()).await;
    let acquired = acquired.expect("leases");
    assert_eq!(acquired.outcomes.len(), 450);
    let held: Vec<(LeaseName, Token)> = names
        .iter()
        .zip(&acquired.outcomes)
        .filter_map(|(name, outcome)| Some((name.clone(), outcome.token()?)))
        .collect();
    assert_eq!(held.len(), 449);
    let mut tokens: Vec<_> = held.iter().map(|(_, token)| *token).collect();
    assert!(tokens.is_sorted());
    tokens.dedup();
    assert_eq!(tokens.len(), 449, "each grant has its own token");
    let given = world
        .store
        .release_leases(&world.group, &a, &held, Some(&member("b")), Call::default())
        .await
        .expect("given up");
    assert!(given.outcomes.iter().all(|o| *o == ReleaseOutcome::Reserved));
    assert!(given.revision > acquired.revision);
    assert!(world.all_leases(Some("a"), 100).await.is_empty());
    let too_many: Vec<_> = leases("x", crate::lease::MAX_LEASES + 1);
    refused(
        world.store.acquire(&world.group, &a, &too_many, Call::default()).await,
        ErrorKind::Invalid,
    );
}

/// Lists all leases, those of one holder, and those of one tenure.
pub async fn leases_are_listed_page_by_page(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(60)).await, world.join("b", s(60)).await);
    for (n, name) in leases("l-", 25).iter().enumerate() {
        world.granted(if n % 5 == 0 { &b } else { &a }, name.as_str()).await;
    }
    assert_eq!(world.all_leases(None, 7).await.len(), 25);
    assert_eq!(world.all_leases(Some("a"), 3).await.len(), 20);
    assert_eq!(
        world.all_leases(Some("b"), 100).await,
        ["l-00000", "l-00005", "l-00010", "l-00015", "l-00020"]
    );
    assert!(world.all_leases(Some("nobody"), 100).await.is_empty());
    let (mut after, mut held) = (None, Vec::new());
    loop {
        let page = PageRequest { after, limit: 3 };
        let part = world.store.held_leases(&world.group, &a, &page).await.expect("a page");
        assert!(part.revision > Revision::NONE && part.page.items.len() <= 3);
        held.extend(part.page.items);
        after = part.page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(held.len(), 20);
    assert!(
        held.iter()
            .all(|lease| lease.tenure == a && lease.alive && lease.expires_in == s(60))
    );
    let bad = PageRequest {
        after: Some("no such/place/".to_owned()),
        limit: 3,
    };
    refused(world.store.leases(&world.group, None, &bad).await, ErrorKind::Invalid);
    refused(
        world.store.held_leases(&world.group, &a, &bad).await,
        ErrorKind::Invalid,
    );
}

/// Invariant 8: a group that may have lost a grant grants no lease and returns the time to retry.
pub async fn an_unsettled_group_grants_no_new_lease(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(6)).await, world.join("b", s(6)).await);
    let kept = world.granted(&a, "of-a").await;
    world.outage(s(20)).await;
    assert_eq!(
        world.acquire(&a, "free").await,
        AcquireOutcome::Unsettled {
            retry_in: s(6),
            cause: GapCause::Silent
        }
    );
    assert_eq!(
        world.acquire(&a, "of-a").await,
        AcquireOutcome::Kept {
            token: kept,
            place: Place::FIRST,
            generation: kept,
        }
    );
    assert_eq!(
        world.acquire(&b, "of-a").await,
        AcquireOutcome::Held {
            by: a.clone(),
            free_in: s(6)
        }
    );
    // A release is always possible.
    assert_eq!(world.release(&a, "of-a", kept, None).await, ReleaseOutcome::Released);
    world.pass(s(3)).await;
    world.beats(&[a.clone(), b.clone()]).await;
    assert_eq!(
        world.acquire(&b, "of-a").await,
        AcquireOutcome::Unsettled {
            retry_in: s(3),
            cause: GapCause::Silent
        }
    );
    world.pass(s(3)).await;
    assert!(world.granted(&b, "of-a").await > kept);
}

/// The next beat detects a grant or a claim that a failover lost.
pub async fn an_unknown_revision_marks_a_gap(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(30)).await;
    let beat = |revision| {
        [Beat {
            revision,
            ..Beat::of(a.clone())
        }]
    };
    let reply = |revision| BeatReply::Renewed {
        expires_in: s(30),
        revision,
    };
    let send = async |revision| {
        let beaten = world.store.beat(&world.group, &beat(revision)).await;
        beaten.expect("beats").replies[0]
    };
    assert_eq!(send(Revision::NONE).await, reply(Revision::NONE));
    let token = world.granted(&a, "poll").await;
    let known = Revision(token.get());
    assert_eq!(send(known).await, reply(known));
    // The client has not received the reply yet, so nothing is lost.
    assert_eq!(send(Revision::NONE).await, reply(known));
    let keys = [super::world::key("dev-1")];
    let claimed = world.store.claim(
        &world.group,
        &world.devices,
        &a,
        &keys,
        crate::registry::ClaimMode::Take,
        Call::default(),
    );
    let claimed = claimed.await.expect("a claim");
    assert_eq!(claimed.before, known, "an act returns the revision before it");
    let claimed = claimed.revision;
    assert!(claimed > known);
    assert_eq!(send(claimed).await, reply(claimed));
    assert!(world.tick().await.unsettled.is_none());
    world.pass(ms(500)).await;
    let now = world.store.now().await.expect("a time");
    // A revision from the future was never assigned.
    assert_eq!(send(Revision(now.micros() + 5_000_000)).await, reply(claimed));
    assert!(world.tick().await.unsettled.is_none());
    let lost = Revision(now.micros() - 1_000);
    assert_eq!(send(lost).await, reply(claimed));
    let status = world.tick().await;
    // The tail of the data is lost, or everything since an older copy.
    let cause = status.unsettled.map(|unsettled| unsettled.cause);
    assert!(
        matches!(cause, Some(GapCause::TailLoss | GapCause::DataLoss)),
        "{cause:?}"
    );
    assert!(matches!(
        world.acquire(&a, "free").await,
        AcquireOutcome::Unsettled { .. }
    ));
    // The loss is detected once. A client that keeps sending the revision does not keep the group unsettled.
    world.pass(s(1)).await;
    assert_eq!(send(lost).await, reply(claimed));
    assert_eq!(world.tick().await.unsettled, status.unsettled);
}

/// A late acquire changes nothing.
pub async fn an_acquire_past_its_not_after_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(30)).await;
    let late = Call::not_after(world.store.now().await.expect("a time").minus(ms(1)));
    let poll = [lease("poll")];
    refused(
        world.store.acquire(&world.group, &a, &poll, late).await,
        ErrorKind::TooLate,
    );
    assert_eq!(world.holder("poll").await, None);
    let token = world.granted(&a, "poll").await;
    let given = [(lease("poll"), token)];
    refused(
        world.store.release_leases(&world.group, &a, &given, None, late).await,
        ErrorKind::TooLate,
    );
    assert_eq!(world.holder("poll").await, Some((a, token, true)));
}

/// An act that names a revision which the store never issued shows a lost tail: nothing is granted.
pub async fn an_act_with_an_unknown_revision_marks_a_gap(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(30)).await;
    let known = world.granted(&a, "poll").await;
    let ask = async |name, seen| {
        let acquire = Acquire {
            seen: Revision(seen),
            ..Acquire::new(a.clone(), vec![lease(name)])
        };
        let acquired = world.store.acquire_with(&world.group, acquire, Call::default()).await;
        acquired.expect("an answer").outcomes.remove(0)
    };
    let first = ask("first", known.get()).await.token().expect("a grant");
    let outcome = ask("second", first.get() + 5_000).await;
    assert!(matches!(outcome, AcquireOutcome::Unsettled { .. }), "{outcome:?}");
    let cause = world.tick().await.unsettled.map(|unsettled| unsettled.cause);
    assert!(
        matches!(cause, Some(GapCause::TailLoss | GapCause::DataLoss)),
        "{cause:?}"
    );
}
