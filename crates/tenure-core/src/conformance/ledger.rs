//! The contract of every ledger: named cases on a virtual clock, concurrent steps, and a random comparison with the
//! reference ledger.
//!
//! A ledger's crate implements [`LedgerHarness`], passes it to
//! [`ledger_conformance_tests!`](crate::ledger_conformance_tests), and gets one test per case.

pub mod engagement;
pub mod liveness;
pub mod provider;
pub mod random;
pub mod reserve;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::id::{EngagementId, ProviderId, RosterName, TenureId, Term};
use crate::ledger::{
    Candidates, Change, EngagementChange, EngagementOutcome, Expiry, Ledger, LogEntry, Move, NewEngagement,
    OnlineOutcome, Provider, ProviderChange, ProviderSpec, Reason, Reassign, ReserveOutcome, Status,
};
use crate::store::PageRequest;
use crate::time::StoreTime;

/// A new ledger on a clock that the suite controls.
#[async_trait]
pub trait LedgerHarness: Send + Sync {
    /// The ledger under test.
    fn ledger(&self) -> Arc<dyn Ledger>;

    /// Advances the ledger's clock. Nothing else may advance it.
    async fn advance(&self, by: Duration);
}

/// A future that creates a harness.
pub type HarnessFuture = Pin<Box<dyn Future<Output = Box<dyn LedgerHarness>> + Send>>;
/// Creates a harness: what a ledger's tests pass to the suite.
pub type Make<'a> = &'a (dyn Fn() -> HarnessFuture + Send + Sync);

/// Generates one test per case. The argument is an `async fn() -> Box<dyn LedgerHarness>` that creates a ledger.
#[macro_export]
macro_rules! ledger_conformance_tests {
    ($make:ident, one_per_call) => {
        $crate::ledger_conformance_tests! { @cases $make;
            provider: a_provider_is_created_and_changed, a_provider_goes_online_and_offline,
                a_deactivated_provider_stays_offline, only_an_idle_provider_is_removed, void_tokens_stay_void_after_removal,
                providers_are_listed_by_state_page_by_page, settings_are_changed_and_read,
                a_new_default_capacity_reaches_providers_without_their_own, the_log_is_read_page_by_page;
            liveness: an_ended_tenure_takes_exactly_its_provider_offline, a_recorded_heartbeat_refutes_a_lapse, heartbeat_times_never_go_back,
                a_request_for_heartbeats_expires, a_heartbeat_pass_has_an_age, an_overview_covers_every_roster,
                a_change_is_dirty_until_its_version_is_clean, a_drawn_version_exceeds_all_earlier_ones;
            engagement: an_engagement_lives_through_its_statuses, an_engagement_is_re_routed_in_one_step,
                an_engagement_is_unassigned, engagements_expire_at_their_time, accepted_work_outlives_its_offer,
                active_work_has_a_time_of_its_own, old_closed_engagements_are_removed;
            reserve: a_named_provider_is_reserved_within_its_capacity, excluded_providers_are_not_reserved,
                the_least_occupied_is_available_first, the_longest_idle_is_reserved_first, concurrent_reserves_take_the_last_place_once;
            random: the_ledger_agrees_with_the_model;
        }
    };
    ($make:ident) => {
        $crate::ledger_conformance_tests! { @cases $make;
            provider: a_provider_is_created_and_changed, a_call_over_a_limit_changes_nothing,
                a_provider_goes_online_and_offline, an_older_tenure_is_stale,
                a_placeholder_is_followed_by_a_tenure, a_deactivated_provider_stays_offline,
                only_an_idle_provider_is_removed, void_tokens_stay_void_after_removal, providers_are_listed_by_state_page_by_page,
                settings_are_changed_and_read, a_new_default_capacity_reaches_providers_without_their_own,
                the_log_is_read_page_by_page, unknown_names_are_not_found;
            liveness: an_ended_tenure_takes_exactly_its_provider_offline, a_recorded_heartbeat_refutes_a_lapse, concurrent_followers_apply_an_end_once,
                heartbeat_times_never_go_back, a_request_for_heartbeats_expires, a_heartbeat_pass_has_an_age,
                an_overview_covers_every_roster, a_change_is_dirty_until_its_version_is_clean, a_drawn_version_exceeds_all_earlier_ones;
            engagement: an_engagement_lives_through_its_statuses, repeating_an_engagement_is_idempotent,
                an_engagement_is_re_routed_in_one_step, an_impossible_move_is_a_conflict,
                an_engagement_is_unassigned, engagements_are_recorded_above_the_capacity, engagements_expire_at_their_time,
                accepted_work_outlives_its_offer, active_work_has_a_time_of_its_own, old_closed_engagements_are_removed,
                concurrent_sweeps_expire_an_engagement_once;
            reserve: only_a_candidate_with_room_is_taken, a_named_provider_is_reserved_within_its_capacity,
                excluded_providers_are_not_reserved, the_least_occupied_is_available_first, the_longest_idle_is_reserved_first,
                only_fresh_providers_are_available, repeating_a_reserve_is_idempotent, concurrent_reserves_take_the_last_place_once,
                opposite_moves_do_not_deadlock;
            random: the_ledger_agrees_with_the_model;
        }
    };
    (@cases $make:ident; $($noun:ident: $($case:ident),* $(,)?;)*) => {
        $(mod $noun {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::conformance::ledger::$noun::$case(&|| Box::pin(super::$make())).await;
            })*
        })*
    };
}

/// The fixture of one case.
pub(super) struct World {
    harness: Box<dyn LedgerHarness>,
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) roster: RosterName,
}

pub(super) fn provider(name: &str) -> ProviderId {
    ProviderId::new(name).expect("a case names its providers well")
}

pub(super) fn engagement(name: &str) -> EngagementId {
    EngagementId::new(name).expect("a case names its engagements well")
}

pub(super) fn tenure(name: &str, term: u64) -> TenureId {
    TenureId::new(provider(name).member(), Term::new(term).expect("a term"))
}

impl World {
    pub(super) async fn new(make: Make<'_>) -> Self {
        let harness = make().await;
        Self {
            ledger: harness.ledger(),
            harness,
            roster: RosterName::new("care").expect("a good name"),
        }
    }

    pub(super) async fn pass(&self, time: Duration) {
        self.harness.advance(time).await;
    }

    pub(super) async fn now(&self) -> StoreTime {
        self.ledger.now().await.expect("the time")
    }

    pub(super) async fn put(&self, name: &str, capacity: u32) -> ProviderChange {
        let spec = ProviderSpec {
            display_name: None,
            capacity: Some(capacity).into(),
        };
        let put = self.ledger.put_provider(&self.roster, &provider(name), &spec).await;
        put.expect("a provider")
    }

    /// Creates a provider that is online under this term.
    pub(super) async fn online(&self, name: &str, capacity: u32, term: u64) -> Provider {
        self.put(name, capacity).await;
        match self.go_online(name, Some(term)).await {
            OnlineOutcome::Online(change) => change.provider,
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn go_online(&self, name: &str, term: Option<u64>) -> OnlineOutcome {
        let tenure = term.map(|term| tenure(name, term));
        let online = self
            .ledger
            .go_online(&self.roster, &provider(name), tenure.as_ref())
            .await;
        online.expect("an answer")
    }

    pub(super) async fn provider(&self, name: &str) -> Provider {
        let row = self.ledger.provider(&self.roster, &provider(name)).await;
        row.expect("a look-up").expect("a provider")
    }

    pub(super) async fn occupancy(&self, name: &str) -> u32 {
        self.provider(name).await.occupancy
    }

    pub(super) async fn log(&self) -> Vec<LogEntry> {
        let page = PageRequest {
            after: None,
            limit: 1_000,
        };
        self.ledger.log(&self.roster, None, &page).await.expect("the log").items
    }

    pub(super) async fn changes(&self) -> Vec<(String, Change, Reason)> {
        let log = self.log().await.into_iter();
        log.map(|entry| (entry.provider.to_string(), entry.change, entry.reason))
            .collect()
    }

    pub(super) async fn create(&self, name: &str, of: Option<&str>, status: Status) -> EngagementOutcome {
        let new = NewEngagement {
            provider: of.map(provider),
            status,
            ..NewEngagement::new(engagement(name))
        };
        let created = self.ledger.create_engagement(&self.roster, &new).await;
        created.expect("an answer")
    }

    pub(super) async fn shift(&self, name: &str, status: Option<Status>, to: Option<&str>) -> EngagementOutcome {
        let to = Move {
            status,
            provider: to.map_or(Reassign::Keep, |to| Reassign::To(provider(to))),
            expiry: Expiry::Keep,
        };
        let moved = self.ledger.move_engagement(&self.roster, &engagement(name), &to).await;
        moved.expect("an answer")
    }

    pub(super) async fn reserve(&self, name: &str, candidates: Candidates) -> ReserveOutcome {
        let new = NewEngagement::new(engagement(name));
        let reserved = self.ledger.reserve(&self.roster, &new, &candidates).await;
        reserved.expect("an answer")
    }

    /// The names of available providers in the order of the ledger, read two at a time.
    pub(super) async fn available(&self, fresh_since: Option<StoreTime>) -> Vec<String> {
        let (mut names, mut page) = (Vec::new(), PageRequest { after: None, limit: 2 });
        loop {
            let read = self.ledger.available(&self.roster, &page, fresh_since).await;
            let read = read.expect("a list");
            names.extend(read.items.into_iter().map(|one| one.provider.to_string()));
            page.after = read.next;
            if page.after.is_none() {
                return names;
            }
        }
    }
}

#[track_caller]
pub(super) fn done(outcome: EngagementOutcome) -> EngagementChange {
    match outcome {
        EngagementOutcome::Done(change) => change,
        other @ EngagementOutcome::Conflict(_) => panic!("{other:?}"),
    }
}

/// The provider of a granted reserve.
#[track_caller]
pub(super) fn reserved(outcome: ReserveOutcome) -> String {
    match outcome {
        ReserveOutcome::Reserved(change) => change.engagement.provider.expect("a provider").to_string(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn among(names: &[&str]) -> Candidates {
    Candidates::Among(names.iter().map(|name| provider(name)).collect())
}

pub(super) const ANYONE: Candidates = Candidates::ANYONE;
