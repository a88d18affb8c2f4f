//! Cases about the release of a lease by an operator.

use super::world::{Make, World, lease, member, ms, refused, s};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::id::TenureId;
use crate::lease::{AcquireOutcome, FreeWhen, ReleaseOutcome, RevokeOf, Revoked};
use crate::membership::{Beat, BeatReply, EndBy, Revision};
use crate::store::{Call, PageRequest};

impl World {
    /// Releases a lease for an operator.
    async fn revoke(&self, name: &str, of: RevokeOf) -> Revoked {
        let (lease, call) = (lease(name), Call::default());
        let revoked = self.store.revoke_lease(&self.group, &lease, of, call);
        revoked.await.expect("a release")
    }

    /// Beats, naming the newest revision. Returns the revision of the reply.
    async fn beat_told(&self, tenure: &TenureId, revision: Revision) -> Revision {
        match self.beat_naming(tenure, revision).await {
            BeatReply::Renewed { revision, .. } => revision,
            other => panic!("{tenure}: {other:?}"),
        }
    }
}

fn is_held_by(outcome: &AcquireOutcome, tenure: &TenureId) -> bool {
    matches!(outcome, AcquireOutcome::Held { by, .. } if by == tenure)
}

/// The lease stays taken until a beat names the release's revision; then it is free immediately.
pub async fn a_revoked_lease_is_free_when_noticed(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(30)).await);
    let token = world.granted(&a, "poll").await;
    let known = world.beat_told(&a, Revision(token.get())).await;
    world.pass(s(1)).await;
    let revoked = world.revoke("poll", RevokeOf::Any).await;
    assert_eq!(
        (revoked.tenure, revoked.token, revoked.free_in),
        (a.clone(), token, s(29))
    );
    assert_eq!(revoked.free_when, FreeWhen::Noticed);
    for tenure in [&a, &b] {
        assert!(is_held_by(&world.acquire(tenure, "poll").await, &a), "{tenure}");
    }
    let told = world.beat_told(&a, known).await;
    assert!(told > known, "the beat reports the release");
    assert!(is_held_by(&world.acquire(&b, "poll").await, &a));
    let page = PageRequest::default();
    let left = world.store.held_leases(&world.group, &a, &page).await.expect("a page");
    assert_eq!((left.page.items.len(), left.revision), (0, told));
    let seen = world.store.lease_of(&world.group, &lease("poll")).await;
    let seen = seen.expect("a look-up").expect("a taken lease");
    assert!(seen.holders[0].revoked && seen.free == 0, "{seen:?}");
    world.beat_told(&a, told).await;
    assert!(world.granted(&b, "poll").await > token);
    let gone = world.events_of(EventKind::LeaseRevoked).await;
    assert_eq!(
        (gone.len(), gone[0].token, gone[0].reason.as_deref()),
        (1, Some(token), Some("operator"))
    );
    let gone = world.events_of(EventKind::LeaseReleased).await;
    assert_eq!(
        (gone.len(), gone[0].token, gone[0].reason.as_deref()),
        (1, Some(token), Some("revoked"))
    );
}

/// A holder whose last beat named a revision stops at the deadline that it had at the release, whatever it sends later.
pub async fn a_revoked_lease_is_free_at_the_deadline(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(10)).await, world.join("b", s(60)).await);
    let known = Revision(world.granted(&a, "poll").await.get());
    world.beat_told(&a, known).await;
    world.pass(s(4)).await;
    let revoked = world.revoke("poll", RevokeOf::Holder(member("a"))).await;
    assert_eq!((revoked.free_when, revoked.free_in), (FreeWhen::Noticed, s(6)));
    // Beats that do not name the release extend the tenure, not the lease.
    world.pass(s(3)).await;
    world.beat_told(&a, known).await;
    world.pass(s(3) - ms(1)).await;
    assert!(is_held_by(&world.acquire(&b, "poll").await, &a));
    world.pass(ms(1)).await;
    // A sweep frees it without a look at the lease.
    world.end_lapsed().await;
    assert_eq!(world.events_of(EventKind::LeaseReleased).await.len(), 1);
    world.granted(&b, "poll").await;
    world.beat_told(&a, known).await;
}

/// A client whose beats name no revision cannot notice: its lease comes free only with its tenure.
pub async fn a_revoked_lease_ends_with_the_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(10)).await, world.join("b", s(60)).await);
    let token = world.granted(&a, "poll").await;
    // Its last beat counts, not an earlier one.
    world.beat_told(&a, Revision(token.get())).await;
    world.beat(&a).await;
    let revoked = world.revoke("poll", RevokeOf::Token(token)).await;
    assert_eq!((revoked.free_when, revoked.free_in), (FreeWhen::TenureEnds, s(10)));
    for _ in 0..3 {
        world.pass(s(8)).await;
        world.beat(&a).await;
        assert!(is_held_by(&world.acquire(&b, "poll").await, &a));
    }
    world.leave(&a).await;
    world.granted(&b, "poll").await;
}

/// The holder's own release frees a revoked lease immediately.
pub async fn a_holder_gives_up_a_revoked_lease(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(30)).await);
    let token = world.granted(&a, "poll").await;
    world.revoke("poll", RevokeOf::Any).await;
    assert_eq!(world.release(&a, "poll", token, None).await, ReleaseOutcome::Released);
    world.granted(&b, "poll").await;
}

/// An operator names a holder or a token; a free lease, another holder and an ambiguous call change nothing.
pub async fn an_operator_names_the_grant(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(30)).await);
    let call = |of| {
        let (store, group) = (&world.store, &world.group);
        async move { store.revoke_lease(group, &lease("pool"), of, Call::default()).await }
    };
    refused(call(RevokeOf::Any).await, ErrorKind::NotFound);
    world.share(&a, "pool", 2).await;
    let (of_b, _) = world.share(&b, "pool", 2).await;
    refused(call(RevokeOf::Any).await, ErrorKind::Invalid);
    refused(call(RevokeOf::Holder(member("c"))).await, ErrorKind::NotOwner);
    refused(
        call(RevokeOf::Token(crate::lease::Token::new(1).expect("a token"))).await,
        ErrorKind::NotOwner,
    );
    let first = world.revoke("pool", RevokeOf::Token(of_b)).await;
    let again = world.revoke("pool", RevokeOf::Holder(member("b"))).await;
    assert_eq!((first.tenure.clone(), first), (b.clone(), again));
    assert_eq!(world.events_of(EventKind::LeaseRevoked).await.len(), 1);
    assert_eq!(
        world.share(&a, "pool", 2).await.1,
        0,
        "the other holder keeps its place"
    );
    // A lapsed holder's lease is free.
    world.leave(&b).await;
    refused(call(RevokeOf::Holder(member("b"))).await, ErrorKind::NotOwner);
}

/// The lease of an expelled holder is free at its last deadline, whatever an operator does.
pub async fn an_ended_holders_lease_is_not_revoked(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(10)).await, world.join("b", s(30)).await);
    let token = world.granted(&a, "poll").await;
    world.beat_told(&a, Revision(token.get())).await;
    let expelled = world.store.end(&world.group, &a, EndBy::Expel, Call::default());
    expelled.await.expect("an end");
    let revoked = world.revoke("poll", RevokeOf::Any).await;
    assert_eq!((revoked.free_when, revoked.free_in), (FreeWhen::TenureEnds, s(10)));
    assert!(world.events_of(EventKind::LeaseRevoked).await.is_empty());
    world.pass(s(10) - ms(1)).await;
    assert!(is_held_by(&world.acquire(&b, "poll").await, &a));
    world.pass(ms(1)).await;
    world.granted(&b, "poll").await;
}

/// A beat that names another number than the revision of the tenure has not noticed: the number may be of a history that
/// the store has lost.
pub async fn only_the_tenures_revision_is_noticed(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(30)).await;
    world.granted(&a, "poll").await;
    world.granted(&a, "kept").await;
    world.revoke("poll", RevokeOf::Any).await;
    let released = world.beat_told(&a, Revision::NONE).await;
    world.pass(ms(1)).await;
    let token = world.granted(&a, "later").await;
    for other in [released.0, token.get() + 7] {
        world.beat_told(&a, Revision(other)).await;
        assert!(world.events_of(EventKind::LeaseReleased).await.is_empty(), "{other}");
    }
    world.beat_told(&a, Revision(token.get())).await;
    assert_eq!(world.events_of(EventKind::LeaseReleased).await.len(), 1);
}

/// A beat for others names the highest revision and no list: an operator's release is not noticed by it.
pub async fn a_beat_for_others_notices_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(60)).await);
    let token = world.granted(&a, "poll").await;
    let beat = async |seen| {
        let beat = Beat {
            seen,
            ..Beat::of(a.clone())
        };
        world.store.beat(&world.group, &[beat]).await.expect("a beat").replies[0]
    };
    let newest = |reply| match reply {
        BeatReply::Renewed { revision, .. } => revision,
        other => panic!("{other:?}"),
    };
    assert_eq!(newest(beat(Revision(token.get())).await), Revision(token.get()));
    assert_eq!(
        world.revoke("poll", RevokeOf::Any).await.free_when,
        FreeWhen::TenureEnds
    );
    let told = newest(beat(Revision(token.get())).await);
    assert!(told.0 > token.get(), "the beat reports the release");
    assert_eq!(newest(beat(told).await), told);
    assert!(is_held_by(&world.acquire(&b, "poll").await, &a));
}
