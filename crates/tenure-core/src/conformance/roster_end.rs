//! Cases about providers that stay or go: heartbeats, ends, the brake, outages, and changed ttls.

use super::roster::{STALE, outcome, provider, row};
use super::world::{Make, World, ms, s};
use crate::brake::BrakeSettings;
use crate::id::{TenureId, Term};
use crate::ledger::{RosterSettings, Version};
use crate::membership::{EndBy, EndReason};
use crate::roster::{Heartbeat, HeartbeatReply, NEVER_STALE, Offlined, Overwrite, Pending, Standing};
use crate::store::{Call, StoreOptions};
use crate::sweep::{BURST, ReconcileRequest};
use crate::time::StoreTime;

/// The ledger's row arrives after the end of the tenure that it names.
pub async fn a_row_that_names_an_ended_tenure_is_pending(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.seat("ann").await;
    world.pass(STALE + ms(1)).await;
    world.end_lapsed().await;
    assert_eq!(world.pending().await, Pending::default());
    let put = world.put(row("ann", 3, Some(&tenure))).await;
    assert_eq!(put, outcome(true, 3, Standing::Ended));
    world.pass(BURST).await;
    let pending = world.pending().await;
    assert_eq!(pending.items.len(), 1);
    let item = &pending.items[0];
    assert_eq!(
        (&item.tenure, item.reason, item.heard_at),
        (&tenure, EndReason::Lapsed, None)
    );
    assert!(world.available(10).await.is_empty());
    assert_eq!(world.standing("ann").await, Some(Standing::Ended));
}

/// A row may name a placeholder, or a tenure that the store lost.
pub async fn an_unknown_tenure_is_reported(make: Make<'_>) {
    let world = World::new(make).await;
    let placeholder = TenureId::new(provider("ann").member(), Term::new(1_234).expect("a term"));
    let put = world.put(row("ann", 3, Some(&placeholder))).await;
    assert_eq!(put, outcome(true, 3, Standing::Unknown));
    assert_eq!(world.hear("ann").await, HeartbeatReply::Unknown);
    assert_eq!(world.standing("ann").await, Some(Standing::Unknown));
    assert!(world.available(10).await.is_empty());
    world.pass(s(1)).await;
    assert_eq!(world.pending().await, Pending::default());
    let tenure = world.seat("ann").await;
    assert_eq!(world.hear("ann").await, HeartbeatReply::Unknown);
    assert_eq!(
        world.put(row("ann", 4, Some(&tenure))).await,
        outcome(true, 4, Standing::Alive)
    );
    assert_eq!(world.hear("ann").await, HeartbeatReply::Recorded);
}

/// Ended tenures stay on a durable work list until the ledger has applied them.
pub async fn the_end_of_a_named_tenure_is_pending_until_it_is_done(make: Make<'_>) {
    let world = World::new(make).await;
    let began = world.time().await;
    let (ann, bob, eve) = (
        world.online("ann", 1).await,
        world.online("bob", 2).await,
        world.online("eve", 3).await,
    );
    world.pass(s(2)).await;
    assert_eq!(world.hear("eve").await, HeartbeatReply::Recorded);
    let heard_at = world.seen("eve").await.and_then(|seen| seen.row.last_heartbeat_at);
    world.leave(&bob).await;
    let left_at = world.time().await;
    assert_eq!(world.pending().await.items, Vec::new());
    let status = world.tick().await;
    assert_eq!(
        (status.pending_offline, status.next_offline),
        (1, Some(left_at + BURST))
    );
    world.pass(BURST).await;
    let first = world.pending().await;
    let item = |tenure: &TenureId, at, reason, heard_at| Offlined {
        tenure: tenure.clone(),
        at,
        reason,
        heard_at,
    };
    assert_eq!(first.items, [item(&bob, left_at, EndReason::Left, Some(began))]);
    world.pass(STALE - s(2) - BURST + ms(50)).await;
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&ann));
    world.pass(BURST).await;
    let mut expected = first.items.clone();
    expected.push(item(&ann, began + STALE, EndReason::Lapsed, Some(began)));
    assert_eq!(
        (world.pending().await.items, world.pending().await.items),
        (expected.clone(), expected)
    );
    let one = world
        .mirror()
        .pending_offline(&world.group, 1, false, Call::default())
        .await;
    let one = one.expect("an answer");
    assert_eq!(
        (one.items.len(), one.next.is_some_and(|at| at <= began + s(60))),
        (1, true)
    );
    assert_eq!(world.available(10).await, ["eve"]);
    let done = [bob.clone(), ann.clone(), eve.clone(), bob.clone()];
    let done = world.mirror().offline_done(&world.group, &done, Call::default()).await;
    assert_eq!(done.expect("an answer"), 2);
    assert_eq!(world.pending().await, Pending::default());
    assert_eq!(world.tick().await.pending_offline, 0);
    // An expelled one as well.
    let expelled = world.store.end(&world.group, &eve, EndBy::Expel, Call::default()).await;
    assert_eq!(expelled.expect("an end"), EndReason::Expelled);
    world.pass(BURST).await;
    let last = world.pending().await.items;
    assert_eq!((last[0].reason, last[0].heard_at), (EndReason::Expelled, heard_at));
}

/// A reconcile finds nothing to repair after an end, whatever its reason.
pub async fn ends_of_every_reason_are_whole(make: Make<'_>) {
    let world = World::new(make).await;
    let ways = [
        EndBy::Leave,
        EndBy::Expel,
        EndBy::NoProgress { stopped: true },
        EndBy::NoProgress { stopped: false },
    ];
    for (n, by) in ways.into_iter().enumerate() {
        let tenure = world.online(&format!("p{n}"), 1).await;
        let ended = world.store.end(&world.group, &tenure, by, Call::default()).await;
        ended.expect("an end");
        let whole = ReconcileRequest {
            after: None,
            limit: 100,
        };
        let verified = world
            .mirror()
            .verify_roster(&world.group, &whole, Call::default())
            .await;
        let repaired = verified.expect("a part").repaired;
        assert!(repaired.is_empty(), "{by:?}: {repaired:?}");
    }
}

/// The row already names another tenure, or never arrived.
pub async fn an_end_that_no_row_names_is_not_pending(make: Make<'_>) {
    let world = World::new(make).await;
    let ann = world.seat("ann").await;
    let bob = world.online("bob", 1).await;
    world.put(row("bob", 2, None)).await;
    world.leave(&ann).await;
    world.leave(&bob).await;
    world.pass(s(1)).await;
    assert_eq!(world.pending().await, Pending::default());
}

/// The provider came back, or the ledger applied the end in another way.
pub async fn a_newer_row_clears_the_pending_end(make: Make<'_>) {
    let world = World::new(make).await;
    let first = world.online("ann", 1).await;
    world.leave(&first).await;
    assert_eq!(world.tick().await.pending_offline, 1);
    let second = world.online("ann", 2).await;
    assert_eq!(world.tick().await.pending_offline, 0);
    assert_ne!(first, second);
    world.pass(s(1)).await;
    assert_eq!(
        (world.pending().await, world.available(10).await),
        (Pending::default(), vec!["ann".to_owned()])
    );
}

/// A heartbeat by name extends the tenure.
pub async fn heartbeats_extend_by_name(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.online("ann", 1).await;
    for _ in 0..4 {
        world.pass(STALE / 2).await;
        assert_eq!(world.hear("ann").await, HeartbeatReply::Recorded);
    }
    let member = world
        .store
        .member(&world.group, tenure.member())
        .await
        .expect("a look-up");
    let member = member.expect("a member");
    assert_eq!((member.tenure, member.expires_in, member.ttl), (tenure, STALE, STALE));
    // A beat and a heartbeat are equivalent.
    let heard_at = world.seen("ann").await.expect("a row").row.last_heartbeat_at;
    assert_eq!(heard_at, Some(member.last_beat_at));
    let mut revoked = row("ann", 2, Some(&member_tenure(&world).await));
    revoked.revoked_before = Some(StoreTime::from_micros(5_000_000));
    world.put(revoked).await;
    let issued = |at| Heartbeat {
        issued_at: Some(StoreTime::from_micros(at)),
        ..Heartbeat::of(provider("ann"))
    };
    let asked = [
        issued(4_999_999),
        issued(5_000_000),
        Heartbeat::of(provider("ann")),
        Heartbeat::of(provider("bob")),
    ];
    let heard = world.mirror().heartbeat(&world.group, &asked).await.expect("answers");
    let (recorded, revoked) = (HeartbeatReply::Recorded, HeartbeatReply::Revoked);
    assert_eq!(heard.replies, [revoked, recorded, recorded, HeartbeatReply::Absent]);
}

async fn member_tenure(world: &World) -> TenureId {
    world
        .seen("ann")
        .await
        .and_then(|seen| seen.row.online)
        .expect("ann is online")
}

/// A heartbeat neither revives the dead nor activates the offline or the deactivated.
pub async fn a_heartbeat_revives_no_provider(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.online("ann", 1).await;
    world.put(row("bob", 2, None)).await;
    assert_eq!(world.hear("bob").await, HeartbeatReply::Offline);
    world.outage(ms(1)).await;
    world.pass(STALE).await;
    assert_eq!(world.hear("ann").await, HeartbeatReply::Offline);
    world.ended(&tenure, EndReason::Lapsed).await;
    let again = world.online("ann", 3).await;
    let mut off = row("ann", 4, None);
    off.active = false;
    world.put(off.clone()).await;
    for _ in 0..3 {
        assert_eq!(world.hear("ann").await, HeartbeatReply::Deactivated);
    }
    off.online = Some(again);
    off.version = Version(5);
    world.put(off).await;
    assert_eq!(
        (world.hear("ann").await, world.available(9).await.len()),
        (HeartbeatReply::Deactivated, 0)
    );
}

/// Seeding the mirror renews no heartbeat.
pub async fn seating_keeps_a_living_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.seat("ann").await;
    world.pass(s(2)).await;
    let names = [provider("ann"), provider("bob"), provider("bob")];
    let seat = |beat| {
        world
            .mirror()
            .ensure_tenures(&world.group, &names, STALE, beat, Call::default())
    };
    let seated = seat(false).await.expect("seats");
    assert_eq!((&seated[0].tenure, seated[0].new), (&tenure, false));
    assert_eq!((seated[1].new, seated[2].new), (true, false));
    assert_eq!(seated[1].tenure, seated[2].tenure);
    let left = |member: Option<crate::membership::Member>| member.map(|member| member.expires_in);
    let ann = world.store.member(&world.group, tenure.member()).await;
    assert_eq!(left(ann.expect("a look-up")), Some(STALE - s(2)));
    seat(true).await.expect("seats");
    let ann = world.store.member(&world.group, tenure.member()).await;
    assert_eq!(left(ann.expect("a look-up")), Some(STALE));
    world.pass(STALE).await;
    let anew = seat(false).await.expect("seats");
    assert!(anew[0].new && anew[0].tenure > tenure, "{anew:?}");
    world.ended(&tenure, EndReason::Lapsed).await;
}

/// Invariant 10: the tenures end, but the ledger waits.
pub async fn a_mass_death_is_braked(make: Make<'_>) {
    let world = World::new(make).await;
    for n in 0..20 {
        world.online(&format!("p{n:02}"), n + 1).await;
    }
    let leaver = world.online("leaver", 30).await;
    world.pass(s(3)).await;
    for n in 0..8 {
        world.hear(&format!("p{n:02}")).await;
    }
    world.hear("leaver").await;
    world.pass(s(3) + ms(1)).await;
    world.leave(&leaver).await;
    world.end_lapsed().await;
    world.pass(BURST).await;
    let held = world.pending().await;
    let brake = held.braked.expect("a brake");
    assert!(
        held.items.iter().all(|item| item.tenure.member() == leaver.member()),
        "{held:?}"
    );
    assert_eq!(held.next, Some(brake.until));
    assert_eq!(world.available(50).await.len(), 8);
    let forced = world
        .mirror()
        .pending_offline(&world.group, 100, true, Call::default())
        .await;
    let forced = forced.expect("an answer");
    assert!(forced.braked.is_none() && forced.items.len() >= 12, "{forced:?}");
}

/// Invariant 10: the brake ends without an operator.
pub async fn the_ledger_follows_when_the_brake_ends(make: Make<'_>) {
    let brake = BrakeSettings {
        hold: s(10),
        ..BrakeSettings::default()
    };
    let options = StoreOptions {
        brake,
        ..StoreOptions::default()
    };
    let world = World::with(make, options).await;
    for n in 0..20 {
        world.online(&format!("p{n:02}"), n + 1).await;
    }
    world.pass(s(3)).await;
    let hear = async || {
        for n in 0..8 {
            world.hear(&format!("p{n:02}")).await;
        }
    };
    hear().await;
    world.pass(s(3) + ms(1)).await;
    world.end_lapsed().await;
    world.pass(BURST).await;
    let held = world.pending().await;
    assert!(held.items.is_empty() && held.braked.is_some(), "{held:?}");
    for _ in 0..5 {
        hear().await;
        world.pass(s(2)).await;
    }
    let freed = world.pending().await;
    assert_eq!((freed.items.len(), freed.braked), (12, None));
}

/// An outage of the store takes no provider offline.
pub async fn an_outage_takes_no_provider_offline(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("ann", 1).await;
    world.outage(STALE * 5).await;
    assert_eq!(world.available(10).await, ["ann"]);
    assert!(world.end_lapsed().await.is_empty());
    world.pass(STALE - ms(1)).await;
    assert_eq!(
        (world.available(10).await.len(), world.hear("ann").await),
        (1, HeartbeatReply::Recorded)
    );
    assert_eq!(world.pending().await, Pending::default());
}

/// Settings change at run time.
pub async fn settings_move_the_deadlines(make: Make<'_>) {
    let world = World::new(make).await;
    let settings = |version, seconds| RosterSettings {
        stale_after: s(seconds),
        version: Version(version),
        ..RosterSettings::default()
    };
    let put = |settings: RosterSettings, over: Overwrite| {
        let (mirror, group) = (world.mirror(), &world.group);
        async move {
            mirror
                .put_roster_settings(group, &settings, over, Call::default())
                .await
                .expect("an answer")
        }
    };
    assert_eq!(
        world.mirror().roster_settings(&world.group).await.expect("an answer"),
        None
    );
    let tenure = world.online("ann", 1).await;
    world.pass(s(2)).await;
    assert!(put(settings(9, 44), Overwrite::Older).await);
    assert!(
        !put(settings(4, 30), Overwrite::Older).await && !put(settings(4, 30), Overwrite::Exactly(Version(8))).await
    );
    assert!(
        put(settings(4, 30), Overwrite::Exactly(Version(9))).await,
        "the ledger replaces the row"
    );
    assert!(!put(settings(4, 77), Overwrite::Older).await && !put(settings(3, 77), Overwrite::Older).await);
    let kept = world.mirror().roster_settings(&world.group).await.expect("an answer");
    assert_eq!(kept, Some(settings(4, 30)));
    assert_eq!(
        world
            .mirror()
            .mirror_status(&world.group)
            .await
            .expect("a stamp")
            .settings,
        Version(4)
    );
    while world
        .mirror()
        .retime(&world.group, 2, Call::default())
        .await
        .expect("a step")
    {}
    let left = |world: &World| {
        let (store, group, member) = (world.store.clone(), world.group.clone(), tenure.member().clone());
        async move {
            let member = store.member(&group, &member).await.expect("a look-up");
            member.map(|member| (member.ttl, member.expires_in))
        }
    };
    assert_eq!(left(&world).await, Some((s(30), s(28))));
    world.pass(s(8)).await;
    assert_eq!(world.hear("ann").await, HeartbeatReply::Recorded);
    world.pass(s(5)).await;
    // A shorter ttl: the last heartbeat is five seconds old.
    assert!(put(settings(5, 8), Overwrite::Older).await);
    while world
        .mirror()
        .retime(&world.group, 2, Call::default())
        .await
        .expect("a step")
    {}
    assert_eq!(left(&world).await, Some((s(8), s(3))));
    world.pass(s(3)).await;
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&tenure));
    // A new provider gets the ttl of the settings, whatever the caller sends.
    let next = world.seat("bob").await;
    let bob = world
        .store
        .member(&world.group, next.member())
        .await
        .expect("a look-up");
    assert_eq!(bob.map(|member| member.ttl), Some(s(8)));
}

/// A sweeper visits an empty group so rarely that each visit is a gap, after which no mirror is trusted.
pub async fn a_group_with_a_roster_is_never_empty(make: Make<'_>) {
    let world = World::new(make).await;
    let settings = RosterSettings {
        version: Version(1),
        ..RosterSettings::default()
    };
    let put = world
        .mirror()
        .put_roster_settings(&world.group, &settings, Overwrite::Older, Call::default());
    assert!(put.await.expect("an answer"));
    for _ in 0..2 {
        world.pass(s(1)).await;
        assert_eq!(world.tick().await.empty_since, None);
    }
}

/// Without it every provider would be stale immediately.
pub async fn requiring_heartbeats_gives_providers_a_full_ttl(make: Make<'_>) {
    let world = World::new(make).await;
    let settings = |version, require_heartbeat| RosterSettings {
        stale_after: s(9),
        require_heartbeat,
        version: Version(version),
        ..RosterSettings::default()
    };
    let mirror = world.mirror();
    for (version, required, ttl) in [(1, false, NEVER_STALE), (2, true, s(9))] {
        let settings = settings(version, required);
        let put = mirror.put_roster_settings(&world.group, &settings, Overwrite::Older, Call::default());
        assert!(put.await.expect("an answer"));
        if version == 1 {
            world.online("ann", 1).await;
            world.pass(s(60)).await;
        }
        while mirror.retime(&world.group, 100, Call::default()).await.expect("a step") {}
        let ann = world.store.member(&world.group, &provider("ann").member()).await;
        let ann = ann.expect("a look-up").expect("a member");
        let expected = if required { s(9) } else { NEVER_STALE - s(60) };
        assert_eq!((ann.ttl, ann.expires_in), (ttl, expected));
    }
    assert_eq!(world.available(10).await, ["ann"]);
    // The grace after a gap lasts the ttl of providers that can become stale.
    world.outage(s(100)).await;
    let status = world.tick().await;
    assert!(
        status
            .unsettled
            .is_some_and(|unsettled| unsettled.until <= status.as_of + s(9)),
        "{status:?}"
    );
}
