//! The fixture of a case: a new store, a clock to advance, and helpers for common steps.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{ErrorKind, Result};
use crate::event::{Event, EventKind, EventQuery};
use crate::id::{Group, Key, LeaseName, MemberId, NodeId, RegistryName, TenureId};
use crate::lease::{Acquire, AcquireOutcome, Holders, Queue, ReleaseOutcome, Token};
use crate::membership::{Beat, BeatReply, EndBy, EndReason, Join, Joined, Labels, Revision};
use crate::pulse::BeatPulse;
use crate::registry::{ClaimMode, ClaimOutcome};
use crate::store::{Call, PageRequest, Store, StoreOptions};
use crate::sweep::{BATCH, EndedBatch, SweepReport, SweepRequest, run_pass};

/// A new store on a clock that the suite controls.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The store under test.
    fn store(&self) -> Arc<dyn Store>;

    /// The store that sweeps: the same one, or the one behind it if the store under test is a client of a daemon.
    fn sweeper(&self) -> Arc<dyn Store> {
        self.store()
    }

    /// Advances the store's clock. Nothing else may advance it.
    async fn advance(&self, by: Duration);

    /// Deletes the list of groups of the live store. Does nothing where the groups themselves are the list.
    async fn lose_list(&self) {}

    /// Restarts the store empty, as after a loss of its data; [`Harness::store`] returns the new one. `false` where the
    /// harness cannot do this.
    async fn lose_data(&self) -> bool {
        false
    }

    /// Whether the store can lose its newest writes while it serves, as in a failover, and so accepts a beat with a
    /// number above all it has. False for a store that accepts one only soon after a start.
    fn fails_over(&self) -> bool {
        true
    }

    /// The resolution of durations in its replies: how long something lasts is rounded down to it, a wait up.
    fn resolution(&self) -> Duration {
        Duration::from_micros(1)
    }
}

/// A future that creates a harness.
pub type HarnessFuture = Pin<Box<dyn Future<Output = Box<dyn Harness>> + Send>>;
/// Creates a harness: what a store's tests pass to the suite.
pub type Make<'a> = &'a (dyn Fn(StoreOptions) -> HarnessFuture + Send + Sync);

/// The fixture of one case.
pub struct World {
    harness: Box<dyn Harness>,
    /// The store under test.
    pub store: Arc<dyn Store>,
    /// The group under test.
    pub group: Group,
    /// The registry under test.
    pub devices: RegistryName,
}

/// Between two beats of the pulse while the store serves: a hole at no level.
pub(super) const SERVED_EVERY: Duration = ms(400);

/// Seconds.
#[must_use]
pub(super) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Milliseconds.
#[must_use]
pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A key.
#[must_use]
pub(super) fn key(name: &str) -> Key {
    Key::new(name).expect("a case names its keys well")
}

/// Numbered keys.
#[must_use]
pub(super) fn keys(prefix: &str, count: usize) -> Vec<Key> {
    (0..count).map(|n| key(&format!("{prefix}{n:05}"))).collect()
}

/// A lease.
#[must_use]
pub(super) fn lease(name: &str) -> LeaseName {
    LeaseName::new(name).expect("a case names its leases well")
}

/// Numbered leases.
#[must_use]
pub(super) fn leases(prefix: &str, count: usize) -> Vec<LeaseName> {
    (0..count).map(|n| lease(&format!("{prefix}{n:05}"))).collect()
}

/// A member id.
#[must_use]
pub(super) fn member(name: &str) -> MemberId {
    MemberId::new(name).expect("a case names its members well")
}

/// The reply to a beat of a tenure that holds nothing.
#[must_use]
pub(super) fn renewed(expires_in: Duration) -> BeatReply {
    BeatReply::Renewed {
        expires_in,
        revision: Revision::NONE,
    }
}

/// Asserts the kind of an error.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind) {
    match result {
        Err(error) => assert_eq!(error.kind(), kind, "{error:?}"),
        Ok(done) => panic!("expected {kind:?}, got {done:?}"),
    }
}

impl World {
    /// Creates a fixture with default options.
    pub async fn new(make: Make<'_>) -> Self {
        Self::with(make, StoreOptions::default()).await
    }

    /// Creates a fixture with these options.
    pub async fn with(make: Make<'_>, options: StoreOptions) -> Self {
        let harness = make(options).await;
        let group = Group::new("ingest").expect("a good name");
        let devices = RegistryName::new("devices").expect("a good name");
        let world = Self {
            store: harness.store(),
            harness,
            group,
            devices,
        };
        world.beat_pulse().await;
        world
    }

    /// Beats the pulse of the store: it takes beats now. Returns whether there is one.
    pub async fn beat_pulse(&self) -> bool {
        let beaten = self.harness.sweeper().beat_pulse(BeatPulse::default()).await;
        beaten.expect("a pulse").without.is_empty()
    }

    /// A beat of this group failed although the store served others.
    pub(super) async fn beat_pulse_with_failure(&self) {
        self.beat_pulse_with(vec![self.group.clone()]).await;
    }

    /// Beats of this many other groups failed.
    pub(super) async fn beat_pulse_with_failures(&self, count: usize) {
        let group = |n: usize| Group::new(format!("failed-{n}")).expect("a good name");
        self.beat_pulse_with((0..count).map(group).collect()).await;
    }

    async fn beat_pulse_with(&self, failed: Vec<Group>) {
        let beat = BeatPulse { failed };
        self.harness.sweeper().beat_pulse(beat).await.expect("a pulse");
    }

    /// Whether the store can lose its newest writes while it serves.
    pub(super) fn fails_over(&self) -> bool {
        self.harness.fails_over()
    }

    /// The resolution of durations in the store's replies.
    pub(super) fn resolution(&self) -> Duration {
        self.harness.resolution()
    }

    /// Advances the clock while the store serves, and visits the group often.
    pub async fn pass(&self, time: Duration) {
        let mut left = time;
        self.beat_pulse().await;
        while !left.is_zero() {
            let status = self.tick().await;
            let step = (status.gap / 3).min(SERVED_EVERY).min(left);
            self.serve(step).await;
            left -= step;
        }
        self.tick().await;
    }

    /// Advances the clock while the store serves, without visits to the group.
    pub async fn serve(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = SERVED_EVERY.min(left);
            self.harness.advance(step).await;
            self.beat_pulse().await;
            left -= step;
        }
    }

    /// Advances the clock while the store does not serve.
    pub async fn outage(&self, time: Duration) {
        self.harness.advance(time).await;
    }

    /// Deletes the list of groups.
    pub async fn lose_list(&self) {
        self.harness.lose_list().await;
    }

    /// Restarts the store empty, if the harness can.
    pub(super) async fn lose_data(&mut self) -> bool {
        let lost = self.harness.lose_data().await;
        self.store = self.harness.store();
        self.beat_pulse().await;
        lost
    }

    /// The store that sweeps.
    #[must_use]
    pub fn sweeper(&self) -> Arc<dyn Store> {
        self.harness.sweeper()
    }

    /// Ticks once, and confirms the waiting requests of the cases.
    pub async fn tick(&self) -> crate::sweep::GroupStatus {
        let sweeper = self.harness.sweeper();
        let node = NodeId::new("node").expect("a name");
        sweeper
            .steps()
            .expect("the sweeping store has steps")
            .tick_of(&self.group, Some(&node))
            .await
            .expect("a tick")
    }

    /// Runs step 1 of a sweep once.
    pub async fn end_some(&self) -> EndedBatch {
        let sweeper = self.harness.sweeper();
        let steps = sweeper.steps().expect("the sweeping store has steps");
        let batch = steps.end_lapsed(&self.group, BATCH, Call::default()).await;
        batch.expect("end lapsed")
    }

    /// Repeats step 1 of a sweep until it is drained.
    pub async fn end_lapsed(&self) -> Vec<TenureId> {
        let mut ended = Vec::new();
        loop {
            let batch = self.end_some().await;
            let more = batch.more();
            ended.extend(batch.ended);
            if !more {
                return ended;
            }
        }
    }

    /// Records that a daemon refuses beats. Returns the tenures that were past their end before.
    pub async fn spare(&self) -> Vec<TenureId> {
        let sweeper = self.harness.sweeper();
        let steps = sweeper.steps().expect("the sweeping store has steps");
        let batch = steps
            .spare(&self.group, BATCH, Call::default())
            .await
            .expect("to spare");
        assert!(!batch.more(), "one step covers few members");
        batch.ended
    }

    /// Runs a whole pass on the sweeping store.
    pub async fn sweep(&self, pass: &str) -> SweepReport {
        let sweeper = self.harness.sweeper();
        let steps = sweeper.steps().expect("the sweeping store has steps");
        run_pass(steps, &self.group, &SweepRequest::default(), pass, Call::default())
            .await
            .expect("a pass")
    }

    /// Requests a whole pass from the store under test.
    pub async fn ask_sweep(&self, request: SweepRequest, pass: &str) -> SweepReport {
        self.store
            .sweep(&self.group, &request, pass, Call::default())
            .await
            .expect("a pass")
    }

    /// Joins.
    pub async fn join(&self, name: &str, ttl: Duration) -> TenureId {
        self.joined(name, ttl).await.tenure
    }

    /// Joins and returns the whole reply.
    pub async fn joined(&self, name: &str, ttl: Duration) -> Joined {
        let join = Join {
            member: member(name),
            ttl,
            labels: Labels::default(),
        };
        self.store
            .join(&self.group, &join, Call::default())
            .await
            .expect("a join")
    }

    /// Beats once.
    pub async fn beat(&self, tenure: &TenureId) -> BeatReply {
        self.beats(std::slice::from_ref(tenure)).await[0]
    }

    /// Beats for several tenures.
    pub async fn beats(&self, tenures: &[TenureId]) -> Vec<BeatReply> {
        let beats: Vec<_> = tenures.iter().cloned().map(Beat::of).collect();
        self.store.beat(&self.group, &beats).await.expect("beats").replies
    }

    /// Beats once, naming a revision.
    pub async fn beat_naming(&self, tenure: &TenureId, revision: Revision) -> BeatReply {
        let (tenure, ttl) = (tenure.clone(), None);
        let beat = Beat {
            tenure,
            ttl,
            revision,
            seen: Revision::NONE,
        };
        self.store.beat(&self.group, &[beat]).await.expect("a beat").replies[0]
    }

    /// Asserts that a beat finds the tenure ended for this reason.
    pub async fn ended(&self, tenure: &TenureId, reason: EndReason) {
        assert_eq!(self.beat(tenure).await, BeatReply::Ended(reason), "{tenure}");
    }

    /// Claims one key.
    pub async fn claim(&self, tenure: &TenureId, name: &str) -> ClaimOutcome {
        self.try_claim(tenure, &[key(name)], ClaimMode::Take)
            .await
            .expect("a claim")
            .remove(0)
    }

    /// Claims keys.
    pub async fn claim_all(&self, tenure: &TenureId, keys: &[Key]) {
        self.try_claim(tenure, keys, ClaimMode::Take).await.expect("claims");
    }

    /// Tries to claim keys.
    pub async fn try_claim(&self, tenure: &TenureId, keys: &[Key], mode: ClaimMode) -> Result<Vec<ClaimOutcome>> {
        let claimed = self
            .store
            .claim(&self.group, &self.devices, tenure, keys, mode, Call::default())
            .await?;
        Ok(claimed.outcomes)
    }

    /// The owner of a key, and whether it is alive.
    pub async fn owner(&self, name: &str) -> Option<(TenureId, bool)> {
        let claim = self
            .store
            .claim_of(&self.group, &self.devices, &key(name))
            .await
            .expect("a look-up");
        claim.map(|claim| {
            assert_eq!(&claim.owner, claim.tenure.member());
            (claim.tenure, claim.alive)
        })
    }

    /// Leaves.
    pub async fn leave(&self, tenure: &TenureId) {
        let left = self.store.end(&self.group, tenure, EndBy::Leave, Call::default()).await;
        assert_eq!(left.expect("left"), EndReason::Left);
    }

    /// Acquires a lease.
    pub async fn acquire(&self, tenure: &TenureId, name: &str) -> AcquireOutcome {
        let asked = [lease(name)];
        let acquired = self.store.acquire(&self.group, tenure, &asked, Call::default()).await;
        acquired.expect("an answer").outcomes.remove(0)
    }

    /// Acquires a lease and fails the case if it is not granted.
    pub async fn granted(&self, tenure: &TenureId, name: &str) -> Token {
        match self.acquire(tenure, name).await {
            AcquireOutcome::Granted { token, .. } => token,
            other => panic!("{name} for {tenure}: {other:?}"),
        }
    }

    /// Acquires a place of a shared lease.
    pub async fn acquire_shared(&self, tenure: &TenureId, name: &str, holders: u16) -> AcquireOutcome {
        self.ask_for(tenure, name, holders, None).await
    }

    /// Acquires a place of a shared lease, and fails the case if there is none. Returns the token and the place.
    pub async fn share(&self, tenure: &TenureId, name: &str, holders: u16) -> (Token, u16) {
        let outcome = self.acquire_shared(tenure, name, holders).await;
        match (outcome.token(), outcome.place()) {
            (Some(token), Some(place)) => (token, place.get()),
            _ => panic!("{name} for {tenure}: {outcome:?}"),
        }
    }

    /// Acquires a lease, with any number of holders and with or without a wait.
    pub(super) async fn ask_for(
        &self,
        tenure: &TenureId,
        name: &str,
        holders: u16,
        queue: Option<Queue>,
    ) -> AcquireOutcome {
        let acquire = Acquire {
            holders: Holders::new(holders).expect("a case asks for a valid number"),
            queue,
            ..Acquire::new(tenure.clone(), vec![lease(name)])
        };
        let acquired = self.store.acquire_with(&self.group, acquire, Call::default()).await;
        acquired.expect("an answer").outcomes.remove(0)
    }

    /// Releases a lease, optionally to a successor.
    pub async fn release(&self, tenure: &TenureId, name: &str, token: Token, to: Option<&str>) -> ReleaseOutcome {
        let (given, to) = ([(lease(name), token)], to.map(member));
        let done = self
            .store
            .release_leases(&self.group, tenure, &given, to.as_ref(), Call::default())
            .await;
        done.expect("an answer").outcomes.remove(0)
    }

    /// The holder of a lease, with its token, and whether it is alive.
    pub async fn holder(&self, name: &str) -> Option<(TenureId, Token, bool)> {
        let seen = self.store.lease_of(&self.group, &lease(name)).await.expect("a look-up");
        seen.map(|seen| {
            assert_eq!(&seen.holder, seen.tenure.member());
            (seen.tenure, seen.token, seen.alive)
        })
    }

    /// Sorted names of all leases of a holder, or of all, read in pages of `limit`.
    pub async fn all_leases(&self, holder: Option<&str>, limit: u32) -> Vec<String> {
        let holder = holder.map(member);
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let page = PageRequest { after, limit };
            let page = self.store.leases(&self.group, holder.as_ref(), &page).await;
            let page = page.expect("a page");
            assert!(page.items.len() <= limit as usize, "{} in {limit}", page.items.len());
            all.extend(page.items.into_iter().map(|lease| lease.lease.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        all.sort();
        all
    }

    /// Sorted keys of an owner, or all, read in pages of `limit`. Fails on a page above the limit.
    pub async fn listed(&self, owner: Option<&str>, limit: u32) -> Vec<String> {
        let owner = owner.map(member);
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let page = PageRequest { after, limit };
            let page = self
                .store
                .claims(&self.group, &self.devices, owner.as_ref(), &page)
                .await
                .expect("a page");
            assert!(
                page.items.len() <= limit as usize,
                "{} items in a page of {limit}",
                page.items.len()
            );
            all.extend(page.items.into_iter().map(|claim| claim.key.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        all.sort();
        all
    }

    /// All events so far.
    pub async fn events(&self) -> Vec<Event> {
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let query = EventQuery {
                after,
                limit: 1000,
                ..EventQuery::default()
            };
            let page = self.store.events(&self.group, &query).await.expect("events");
            if page.events.is_empty() {
                return all;
            }
            after = Some(page.last);
            all.extend(page.events);
        }
    }

    /// All events of a kind.
    pub async fn events_of(&self, kind: EventKind) -> Vec<Event> {
        self.events()
            .await
            .into_iter()
            .filter(|event| event.kind == kind)
            .collect()
    }
}
