//! Cases about the mirror of a roster: which rows apply, which providers are available, which ends the ledger must
//! apply.

use std::time::Duration;

use super::world::{Make, World, ms, refused, s};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::id::{ProviderId, TenureId};
use crate::ledger::{Provider, RosterSettings, Version};
use crate::roster::{
    Heartbeat, HeartbeatReply, MirrorEntry, MirroredProvider, NEVER_STALE, Overwrite, Pending, Put, PutOutcome,
    RosterMirror, Standing, TOMBSTONES_KEPT, Task, Turn, TurnRequest,
};
use crate::store::{Call, PageRequest, StoreOptions};
use crate::sweep::ReconcileRequest;
use crate::time::StoreTime;

/// The ttl of providers in these cases.
pub(super) const STALE: Duration = Duration::from_secs(6);

/// Generates one test per case, for a store that mirrors rosters. The argument is that of
/// [`conformance_tests!`](crate::conformance_tests).
#[macro_export]
macro_rules! roster_conformance_tests {
    ($make:ident, one_per_call) => {
        mod rosters {
            use super::$make;
            $crate::conformance_tests! { @cases $make;
                roster: a_provider_is_seated_and_available, counts_combine_rows_with_living_tenures,
                    rows_are_listed_page_by_page, a_turn_has_one_holder, a_verify_pages_every_row_of_the_mirror,
                    the_highest_version_is_reported, activation_by_an_operator_is_an_event;
                roster_end: the_end_of_a_named_tenure_is_pending_until_it_is_done, heartbeats_extend_by_name,
                    settings_move_the_deadlines;
                random: the_mirror_agrees_with_the_model;
            }
        }
    };
    ($make:ident) => {
        mod rosters {
            use super::$make;
            $crate::conformance_tests! { @cases $make;
                roster: a_provider_is_seated_and_available, only_the_newest_version_applies, a_removal_leaves_a_tombstone,
                    an_entry_can_replace_an_exact_version, the_least_occupied_come_first_page_by_page,
                    the_dead_are_never_available, the_snapshot_is_kept_while_nothing_changes,
                    counts_combine_rows_with_living_tenures, rows_are_listed_page_by_page,
                    a_turn_has_one_holder, a_verify_pages_every_row_of_the_mirror, the_highest_version_is_reported,
                    a_mirror_call_over_a_limit_changes_nothing, a_mirror_call_past_its_not_after_changes_nothing,
                    activation_by_an_operator_is_an_event, many_in_one_call;
                roster_end: a_row_that_names_an_ended_tenure_is_pending, ends_of_every_reason_are_whole, an_unknown_tenure_is_reported,
                    the_end_of_a_named_tenure_is_pending_until_it_is_done, an_end_that_no_row_names_is_not_pending,
                    a_newer_row_clears_the_pending_end, heartbeats_extend_by_name, a_heartbeat_revives_no_provider,
                    seating_keeps_a_living_tenure, a_mass_death_is_braked, the_ledger_follows_when_the_brake_ends,
                    an_outage_takes_no_provider_offline,
                    settings_move_the_deadlines, a_group_with_a_roster_is_never_empty, requiring_heartbeats_gives_providers_a_full_ttl;
                random: the_mirror_agrees_with_the_model;
            }
        }
    };
}

pub(super) fn provider(name: &str) -> ProviderId {
    ProviderId::new(name).expect("a case names its providers well")
}

/// A row with capacity two and this version.
pub(crate) fn row(name: &str, version: u64, online: Option<&TenureId>) -> Provider {
    Provider {
        provider: provider(name),
        display_name: Some(format!("{name} | \u{e9}\u{1f600} \\ \"x\" ")),
        active: true,
        online: online.cloned(),
        capacity: 2,
        occupancy: 0,
        last_online_at: Some(StoreTime::from_micros(7)),
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version: Version(version),
    }
}

fn gone(name: &str, version: u64) -> Put {
    Put::newer(MirrorEntry::Gone {
        provider: provider(name),
        version: Version(version),
    })
}

pub(super) fn outcome(applied: bool, version: u64, standing: Standing) -> PutOutcome {
    PutOutcome {
        applied,
        version: Version(version),
        standing,
    }
}

impl World {
    pub(super) fn mirror(&self) -> &dyn RosterMirror {
        self.store.mirror().expect("the store mirrors rosters")
    }

    pub(super) async fn puts(&self, puts: &[Put]) -> Vec<PutOutcome> {
        let put = self.mirror().put_providers(&self.group, puts, Call::default()).await;
        put.expect("an answer")
    }

    pub(super) async fn put(&self, row: Provider) -> PutOutcome {
        self.puts(&[Put::newer(MirrorEntry::Row(row))]).await[0]
    }

    pub(super) async fn seat(&self, name: &str) -> TenureId {
        let names = [provider(name)];
        let seated = self
            .mirror()
            .ensure_tenures(&self.group, &names, STALE, true, Call::default())
            .await;
        seated.expect("a seat").remove(0).tenure
    }

    /// Creates an online provider with a row that names its tenure.
    pub(super) async fn online(&self, name: &str, version: u64) -> TenureId {
        let tenure = self.seat(name).await;
        let put = self.put(row(name, version, Some(&tenure))).await;
        assert_eq!(put, outcome(true, version, Standing::Alive), "{name}");
        tenure
    }

    pub(super) async fn hear(&self, name: &str) -> HeartbeatReply {
        let heard = [Heartbeat::of(provider(name))];
        let heard = self.mirror().heartbeat(&self.group, &heard).await;
        heard.expect("an answer").replies[0]
    }

    pub(super) async fn seen(&self, name: &str) -> Option<MirroredProvider> {
        let looked = self.mirror().look(&self.group, &[provider(name)]).await;
        looked.expect("a look-up").providers.remove(0)
    }

    pub(super) async fn standing(&self, name: &str) -> Option<Standing> {
        self.seen(name).await.map(|seen| seen.standing)
    }

    /// All available providers, page by page, checked against their count without a snapshot.
    pub(super) async fn available(&self, limit: u32) -> Vec<String> {
        let (mut names, mut page) = (Vec::new(), PageRequest { after: None, limit });
        loop {
            let ranked = self.mirror().available(&self.group, &page).await.expect("a page");
            assert!(ranked.candidates.len() <= limit as usize);
            names.extend(ranked.candidates.iter().map(|free| free.provider.to_string()));
            page.after = ranked.next;
            if page.after.is_none() {
                break;
            }
        }
        let counted = self.mirror().availability(&self.group, Duration::ZERO).await;
        assert_eq!(counted.expect("a count").count, names.len() as u64);
        names
    }

    pub(super) async fn pending(&self) -> Pending {
        let pending = self.mirror().pending_offline(&self.group, 100, false, Call::default());
        pending.await.expect("an answer")
    }

    pub(super) async fn time(&self) -> StoreTime {
        self.store.now().await.expect("the time")
    }

    async fn snapshot(&self, snapshot: Duration) -> (u64, StoreTime) {
        let kept = self
            .mirror()
            .availability(&self.group, snapshot)
            .await
            .expect("a count");
        assert!(kept.complete);
        (kept.count, kept.as_of)
    }
}

/// The row that activates the provider emits one event. A row that fills the mirror emits none.
pub async fn activation_by_an_operator_is_an_event(make: Make<'_>) {
    let world = World::new(make).await;
    let told = async |kind| {
        let events = world.events_of(kind).await;
        let who = events.into_iter().map(|event| event.to.map(String::from));
        who.collect::<Vec<_>>()
    };
    let decide = async |name: &str, version, active| {
        let row = Provider {
            active,
            ..row(name, version, None)
        };
        world.put(row).await
    };
    decide("ann", 1, true).await;
    decide("bob", 2, false).await;
    assert_eq!(told(EventKind::ProviderDeactivated).await, []);
    decide("ann", 4, false).await;
    decide("ann", 4, false).await;
    assert!(!decide("ann", 3, true).await.applied);
    decide("ann", 5, false).await;
    decide("bob", 6, true).await;
    assert_eq!(told(EventKind::ProviderDeactivated).await, [Some("ann".to_owned())]);
    assert_eq!(told(EventKind::ProviderActivated).await, [Some("bob".to_owned())]);
    world.puts(&[gone("bob", 7)]).await;
    decide("bob", 8, false).await;
    assert_eq!(
        told(EventKind::ProviderDeactivated).await.len(),
        1,
        "the other provider emits none"
    );
}

/// A provider is available once its row names its tenure.
pub async fn a_provider_is_seated_and_available(make: Make<'_>) {
    let world = World::new(make).await;
    assert_eq!(
        world.put(row("ann", 1, None)).await,
        outcome(true, 1, Standing::Offline)
    );
    assert_eq!(world.available(10).await, Vec::<String>::new());
    let tenure = world.seat("ann").await;
    // The row does not name the tenure yet: the ledger decides first.
    assert_eq!(world.available(10).await, Vec::<String>::new());
    assert_eq!(
        world.put(row("ann", 2, Some(&tenure))).await,
        outcome(true, 2, Standing::Alive)
    );
    assert_eq!(world.available(10).await, ["ann"]);
    let seen = world.seen("ann").await.expect("a row");
    let joined_at = StoreTime::from_micros(tenure.term().get());
    let expected = Provider {
        last_heartbeat_at: seen.row.last_heartbeat_at,
        ..row("ann", 2, Some(&tenure))
    };
    assert_eq!((seen.row.clone(), seen.standing), (expected, Standing::Alive));
    assert!(seen.row.last_heartbeat_at.is_some_and(|at| at <= joined_at + ms(1)));
    let mut full = row("ann", 3, Some(&tenure));
    full.occupancy = 2;
    world.put(full).await;
    assert_eq!(world.available(10).await, Vec::<String>::new());
    assert_eq!(world.seen("nobody").await, None);
}

/// Rows may arrive in the wrong order.
pub async fn only_the_newest_version_applies(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.online("ann", 5).await;
    for stale in [5, 4, 1] {
        let mut late = row("ann", stale, None);
        late.capacity = 77;
        assert_eq!(world.put(late).await, outcome(false, 5, Standing::Alive));
    }
    assert_eq!(world.seen("ann").await.expect("a row").row.capacity, 2);
    // Also within one call.
    let both = [
        Put::newer(MirrorEntry::Row(row("ann", 9, None))),
        Put::newer(MirrorEntry::Row(row("ann", 8, Some(&tenure)))),
    ];
    let answers = world.puts(&both).await;
    assert_eq!(
        answers,
        [
            outcome(true, 9, Standing::Offline),
            outcome(false, 9, Standing::Offline)
        ]
    );
    assert_eq!(world.available(10).await, Vec::<String>::new());
    // Versions are exact up to the maximum.
    let last = (1 << 53) - 1;
    for version in [last - 1, last] {
        let put = world.put(row("ann", version, Some(&tenure))).await;
        assert_eq!(put, outcome(true, version, Standing::Alive));
    }
    assert!(!world.put(row("ann", last - 1, None)).await.applied);
}

/// A late row does not restore a removed provider.
pub async fn a_removal_leaves_a_tombstone(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.online("ann", 5).await;
    assert_eq!(
        world.puts(&[gone("ann", 6)]).await,
        [outcome(true, 6, Standing::Offline)]
    );
    assert_eq!((world.seen("ann").await, world.available(10).await.len()), (None, 0));
    let late = world.put(row("ann", 5, Some(&tenure))).await;
    assert_eq!(late, outcome(false, 6, Standing::Offline));
    assert_eq!(world.hear("ann").await, HeartbeatReply::Absent);
    assert_eq!(
        world.puts(&[gone("ann", 6), gone("bob", 3)]).await[1],
        outcome(true, 3, Standing::Offline)
    );
    assert!(!world.put(row("bob", 2, None)).await.applied);
    assert_eq!(
        world.put(row("ann", 7, Some(&tenure))).await,
        outcome(true, 7, Standing::Alive)
    );
    assert_eq!(world.available(10).await, ["ann"]);
}

/// After one side lost data the ledger wins, but never over a row written in between.
pub async fn an_entry_can_replace_an_exact_version(make: Make<'_>) {
    let world = World::new(make).await;
    world.put(row("ann", 50, None)).await;
    let force = |version, over| Put {
        entry: MirrorEntry::Row(row("ann", version, None)),
        over: Overwrite::Exactly(Version(over)),
    };
    assert_eq!(
        world.puts(&[force(7, 49)]).await,
        [outcome(false, 50, Standing::Offline)]
    );
    assert_eq!(world.puts(&[force(7, 50)]).await, [outcome(true, 7, Standing::Offline)]);
    assert_eq!(world.puts(&[force(7, 7)]).await, [outcome(true, 7, Standing::Offline)]);
    let new = Put {
        entry: MirrorEntry::Row(row("bob", 3, None)),
        over: Overwrite::Exactly(Version::NONE),
    };
    assert_eq!(
        world.puts(&[new.clone(), new]).await,
        [
            outcome(true, 3, Standing::Offline),
            outcome(false, 3, Standing::Offline)
        ]
    );
    let drop = Put {
        over: Overwrite::Exactly(Version(3)),
        ..gone("bob", 2)
    };
    assert_eq!(world.puts(&[drop]).await, [outcome(true, 2, Standing::Offline)]);
}

/// Least occupied first.
pub async fn the_least_occupied_come_first_page_by_page(make: Make<'_>) {
    let world = World::new(make).await;
    let mut expected = Vec::new();
    for n in 0..30u32 {
        let name = format!("p{n:02}");
        let tenure = world.seat(&name).await;
        let mut row = row(&name, u64::from(n) + 1, Some(&tenure));
        (row.capacity, row.occupancy) = (12, (n * 7) % 13);
        row.active = n != 3;
        if row.active && row.occupancy < 12 {
            expected.push((row.occupancy, name));
        }
        world.put(row).await;
    }
    expected.sort();
    let names: Vec<String> = expected.into_iter().map(|(_, name)| name).collect();
    for limit in [1, 7, 100] {
        assert_eq!(world.available(limit).await, names);
    }
    let first = world
        .mirror()
        .available(&world.group, &PageRequest { after: None, limit: 2 })
        .await;
    let first = first.expect("a page");
    assert_eq!((first.candidates[1].occupancy, first.candidates[1].capacity), (0, 12));
    let bad = PageRequest {
        after: Some("not a cursor".to_owned()),
        limit: 2,
    };
    refused(world.mirror().available(&world.group, &bad).await, ErrorKind::Invalid);
}

/// Invariant 3: a lapsed provider is unavailable before any sweep.
pub async fn the_dead_are_never_available(make: Make<'_>) {
    let world = World::new(make).await;
    for n in 0..40 {
        world.online(&format!("p{n:02}"), n + 1).await;
    }
    world.pass(STALE - ms(100)).await;
    assert_eq!(world.hear("p39").await, HeartbeatReply::Recorded);
    world.outage(ms(101)).await;
    assert_eq!(world.available(10).await, ["p39"]);
    assert_eq!(
        (world.standing("p00").await, world.standing("p39").await),
        (Some(Standing::Ended), Some(Standing::Alive))
    );
    let stats = world.mirror().roster_stats(&world.group).await.expect("counts");
    assert_eq!(
        (stats.stats.online, stats.stats.available, stats.stats.offline),
        (1, 1, 39)
    );
    world.end_lapsed().await;
    assert_eq!(world.available(10).await, ["p39"]);
}

/// A snapshot is taken at most once a second and is never older than requested.
pub async fn the_snapshot_is_kept_while_nothing_changes(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("ann", 1).await;
    let began = world.time().await;
    assert_eq!(world.snapshot(s(5)).await, (1, began));
    world.pass(s(4)).await;
    assert_eq!(world.snapshot(s(5)).await, (1, began));
    let (count, second) = world.snapshot(s(2)).await;
    assert_eq!((count, second), (1, began + s(4)));
    world.pass(ms(300)).await;
    world.put(row("ann", 2, None)).await;
    // The data changed, but less than a second has passed.
    assert_eq!(world.snapshot(s(5)).await, (1, second));
    world.pass(ms(700)).await;
    let third = second + s(1);
    assert_eq!(world.snapshot(s(5)).await, (0, third));
    assert_eq!(world.snapshot(Duration::ZERO).await, (0, third));
    // Neither taking nor keeping a snapshot marks the mirror as seeded.
    let status = world.mirror().availability(&world.group, s(5)).await.expect("a count");
    assert_eq!((status.mirror.as_of, status.mirror.seeded), (third, false));
}

/// Counts by state come from rows and living tenures.
pub async fn counts_combine_rows_with_living_tenures(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("free", 1).await;
    let busy = world.seat("busy").await;
    let mut row_of = row("busy", 2, Some(&busy));
    row_of.occupancy = 3;
    world.put(row_of).await;
    world.put(row("away", 3, None)).await;
    let mut off = row("off", 4, None);
    off.active = false;
    world.put(off).await;
    let left = world.online("left", 5).await;
    world.leave(&left).await;
    world.puts(&[gone("gone", 6)]).await;
    let counts = world.mirror().roster_stats(&world.group).await.expect("counts");
    let stats = counts.stats;
    assert_eq!((stats.online, stats.available, stats.busy), (2, 1, 1));
    assert_eq!((stats.offline, stats.deactivated, stats.dirty), (2, 1, 0));
    assert_eq!((counts.pending, counts.complete), (1, true));
    // The occupied one becomes free, the free one occupied.
    world.put(row("busy", 7, Some(&busy))).await;
    let ann = world.seen("free").await.expect("a row").row;
    let full = Provider {
        occupancy: 2,
        version: Version(8),
        ..ann
    };
    world.put(full).await;
    assert_eq!(world.available(10).await, ["busy"]);
    let stats = world.mirror().roster_stats(&world.group).await.expect("counts").stats;
    assert_eq!((stats.online, stats.available, stats.busy), (2, 1, 1));
}

/// Rows are paged in order.
pub async fn rows_are_listed_page_by_page(make: Make<'_>) {
    let world = World::new(make).await;
    let mut names = Vec::new();
    for n in 0..250u64 {
        names.push(format!("p{n:03}"));
        world.put(row(&names[names.len() - 1], n + 1, None)).await;
    }
    let (mut listed, mut page) = (Vec::new(), PageRequest { after: None, limit: 60 });
    loop {
        let rows = world.mirror().rows(&world.group, &page).await.expect("a page");
        assert!(rows.rows.len() <= 60);
        listed.extend(rows.rows.iter().map(|seen| seen.row.provider.to_string()));
        page.after = rows.next;
        if page.after.is_none() {
            break;
        }
    }
    listed.sort();
    listed.dedup();
    assert_eq!(listed, names);
}

/// A task runs on one instance at a time.
pub async fn a_turn_has_one_holder(make: Make<'_>) {
    let world = World::new(make).await;
    let ask = |holder: &str, every| TurnRequest {
        task: Task::Reconcile,
        holder: holder.to_owned(),
        lasts: s(10),
        every,
    };
    let take = |holder: &str, every| {
        let (request, mirror, group) = (ask(holder, every), world.mirror(), &world.group);
        async move {
            mirror
                .take_turn(group, &request, Call::default())
                .await
                .expect("an answer")
        }
    };
    let end = |holder: &'static str, done| {
        let (mirror, group) = (world.mirror(), &world.group);
        async move {
            mirror
                .end_turn(group, Task::Reconcile, holder, done, Call::default())
                .await
                .expect("an end")
        }
    };
    let began = world.time().await;
    assert_eq!(take("a", s(0)).await, Turn::Mine(began + s(10)));
    assert_eq!(take("b", s(0)).await, Turn::Others(began + s(10)));
    let other = TurnRequest {
        task: Task::Heartbeats,
        ..ask("b", s(0))
    };
    let taken = world.mirror().take_turn(&world.group, &other, Call::default()).await;
    assert_eq!(taken.expect("an answer"), Turn::Mine(began + s(10)));
    world.pass(s(4)).await;
    assert_eq!(take("a", s(0)).await, Turn::Mine(began + s(14)));
    end("b", true).await;
    assert_eq!(take("b", s(0)).await, Turn::Others(began + s(14)));
    end("a", true).await;
    assert_eq!(take("b", s(60)).await, Turn::DoneUntil(began + s(64)));
    assert_eq!(take("b", s(1)).await, Turn::DoneUntil(began + s(5)));
    world.pass(s(1)).await;
    assert_eq!(take("b", s(1)).await, Turn::Mine(began + s(15)));
    // A holder that gives up leaves the task undone. One that vanished loses the turn when it expires.
    end("b", false).await;
    assert_eq!(take("c", s(1)).await, Turn::Mine(began + s(15)));
    world.pass(s(10)).await;
    assert_eq!(take("d", s(1)).await, Turn::Mine(began + s(25)));
}

/// Reconcile reads every row and tombstone in pages.
pub async fn a_verify_pages_every_row_of_the_mirror(make: Make<'_>) {
    let world = World::new(make).await;
    let mut expected = Vec::new();
    for n in 0..70u64 {
        let name = format!("p{n:02}");
        let tenure = world.seat(&name).await;
        let mut one = row(&name, n + 1, (n % 3 == 0).then_some(&tenure));
        one.active = n % 5 != 0 || n % 3 == 0;
        one.revoked_before = (n % 2 == 0).then(|| StoreTime::from_micros(n + 9));
        one.display_name = (n % 4 != 0).then(|| format!("n|{n}\u{e4}"));
        world.put(one.clone()).await;
        expected.push(MirrorEntry::Row(one));
    }
    world.puts(&[gone("gone", 99)]).await;
    expected.push(gone("gone", 99).entry);
    let verify = |limit| {
        let world = &world;
        async move {
            let (mut entries, mut request) = (Vec::new(), ReconcileRequest { after: None, limit });
            loop {
                let part = world
                    .mirror()
                    .verify_roster(&world.group, &request, Call::default())
                    .await;
                let part = part.expect("a part");
                assert_eq!(part.repaired.len(), 0, "{:?}", part.repaired);
                entries.extend(part.entries);
                request.after = part.next;
                if request.after.is_none() {
                    break;
                }
            }
            entries.sort_by(|a, b| a.provider().cmp(b.provider()));
            entries.dedup();
            entries
        }
    };
    expected.sort_by(|a, b| a.provider().cmp(b.provider()));
    assert_eq!(verify(1_000).await, expected);
    assert_eq!(verify(20).await, expected);
    world.outage(TOMBSTONES_KEPT).await;
    verify(1_000).await;
    assert_eq!(verify(1_000).await.len(), 70);
}

/// The highest version shows whether the store is whole or lost its tail.
pub async fn the_highest_version_is_reported(make: Make<'_>) {
    let world = World::new(make).await;
    let stamp = || async { world.mirror().mirror_status(&world.group).await.expect("a stamp") };
    let none = stamp().await;
    assert_eq!(
        (none.seeded, none.high, none.settings),
        (false, Version::NONE, Version::NONE)
    );
    world.put(row("ann", 8, None)).await;
    world.put(row("bob", 5, None)).await;
    assert_eq!(stamp().await.high, Version(8));
    world.puts(&[gone("ann", 11)]).await;
    let mark = async |since| {
        let marked = world.mirror().mark_seeded(&world.group, since, Call::default()).await;
        marked.expect("an answer")
    };
    let since = stamp().await.resumed_at;
    world.outage(s(60)).await;
    assert!(!mark(since).await, "the store has resumed since");
    assert!(!stamp().await.seeded);
    assert!(mark(stamp().await.resumed_at).await);
    let told = stamp().await;
    assert_eq!((told.seeded, told.high), (true, Version(11)));
    assert_eq!(told.as_of, world.time().await);
    let heard = world.mirror().heartbeat(&world.group, &[]).await.expect("an answer");
    assert_eq!(
        (heard.replies.len(), heard.mirror.seeded, heard.mirror.high),
        (0, true, Version(11))
    );
}

/// The call is refused before anything is sent.
pub async fn a_mirror_call_over_a_limit_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let (mirror, group) = (world.mirror(), &world.group);
    for stale in [ms(999), NEVER_STALE + s(1)] {
        let seat = mirror
            .ensure_tenures(group, &[provider("ann")], stale, true, Call::default())
            .await;
        refused(seat, ErrorKind::Invalid);
    }
    for limit in [0, 1_001] {
        refused(
            mirror.available(group, &PageRequest { after: None, limit }).await,
            ErrorKind::Invalid,
        );
        refused(
            mirror.rows(group, &PageRequest { after: None, limit }).await,
            ErrorKind::Invalid,
        );
        refused(
            mirror.pending_offline(group, limit, false, Call::default()).await,
            ErrorKind::Invalid,
        );
        refused(mirror.retime(group, limit, Call::default()).await, ErrorKind::Invalid);
        let part = ReconcileRequest { after: None, limit };
        refused(
            mirror.verify_roster(group, &part, Call::default()).await,
            ErrorKind::Invalid,
        );
    }
    let many = vec![provider("ann"); 10_001];
    refused(
        mirror.ensure_tenures(group, &many, STALE, true, Call::default()).await,
        ErrorKind::Invalid,
    );
    refused(mirror.look(group, &many).await, ErrorKind::Invalid);
    let bad = ReconcileRequest {
        after: Some("?".to_owned()),
        limit: 5,
    };
    refused(
        mirror.verify_roster(group, &bad, Call::default()).await,
        ErrorKind::Invalid,
    );
    let found = world.store.member(group, &provider("ann").member()).await;
    assert_eq!(found.expect("a look-up"), None);
}

/// Invariant 13: a late call changes nothing.
pub async fn a_mirror_call_past_its_not_after_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.online("ann", 1).await;
    let (mirror, group) = (world.mirror(), &world.group);
    let late = Call::not_after(StoreTime::from_micros(tenure.term().get() - 1));
    let put = [Put::newer(MirrorEntry::Row(row("ann", 2, None)))];
    refused(mirror.put_providers(group, &put, late).await, ErrorKind::TooLate);
    refused(
        mirror
            .ensure_tenures(group, &[provider("bob")], STALE, true, late)
            .await,
        ErrorKind::TooLate,
    );
    refused(mirror.pending_offline(group, 1, true, late).await, ErrorKind::TooLate);
    refused(mirror.offline_done(group, &[tenure], late).await, ErrorKind::TooLate);
    let settings = RosterSettings {
        version: Version(3),
        ..RosterSettings::default()
    };
    refused(
        mirror
            .put_roster_settings(group, &settings, Overwrite::Older, late)
            .await,
        ErrorKind::TooLate,
    );
    refused(mirror.retime(group, 1, late).await, ErrorKind::TooLate);
    let since = StoreTime::from_micros(1);
    refused(mirror.mark_seeded(group, since, late).await, ErrorKind::TooLate);
    refused(
        mirror.end_turn(group, Task::Heartbeats, "a", true, late).await,
        ErrorKind::TooLate,
    );
    let part = ReconcileRequest { after: None, limit: 5 };
    refused(mirror.verify_roster(group, &part, late).await, ErrorKind::TooLate);
    let stamp = mirror.mirror_status(group).await.expect("a stamp");
    assert_eq!(
        (stamp.high, stamp.seeded, stamp.settings),
        (Version(1), false, Version::NONE)
    );
    assert_eq!(world.available(10).await, ["ann"]);
}

/// A call larger than one atomic part returns one reply.
pub async fn many_in_one_call(make: Make<'_>) {
    let world = World::with(make, StoreOptions::default()).await;
    let names: Vec<ProviderId> = (0..450).map(|n| provider(&format!("p{n:03}"))).collect();
    let seated = world
        .mirror()
        .ensure_tenures(&world.group, &names, STALE, true, Call::default())
        .await;
    let seated = seated.expect("seats");
    let puts: Vec<Put> = names
        .iter()
        .zip(&seated)
        .enumerate()
        .map(|(n, (name, seat))| Put::newer(MirrorEntry::Row(row(name.as_str(), n as u64 + 1, Some(&seat.tenure)))))
        .collect();
    let put = world.puts(&puts).await;
    assert!(
        put.iter()
            .enumerate()
            .all(|(n, put)| *put == outcome(true, n as u64 + 1, Standing::Alive))
    );
    let beats: Vec<_> = names.iter().cloned().map(Heartbeat::of).collect();
    let heard = world.mirror().heartbeat(&world.group, &beats).await.expect("answers");
    assert_eq!(heard.replies, vec![HeartbeatReply::Recorded; 450]);
    let looked = world.mirror().look(&world.group, &names).await.expect("answers");
    assert!(looked.providers.iter().flatten().all(MirroredProvider::is_available) && looked.providers.len() == 450);
    assert_eq!(world.available(1_000).await.len(), 450);
}
