//! The history and current state of members, tenures, keys, leases and sessions.

use std::sync::Arc;

use tenure_core::clock::ManualClock;
use tenure_core::error::ErrorKind;
use tenure_core::id::{Alias, ConnectionId, Key, LeaseName, MemberId, RegistryName, SessionId, TenureId};
use tenure_core::lease::{LeaseStore, Token};
use tenure_core::membership::{Beat, EndBy, Join, Labels, MembershipStore};
use tenure_core::memory::MemoryStore;
use tenure_core::registry::{ClaimMode, RegistryStore};
use tenure_core::session::{Attach, Detach, SessionStore};
use tenure_core::store::{Call, StoreOptions};
use tenure_core::sweep::{Sweep, SweepRequest};
use tenure_core::target::{TargetSpec, TargetStore};

use super::*;
use crate::testing::{START, secs};

struct World {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    group: Group,
}

fn world(options: StoreOptions) -> World {
    world_on(|clock| MemoryStore::new(options, clock))
}

fn world_on(store: impl FnOnce(Arc<ManualClock>) -> Arc<MemoryStore>) -> World {
    let clock = Arc::new(ManualClock::new(START, 1));
    let store = store(Arc::clone(&clock));
    World {
        store,
        clock,
        group: Group::new("g").unwrap(),
    }
}

impl World {
    async fn join(&self, member: &str) -> TenureId {
        let join = Join {
            member: MemberId::new(member).unwrap(),
            ttl: secs(10),
            labels: Labels::default(),
        };
        self.store
            .join(&self.group, &join, Call::default())
            .await
            .unwrap()
            .tenure
    }

    async fn claim(&self, tenure: &TenureId, key: &str) {
        let (registry, keys) = (RegistryName::new("devices").unwrap(), [Key::new(key).unwrap()]);
        self.store
            .claim(&self.group, &registry, tenure, &keys, ClaimMode::Take, Call::default())
            .await
            .unwrap();
    }

    async fn acquire(&self, tenure: &TenureId, lease: &str) -> Token {
        let leases = [LeaseName::new(lease).unwrap()];
        let acquired = self.store.acquire(&self.group, tenure, &leases, Call::default());
        acquired.await.unwrap().outcomes[0].token().unwrap()
    }

    async fn beat(&self, tenure: &TenureId) {
        self.store.beat(&self.group, &[Beat::of(tenure.clone())]).await.unwrap();
    }

    /// Advances the clock in small steps, so that no gap is detected, and sweeps.
    async fn sweep_for(&self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(secs(1));
            let pass = format!("pass-{}", self.clock.mono_secs());
            self.store
                .sweep(&self.group, &SweepRequest::default(), &pass, Call::default())
                .await
                .unwrap();
        }
    }

    async fn why(&self, id: &str) -> Explanation {
        why(&*self.store, &self.group, &Subject::parse(id).unwrap())
            .await
            .unwrap()
    }
}

trait Seconds {
    fn mono_secs(&self) -> u64;
}

impl Seconds for ManualClock {
    fn mono_secs(&self) -> u64 {
        tenure_core::clock::Clock::mono(self).since_origin().as_secs()
    }
}

fn texts(lines: &[ExplanationLine]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[tokio::test]
async fn history_of_a_member_with_its_evictions() {
    let world = world(StoreOptions::default());
    let first = world.join("a").await;
    world.claim(&first, "d1").await;
    world.claim(&first, "d2").await;
    world.join("bystander").await;
    world.sweep_for(12).await;
    let second = world.join("a").await;
    world.claim(&second, "d3").await;

    let told = world.why("a").await;
    let [joined, lapsed, evicted, again] = told.history.as_slice() else {
        panic!("{told}")
    };
    assert_eq!(joined.text, format!("{first} joined"));
    assert!(lapsed.text.starts_with(&format!("{first} lapsed")));
    assert!(
        evicted
            .text
            .starts_with(&format!("2 entries of {first} were removed (devices 2)")),
        "{}",
        evicted.text
    );
    assert!(evicted.text.contains("(lapsed)") && evicted.text.contains("pass-"));
    assert_eq!(again.text, format!("{second} joined"));
    assert_eq!(lapsed.at.unwrap().since(joined.at.unwrap()).as_secs(), 10);
    assert!(told.now[0].text.starts_with(&format!("alive as {second}")) && told.now[0].text.ends_with("with 1 claim"));
    assert!(!told.truncated);

    let told = world.why(&first.to_string()).await;
    assert_eq!(told.history.len(), 3, "only its own: {told}");
    assert!(told.now[0].text.starts_with("ended; the member has a later tenure"));
}

#[tokio::test]
async fn history_of_a_key_with_its_owner() {
    let world = world(StoreOptions::default());
    let dead = world.join("a").await;
    world.claim(&dead, "d1").await;
    world.sweep_for(12).await;
    let told = world.why("devices/d1").await;
    let removed = format!("removed from {dead}, which had ended (lapsed); pass ");
    assert!(
        texts(&told.history).iter().any(|text| text.starts_with(&removed)),
        "{told}"
    );
    assert_eq!(texts(&told.now), ["not owned"]);

    let owner = world.join("b").await;
    world.claim(&owner, "d1").await;
    let told = world.why("devices/d1").await;
    assert!(
        texts(&told.history).contains(&format!("{owner} joined").as_str()),
        "{told}"
    );
    assert_eq!(texts(&told.now), [format!("owned by {owner}, which is alive")]);
    world.clock.advance(secs(1));
    world
        .store
        .end(&world.group, &owner, EndBy::Expel, Call::default())
        .await
        .unwrap();
    let told = world.why("devices/d1").await;
    assert!(texts(&told.history).contains(&format!("{owner} was expelled by an operator").as_str()));
    assert!(told.now[0].text.starts_with("still listed for"), "{told}");
    assert!(
        told.to_string().starts_with("key devices/d1 in group g\n  2026-01-01T"),
        "{told}"
    );
}

#[tokio::test]
async fn history_of_a_lease_with_its_holders() {
    let world = world(StoreOptions::default());
    let [dead, heir] = [world.join("a").await, world.join("b").await];
    let name = LeaseName::new("t1").unwrap();
    let first = world.acquire(&dead, "t1").await;
    world.acquire(&heir, "other").await;
    world.sweep_for(5).await;
    world.beat(&heir).await;
    // Exactly the end time of the first tenure; no sweep has run.
    world.sweep_for(4).await;
    world.clock.advance(secs(1));
    let second = world.acquire(&heir, "t1").await;
    let to = dead.member().clone();
    let given = [(name.clone(), second)];
    let release = |to| {
        world
            .store
            .release_leases(&world.group, &heir, &given, to, Call::default())
    };
    let again = world.join("a").await;
    release(Some(&to)).await.unwrap();
    let third = world.acquire(&again, "t1").await;
    world
        .store
        .put_target(&world.group, &name, TargetSpec::default(), Call::default())
        .await
        .unwrap();

    let told = world.why("lease:t1").await;
    let lines = [
        format!("{dead} was granted the lease t1 with token {first}"),
        format!("{heir} took the lease t1 over from {dead}, which had ended (lapsed), with token {second}"),
        format!("{again} joined"),
        format!("{heir} handed the lease t1 off to a (token {second})"),
        format!("{again} was granted the lease t1 with token {third}"),
        "the target t1 was added".to_owned(),
    ];
    assert_eq!(texts(&told.history), lines);
    assert_eq!(
        texts(&told.now),
        [format!("held by {again}, which is alive, with token {third}")]
    );
    assert!(told.to_string().starts_with("lease t1 in group g\n"));

    // A member's own history contains its leases, and those that others took over from it.
    let told = world.why("a").await;
    assert!(texts(&told.history).contains(&lines[1].as_str()) && texts(&told.history).contains(&lines[3].as_str()));
    assert!(told.now[0].text.ends_with("with 0 claims and 1 lease"), "{told}");

    world
        .store
        .end(&world.group, &again, EndBy::Expel, Call::default())
        .await
        .unwrap();
    let told = world.why("lease:t1").await;
    assert!(
        told.now[0]
            .text
            .starts_with(&format!("blocked for another 10s: {again}")),
        "{told}"
    );
    world.sweep_for(11).await;
    let told = world.why("lease:t1").await;
    let removed = format!("the lease t1 (token {third}) was removed from {again}, which had ended (expelled); pass ");
    assert!(told.history.last().unwrap().text.starts_with(&removed), "{told}");
    assert_eq!(texts(&told.now), ["not held"]);
}

#[tokio::test]
async fn history_explains_the_wait_of_a_new_store() {
    let world = world_on(|clock| MemoryStore::after_loss(StoreOptions::default(), clock));
    let tenure = world.join("a").await;
    let told = world.why(&tenure.to_string()).await;
    let first = &told.history[0].text;
    assert!(first.contains("new or emptied store"), "{first}");
}

#[tokio::test]
async fn history_includes_outages() {
    let world = world(StoreOptions::default());
    let tenure = world.join("a").await;
    world.clock.advance(secs(60));
    world.sweep_for(1).await;
    let told = world.why(&tenure.to_string()).await;
    let gap = told
        .history
        .iter()
        .find(|line| line.text.contains("did not serve"))
        .unwrap();
    assert!(
        gap.text.contains("silent, 61000 ms") && gap.text.contains("every ttl restarted"),
        "{}",
        gap.text
    );
    assert!(told.now[0].text.starts_with("alive"));
}

#[tokio::test]
async fn history_of_a_session_is_not_in_its_front_ends() {
    let world = world(StoreOptions::default());
    let (front, other) = (world.join("front").await, world.join("other").await);
    let attach = |connection: &str| Attach {
        alias: Some(Alias::new("alice").unwrap()),
        grace: Some(secs(5)),
        ..Attach::new(SessionId::new("s").unwrap(), ConnectionId::new(connection).unwrap())
    };
    let store = &world.store;
    store
        .attach(&world.group, &front, &[attach("c1")], Call::default())
        .await
        .unwrap();
    for _ in 0..6 {
        world.beat(&other).await;
        world.sweep_for(2).await;
    }
    store
        .attach(&world.group, &other, &[attach("c2")], Call::default())
        .await
        .unwrap();
    let told = world.why("session:s").await;
    assert_eq!(told.subject, "session s in group g");
    assert!(
        told.now[0].text.starts_with("active, with 1 connection (epoch "),
        "{told}"
    );
    let detach = Detach {
        session: SessionId::new("s").unwrap(),
        connection: ConnectionId::new("c2").unwrap(),
        epoch: None,
    };
    store
        .detach(&world.group, &other, &[detach], Call::default())
        .await
        .unwrap();
    let told = world.why("session:s").await;
    assert!(
        told.now[0]
            .text
            .starts_with("disconnected, and can be resumed for another 5s"),
        "{told}"
    );
    for _ in 0..3 {
        world.beat(&other).await;
        world.sweep_for(2).await;
    }
    let told = world.why("session:s").await;
    let [made, away, resumed, detached, reaped] = texts(&told.history)[..] else {
        panic!("{told}")
    };
    assert!(
        made.starts_with(&format!("{front} created it with the connection c1")),
        "{made}"
    );
    assert!(
        away.contains("c1") && away.contains("that tenure had ended (lapsed"),
        "{away}"
    );
    assert!(
        resumed.starts_with(&format!("{other} resumed it with the connection c2")),
        "{resumed}"
    );
    assert!(detached.contains("it was detached"), "{detached}");
    assert!(reaped.contains("alias alice") && reaped.contains("; pass "), "{reaped}");
    assert_eq!(texts(&told.now), ["not found"]);
    let told = world.why("front").await;
    let [joined, lapsed, evicted] = texts(&told.history)[..] else {
        panic!("{told}")
    };
    assert!(joined.ends_with("joined") && lapsed.contains("lapsed"), "{told}");
    assert!(
        evicted.starts_with(&format!("1 connection of {front} removed from sessions")),
        "{evicted}"
    );
}

#[tokio::test]
async fn history_reports_trimmed_events() {
    let world = world(StoreOptions {
        events_max: 50,
        ..StoreOptions::default()
    });
    let first = world.join("a").await;
    world.clock.advance(secs(1));
    for n in 0..200 {
        world.join(&format!("m{n}")).await;
    }
    let told = world.why(&first.to_string()).await;
    assert!(told.truncated && told.history.is_empty(), "{told}");
    assert!(told.to_string().contains("older events are gone") && told.to_string().contains("now: alive"));
    let nobody = world.why("nobody").await;
    assert_eq!(texts(&nobody.now), ["not a member"]);
}

#[tokio::test]
async fn long_history_keeps_the_newest_lines() {
    let world = world(StoreOptions::default());
    for _ in 0..1_200 {
        world.join("a").await;
    }
    let last = world.join("a").await;
    let told = world.why("a").await;
    assert_eq!((told.history.len(), told.truncated), (MAX_LINES, true));
    assert_eq!(told.history.last().unwrap().text, format!("{last} joined"));
}

#[test]
fn invalid_subject_lists_the_valid_forms() {
    for bad in [
        "",
        "a b",
        "a@b",
        "r/",
        "/k",
        "r/k/x",
        "a@1@2",
        "lease:",
        "lease:a b",
        "session:",
        "session:a b",
    ] {
        let error = Subject::parse(bad).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid
                && error
                    .to_string()
                    .contains("a lease (lease:NAME) or a session (session:ID)"),
            "{bad}: {error}"
        );
    }
    for (good, shown) in [
        ("a", "member a"),
        ("a@7", "tenure a@7"),
        ("r/k", "key r/k"),
        ("lease:t1", "lease t1"),
        ("session:s1", "session s1"),
        ("lease:a@7", "tenure lease:a@7"),
    ] {
        assert_eq!(Subject::parse(good).unwrap().to_string(), shown);
    }
}
