//! Cases about sessions: attach, detach, resume, data, aliases, listings.

use std::time::Duration;

use serde_json::{Value, json};

use super::world::{Make, World, ms, refused, s};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::id::{Alias, ConnectionId, SessionId, TenureId};
use crate::membership::EndReason;
use crate::session::{
    Attach, AttachOutcome, Data, DeleteOutcome, Detach, DetachOutcome, Epoch, How, Limit, MAX_CONNECTIONS, MAX_FIELDS,
    MAX_GRACE, MAX_VALUE, PatchOutcome, Session, SessionState, SessionStats,
};
use crate::store::{Call, PageRequest};

/// A session id.
#[must_use]
pub(super) fn session(name: &str) -> SessionId {
    SessionId::new(name).expect("a case names its sessions well")
}

/// A connection id.
#[must_use]
pub(super) fn connection(name: &str) -> ConnectionId {
    ConnectionId::new(name).expect("a case names its connections well")
}

fn alias(name: &str) -> Alias {
    Alias::new(name).expect("a case names its aliases well")
}

/// Session data.
pub(super) fn data<const N: usize>(fields: [(&str, Value); N]) -> Data {
    fields.map(|(name, value)| (name.to_owned(), value)).into()
}

/// A plain attach request.
pub(super) fn plain(of: &str, name: &str) -> Attach {
    Attach::new(session(of), connection(name))
}

impl World {
    /// Attaches.
    pub(super) async fn attach(&self, tenure: &TenureId, attach: &Attach) -> AttachOutcome {
        let asked = std::slice::from_ref(attach);
        let attached = self.store.attach(&self.group, tenure, asked, Call::default()).await;
        attached.expect("an answer").outcomes.remove(0)
    }

    /// Attaches, and fails the case if the attach is refused.
    pub(super) async fn attached(&self, tenure: &TenureId, of: &str, name: &str) -> (How, Session) {
        match self.attach(tenure, &plain(of, name)).await {
            AttachOutcome::Attached { how, session } => (how, *session),
            other => panic!("{of}/{name} for {tenure}: {other:?}"),
        }
    }

    /// Detaches.
    pub(super) async fn detach(&self, tenure: &TenureId, of: &str, name: &str, epoch: Option<Epoch>) -> DetachOutcome {
        let asked = [Detach {
            session: session(of),
            connection: connection(name),
            epoch,
        }];
        let detached = self.store.detach(&self.group, tenure, &asked, Call::default()).await;
        detached.expect("an answer").remove(0)
    }

    /// Reads a session.
    pub(super) async fn session(&self, name: &str) -> Option<Session> {
        let seen = self.store.session(&self.group, &session(name)).await;
        seen.expect("a look-up")
    }

    /// Reads the state of a session.
    pub(super) async fn state(&self, name: &str) -> Option<SessionState> {
        self.session(name).await.map(|session| session.state)
    }

    /// Counts sessions.
    pub(super) async fn stats(&self) -> (u64, u64, u64) {
        let stats = self.store.session_stats(&self.group).await.expect("stats");
        let SessionStats {
            active,
            disconnected,
            orphans,
        } = stats;
        (active, disconnected, orphans)
    }

    /// Sorted ids of all sessions in a state, or of all, read in pages of `limit`.
    pub(super) async fn all_sessions(&self, state: Option<SessionState>, limit: u32) -> Vec<String> {
        self.listed_sessions(state, Duration::ZERO, limit).await
    }

    /// The same, of those without connections for at least this long.
    async fn sessions_older_than(&self, state: Option<SessionState>, age: Duration) -> Vec<String> {
        self.listed_sessions(state, age, 5).await
    }

    async fn listed_sessions(&self, state: Option<SessionState>, age: Duration, limit: u32) -> Vec<String> {
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let page = PageRequest { after, limit };
            let page = self.store.sessions_older_than(&self.group, state, age, &page);
            let page = page.await.expect("a page");
            assert!(page.items.len() <= limit as usize, "{} in {limit}", page.items.len());
            all.extend(page.items.into_iter().map(|seen| seen.session.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        all.sort();
        all
    }

    /// The kinds of the events about a session, in order.
    pub(super) async fn told_of(&self, name: &str) -> Vec<EventKind> {
        let events = self.events().await.into_iter();
        let about = events.filter(|event| event.session.as_ref().is_some_and(|seen| seen.as_str() == name));
        about.map(|event| event.kind).collect()
    }
}

/// A session is created, left, resumed and left again.
pub async fn a_session_is_created_left_and_resumed(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(30)).await;
    let (how, made) = world.attached(&front, "chat", "c1").await;
    assert_eq!(
        (how, made.state, made.connections),
        (How::Created, SessionState::Active, 1)
    );
    assert_eq!((made.disconnected_at, made.reap_in), (None, None));
    assert_eq!(world.session("chat").await.as_ref(), Some(&made));
    world.pass(s(2)).await;
    let left_at = world.store.now().await.expect("a time");
    let detached = world.detach(&front, "chat", "c1", Some(made.epoch)).await;
    assert_eq!(detached, DetachOutcome::Detached { reap_in: Some(s(60)) });
    world.outage(s(1)).await;
    let away = world.session("chat").await.expect("a session");
    assert_eq!((away.state, away.connections), (SessionState::Disconnected, 0));
    assert_eq!((away.disconnected_at, away.reap_in), (Some(left_at), Some(s(59))));
    let (how, back) = world.attached(&front, "chat", "c2").await;
    assert_eq!(
        (how, back.state, back.reap_in),
        (How::Resumed, SessionState::Active, None)
    );
    assert!(back.epoch > made.epoch && back.created_at == made.created_at);
    assert!(matches!(
        world.detach(&front, "chat", "c2", None).await,
        DetachOutcome::Detached { reap_in: Some(_) }
    ));
    assert_eq!(
        world.told_of("chat").await,
        [
            EventKind::SessionCreated,
            EventKind::SessionDisconnected,
            EventKind::SessionResumed,
            EventKind::SessionDisconnected
        ]
    );
}

/// A session with a second connection survives the loss of the first.
pub async fn a_second_connection_keeps_the_session(make: Make<'_>) {
    let world = World::new(make).await;
    let (one, two) = (world.join("front-1", s(30)).await, world.join("front-2", s(30)).await);
    world.attached(&one, "chat", "c1").await;
    let (how, seen) = world.attached(&two, "chat", "c2").await;
    assert_eq!((how, seen.connections), (How::Attached, 2));
    let detached = world.detach(&one, "chat", "c1", None).await;
    assert_eq!(detached, DetachOutcome::Detached { reap_in: None });
    assert_eq!(world.state("chat").await, Some(SessionState::Active));
    let held = world.store.member(&world.group, one.member()).await.expect("a look-up");
    assert_eq!(held.expect("a member").holdings.connections, 0);
    let held = world.store.member(&world.group, two.member()).await.expect("a look-up");
    assert_eq!(held.expect("a member").holdings.connections, 1);
}

/// A detach of an unattached connection creates nothing and counts nothing down.
pub async fn detaching_an_unattached_connection_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(30)).await;
    assert_eq!(
        world.detach(&front, "chat", "c1", None).await,
        DetachOutcome::NotAttached
    );
    assert_eq!(world.session("chat").await, None);
    world.attached(&front, "chat", "c1").await;
    assert_eq!(
        world.detach(&front, "chat", "c2", None).await,
        DetachOutcome::NotAttached
    );
    let gone = world.detach(&front, "chat", "c1", None).await;
    assert_eq!(gone, DetachOutcome::Detached { reap_in: Some(s(60)) });
    world.pass(s(5)).await;
    assert_eq!(
        world.detach(&front, "chat", "c1", None).await,
        DetachOutcome::NotAttached
    );
    let seen = world.session("chat").await.expect("a session");
    assert_eq!(
        (seen.connections, seen.reap_in),
        (0, Some(s(55))),
        "a second detach starts no second grace"
    );
    assert_eq!(world.stats().await, (0, 1, 0));
}

/// A detach that was overtaken by the next attach of the same connection is ignored.
pub async fn a_late_detach_is_ignored_by_its_epoch(make: Make<'_>) {
    let world = World::new(make).await;
    let (one, two) = (world.join("front-1", s(30)).await, world.join("front-2", s(30)).await);
    let (_, first) = world.attached(&one, "chat", "c1").await;
    let (_, second) = world.attached(&one, "chat", "c1").await;
    assert!(second.epoch > first.epoch && second.connections == 1);
    let late = world.detach(&one, "chat", "c1", Some(first.epoch)).await;
    assert_eq!(late, DetachOutcome::Stale { epoch: second.epoch });
    // As after a failover that lost the later of two attaches: the holder ends what is left of the connection.
    let (_, third) = world.attached(&one, "chat", "c2").await;
    let lost = Epoch::new(third.epoch.get() + 1).expect("an epoch");
    let late = world.detach(&one, "chat", "c2", Some(lost)).await;
    assert_eq!(late, DetachOutcome::Detached { reap_in: None });
    // The connection moved to another instance, and the old one learns of its end late.
    world.attached(&two, "chat", "c1").await;
    let late = world.detach(&one, "chat", "c1", None).await;
    assert_eq!(late, DetachOutcome::NotHolder { by: two.clone() });
    assert_eq!(world.state("chat").await, Some(SessionState::Active));
    assert_eq!(world.told_of("chat").await, [EventKind::SessionCreated]);
}

/// Invariant 2: an ended tenure neither attaches nor detaches.
pub async fn nothing_is_attached_or_detached_under_an_ended_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let old = world.join("front-1", s(3)).await;
    world.attached(&old, "chat", "c1").await;
    world.pass(s(4)).await;
    let asked = [plain("other", "c1")];
    let attached = world.store.attach(&world.group, &old, &asked, Call::default()).await;
    refused(attached, ErrorKind::Ended(EndReason::Lapsed));
    let asked = [Detach {
        session: session("chat"),
        connection: connection("c1"),
        epoch: None,
    }];
    let detached = world.store.detach(&world.group, &old, &asked, Call::default()).await;
    refused(detached, ErrorKind::Ended(EndReason::Lapsed));
    let patch = data([("a", json!(1))]);
    let (chat, call) = (session("chat"), Call::default());
    let patched = world
        .store
        .patch_session(&world.group, &chat, Some(&old), &patch, call)
        .await;
    refused(patched, ErrorKind::Ended(EndReason::Lapsed));
    assert_eq!(world.session("other").await, None);
    assert_eq!(world.session("chat").await.expect("a session").data, Data::new());
}

/// Invariant 3: connections of a dead instance do not count, before any sweep.
pub async fn a_session_of_a_dead_instance_does_not_read_as_active(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(3)).await;
    world.attached(&front, "chat", "c1").await;
    world.pass(ms(2_999)).await;
    assert_eq!(world.state("chat").await, Some(SessionState::Active));
    world.outage(ms(1)).await;
    let seen = world.session("chat").await.expect("a session");
    assert_eq!((seen.state, seen.connections), (SessionState::Disconnected, 0));
    assert_eq!(
        (seen.disconnected_at, seen.reap_in),
        (None, None),
        "its grace has not begun"
    );
    assert!(world.all_sessions(Some(SessionState::Active), 10).await.is_empty());
}

/// An alias resolves to at most one session.
pub async fn an_alias_leads_to_one_session(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(30)).await;
    let with = |of: &str, name: &str| Attach {
        alias: Some(alias(name)),
        ..plain(of, "c1")
    };
    let by_alias = async |name: &str| {
        let found = world.store.session_by_alias(&world.group, &alias(name)).await;
        found.expect("a look-up").map(|seen| seen.session.to_string())
    };
    assert!(matches!(
        world.attach(&front, &with("one", "ann")).await,
        AttachOutcome::Attached { .. }
    ));
    let taken = world.attach(&front, &with("two", "ann")).await;
    assert_eq!(taken, AttachOutcome::AliasTaken { by: session("one") });
    assert_eq!(world.session("two").await, None, "no session was created");
    assert!(matches!(
        world.attach(&front, &with("one", "ann")).await,
        AttachOutcome::Attached { .. }
    ));
    // Another alias replaces the first, which is free from then on.
    assert!(matches!(
        world.attach(&front, &with("one", "bob")).await,
        AttachOutcome::Attached { .. }
    ));
    assert_eq!(
        (by_alias("ann").await, by_alias("bob").await),
        (None, Some("one".to_owned()))
    );
    assert!(matches!(
        world.attach(&front, &with("two", "ann")).await,
        AttachOutcome::Attached { .. }
    ));
    // A plain attach keeps the alias. The end of the session frees it.
    world.attached(&front, "two", "c2").await;
    assert_eq!(by_alias("ann").await, Some("two".to_owned()));
    for name in ["c1", "c2"] {
        world.detach(&front, "two", name, None).await;
    }
    let (two, call) = (session("two"), Call::default());
    let deleted = world.store.delete_session(&world.group, &two, call).await;
    assert!(matches!(deleted, Ok(DeleteOutcome::Deleted { .. })));
    assert_eq!(by_alias("ann").await, None);
}

/// A patch merges by field. Null removes a field.
pub async fn data_is_merged_field_by_field(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(30)).await;
    let first = data([
        (
            "user",
            json!({"name": "Ann \u{1F600}", "roles": ["a", []], "n": 9_007_199_254_740_993_u64}),
        ),
        ("empty", json!({})),
        ("none", Value::Null),
        ("with space/and@more", json!("x")),
    ]);
    let attach = Attach {
        data: first.clone(),
        ..plain("chat", "c1")
    };
    world.attach(&front, &attach).await;
    let made = world.session("chat").await.expect("a session");
    let mut expected = first;
    expected.remove("none");
    assert_eq!((&made.data, made.updated_at), (&expected, made.created_at));
    world.pass(s(1)).await;
    world.attached(&front, "chat", "c1").await;
    let same = world.session("chat").await.expect("a session");
    assert_eq!(
        (&same.data, same.updated_at),
        (&expected, made.created_at),
        "no data, no change"
    );
    let change = data([("user", json!(false)), ("empty", Value::Null), ("new", json!(1.5))]);
    let (chat, call) = (session("chat"), Call::default());
    let patched = world
        .store
        .patch_session(&world.group, &chat, None, &change, call)
        .await;
    expected.remove("empty");
    expected.insert("user".to_owned(), json!(false));
    expected.insert("new".to_owned(), json!(1.5));
    let PatchOutcome::Patched(seen) = patched.expect("an answer") else {
        panic!("the session exists");
    };
    assert_eq!(seen.data, expected);
    assert!(seen.updated_at > made.updated_at && seen.epoch == same.epoch);
    assert_eq!(world.session("chat").await, Some(*seen));
    let (nobody, call) = (session("nobody"), Call::default());
    let patched = world
        .store
        .patch_session(&world.group, &nobody, None, &change, call)
        .await;
    assert_eq!(patched.expect("an answer"), PatchOutcome::NotFound);
    assert_eq!(world.session("nobody").await, None, "a patch creates no session");
}

/// A call over a limit is refused as a whole.
pub async fn a_call_over_a_limit_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(30)).await;
    let many =
        |prefix: &str, count: usize| -> Data { (0..count).map(|n| (format!("{prefix}{n}"), json!(n))).collect() };
    let with = |data: Data| Attach {
        data,
        ..plain("chat", "c1")
    };
    let bad = [
        with(many("f", MAX_FIELDS + 1)),
        with(data([("big", json!("x".repeat(MAX_VALUE)))])),
        with(data([("", json!(1))])),
        with(data([("a\nb", json!(1))])),
        Attach {
            grace: Some(ms(999)),
            ..plain("chat", "c1")
        },
        Attach {
            grace: Some(MAX_GRACE + ms(1)),
            ..plain("chat", "c1")
        },
    ];
    for attach in bad {
        let asked = [plain("other", "c1"), attach];
        let attached = world.store.attach(&world.group, &front, &asked, Call::default()).await;
        refused(attached, ErrorKind::Invalid);
    }
    let late = Call::not_after(world.store.now().await.expect("a time").minus(ms(1)));
    let attached = world
        .store
        .attach(&world.group, &front, &[plain("other", "c1")], late)
        .await;
    refused(attached, ErrorKind::TooLate);
    refused(
        world.store.delete_session(&world.group, &session("other"), late).await,
        ErrorKind::TooLate,
    );
    assert_eq!(world.stats().await, (0, 0, 0));
    // Limits that only the store can check.
    assert!(matches!(
        world.attach(&front, &with(many("a", 60))).await,
        AttachOutcome::Attached { .. }
    ));
    let full = world.attach(&front, &with(many("b", 5))).await;
    assert_eq!(full, AttachOutcome::Full { of: Limit::Fields });
    let (chat, call) = (session("chat"), Call::default());
    let patched = world
        .store
        .patch_session(&world.group, &chat, None, &many("b", 5), call)
        .await;
    assert_eq!(patched.expect("an answer"), PatchOutcome::Full { of: Limit::Fields });
    assert_eq!(world.session("chat").await.expect("a session").data, many("a", 60));
    let more: Vec<_> = (2..=MAX_CONNECTIONS).map(|n| plain("chat", &format!("c{n}"))).collect();
    let attached = world.store.attach(&world.group, &front, &more, Call::default()).await;
    assert!(attached.is_ok_and(|attached| attached.outcomes.len() == MAX_CONNECTIONS - 1));
    let full = world.attach(&front, &plain("chat", "one-more")).await;
    assert_eq!(full, AttachOutcome::Full { of: Limit::Connections });
    let (how, seen) = world.attached(&front, "chat", "c7").await;
    assert_eq!(
        (how, seen.connections),
        (How::Attached, MAX_CONNECTIONS as u64),
        "an attached connection is not counted again"
    );
}

/// A call larger than one atomic part is answered in order.
pub async fn many_sessions_in_one_call(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(30)).await;
    let asked: Vec<_> = (0..450).map(|n| plain(&format!("s{n:03}"), "c")).collect();
    let attached = world.store.attach(&world.group, &front, &asked, Call::default()).await;
    let attached = attached.expect("an answer");
    for (attach, outcome) in asked.iter().zip(&attached.outcomes) {
        let AttachOutcome::Attached { how, session } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((*how, &session.session), (How::Created, &attach.session));
        assert!(session.epoch.get() <= attached.revision.0 && session.epoch.get() > attached.before.0);
    }
    assert_eq!(world.stats().await, (450, 0, 0));
    let asked: Vec<_> = (0..450)
        .map(|n| Detach {
            session: session(&format!("s{n:03}")),
            connection: connection(if n % 2 == 0 { "c" } else { "d" }),
            epoch: None,
        })
        .collect();
    let detached = world.store.detach(&world.group, &front, &asked, Call::default()).await;
    for (n, outcome) in detached.expect("an answer").iter().enumerate() {
        let gone = DetachOutcome::Detached { reap_in: Some(s(60)) };
        assert_eq!(
            *outcome,
            if n % 2 == 0 { gone } else { DetachOutcome::NotAttached },
            "{n}"
        );
    }
    assert_eq!(world.stats().await, (225, 225, 0));
    let none = world.store.attach(&world.group, &front, &[], Call::default()).await;
    assert_eq!(
        none.expect("an answer").revision,
        attached.revision,
        "a detach draws no revision"
    );
}

/// Sessions are listed by state, in pages.
pub async fn sessions_are_listed_by_state_page_by_page(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(100)).await;
    let name = |n: usize| format!("s{n:02}");
    for n in 0..23 {
        let attach = Attach {
            grace: (n % 3 == 2).then_some(s(1)),
            ..plain(&name(n), "c")
        };
        world.attach(&front, &attach).await;
        if n % 3 > 0 {
            world.detach(&front, &name(n), "c", None).await;
        }
    }
    world.pass(s(2)).await;
    let of = |rest: usize| -> Vec<_> { (0..23).filter(|n| n % 3 == rest).map(name).collect() };
    for limit in [1, 5, 100] {
        assert_eq!(
            world.all_sessions(None, limit).await,
            (0..23).map(name).collect::<Vec<_>>()
        );
        assert_eq!(world.all_sessions(Some(SessionState::Active), limit).await, of(0));
        assert_eq!(world.all_sessions(Some(SessionState::Disconnected), limit).await, of(1));
        assert_eq!(world.all_sessions(Some(SessionState::Orphan), limit).await, of(2));
    }
    assert_eq!(world.stats().await, (8, 8, 7));
    for (age, disconnected, orphans) in [(s(1), of(1), of(2)), (s(3_600), vec![], vec![])] {
        assert_eq!(
            world.sessions_older_than(Some(SessionState::Disconnected), age).await,
            disconnected
        );
        assert_eq!(
            world.sessions_older_than(Some(SessionState::Orphan), age).await,
            orphans
        );
        let mut both = [disconnected, orphans].concat();
        both.sort();
        assert_eq!(world.sessions_older_than(None, age).await, both);
    }
    let (group, state) = (&world.group, Some(SessionState::Active));
    refused(
        world
            .store
            .sessions_older_than(group, state, s(1), &PageRequest::default())
            .await,
        ErrorKind::Invalid,
    );
    for state in [None, Some(SessionState::Active), Some(SessionState::Orphan)] {
        let bad = PageRequest {
            after: Some("not a cursor!".to_owned()),
            limit: 3,
        };
        refused(
            world.store.sessions(&world.group, state, &bad).await,
            ErrorKind::Invalid,
        );
    }
}

/// A session with connections is never deleted.
pub async fn only_a_session_without_connections_is_deleted(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(3)).await;
    let (chat, call) = (session("chat"), Call::default());
    let delete = async || {
        world
            .store
            .delete_session(&world.group, &chat, call)
            .await
            .expect("an answer")
    };
    assert_eq!(delete().await, DeleteOutcome::NotFound);
    let (_, made) = world.attached(&front, "chat", "c1").await;
    assert_eq!(delete().await, DeleteOutcome::Active { connections: 1 });
    world.pass(s(4)).await;
    assert_eq!(
        delete().await,
        DeleteOutcome::Active { connections: 1 },
        "the janitor has not run yet"
    );
    world.sweep("p").await;
    world.pass(ms(300)).await;
    world.sweep("p2").await;
    assert_eq!(delete().await, DeleteOutcome::Deleted { epoch: made.epoch });
    assert_eq!((world.session("chat").await, world.stats().await), (None, (0, 0, 0)));
    let next = world.join("front-1", s(3)).await;
    let (how, again) = world.attached(&next, "chat", "c1").await;
    assert!(
        how == How::Created && again.epoch > made.epoch,
        "an epoch is never reused"
    );
    assert_eq!(world.told_of("chat").await.get(2), Some(&EventKind::SessionDeleted));
}

/// An attach draws a revision, like a claim or a lease.
pub async fn an_attach_gives_a_new_revision(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(30)).await;
    let asked = [plain("one", "c"), plain("two", "c")];
    let first = world.store.attach(&world.group, &front, &asked, Call::default()).await;
    let first = first.expect("an answer");
    let AttachOutcome::Attached { session, .. } = &first.outcomes[1] else {
        panic!("{first:?}");
    };
    assert_eq!((first.before.0, first.revision.0), (0, session.epoch.get()));
    let again = world
        .store
        .attach(&world.group, &front, &asked[..1], Call::default())
        .await;
    let again = again.expect("an answer");
    assert!(again.before == first.revision && again.revision > first.revision);
}

/// The grace is the session's own, or the default.
pub async fn the_last_detach_fixes_the_grace(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(100)).await;
    let grace = |of: Duration| Attach {
        grace: Some(of),
        ..plain("chat", "c1")
    };
    for (attach, expected) in [
        (grace(s(5)), s(5)),
        (plain("chat", "c1"), s(5)),
        (grace(s(600)), s(600)),
    ] {
        world.attach(&front, &attach).await;
        let gone = world.detach(&front, "chat", "c1", None).await;
        assert_eq!(
            gone,
            DetachOutcome::Detached {
                reap_in: Some(expected)
            }
        );
        let seen = world.session("chat").await.expect("a session");
        assert_eq!((seen.grace, seen.reap_in), (Some(expected), Some(expected)));
    }
}
