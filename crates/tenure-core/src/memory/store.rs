//! The model behind a lock and a clock, as a [`Store`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::group::GroupModel;
use super::log::Log;
use crate::clock::{Clock, Mono};
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::event::{EventId, EventLog, EventPage, EventQuery};
use crate::id::{Alias, Group, Key, LeaseName, MemberId, RegistryName, SessionId, TenureId};
use crate::lease::{Acquired, GivenUp, HeldLeases, Lease, LeaseStore, Token, check_leases};
use crate::membership::{Beat, Beaten, EndBy, EndReason, Join, Joined, Member, MembershipStore, Revision, check_beats};
use crate::recall::Recall;
use crate::registry::{Claim, ClaimMode, Claimed, RegistryStore, check_keys};
use crate::roster::RosterMirror;
use crate::session::{
    Attach, Attached, Data, DeleteOutcome, Detach, DetachOutcome, Orphans, PatchOutcome, Session, SessionState,
    SessionStats, SessionStore, check_attaches, check_count, check_data,
};
use crate::settling::GapCause;
use crate::store::{Call, Finding, Health, Page, PageRequest, Severity, Store, StoreOptions, check_limit};
use crate::sweep::{
    BATCH, Doomed, EndedBatch, GroupStatus, ReapedBatch, ReconcileRequest, Reconciled, ReleaseRequest, ReleasedBatch,
    SettleReport, Sweep, SweepSteps,
};
use crate::target::{Target, TargetSpec, TargetStore};
use crate::time::StoreTime;
use crate::timing::check_ttl;

/// Everything in memory, gone with the process. `memory:`.
#[derive(Debug)]
pub struct MemoryStore {
    options: StoreOptions,
    clock: Arc<dyn Clock>,
    /// Store time = `base` + local time since `origin`: like any store's clock, it is nobody else's business.
    base: StoreTime,
    origin: Mono,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    groups: BTreeMap<Group, GroupModel>,
    /// The last number of each group that was forgotten. A tick does not bring it back.
    forgotten: BTreeMap<Group, u64>,
    closed: bool,
    recall: Recall,
}

impl MemoryStore {
    /// An empty store whose time starts at the clock's wall time and runs with its trust time.
    #[must_use]
    pub fn new(options: StoreOptions, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (base, origin) = (StoreTime::from_micros(clock.wall_micros()), clock.mono());
        let changed = watch::Sender::new(());
        Arc::new(Self {
            options,
            clock,
            base,
            origin,
            state: Mutex::default(),
            changed,
        })
    }

    /// An empty store that may have had data, as every store over a network has to assume of itself when its marker is
    /// gone: the groups that begin within one max ttl of its first step are unsettled until then.
    #[must_use]
    pub fn after_loss(options: StoreOptions, clock: Arc<dyn Clock>) -> Arc<Self> {
        let store = Self::new(options, clock);
        store.state.lock().unwrap_or_else(PoisonError::into_inner).recall = Recall::Unborn;
        store
    }

    fn time(&self) -> StoreTime {
        self.base + self.clock.mono().since(self.origin)
    }

    /// Runs a step on a group that is made if it is new, and wakes those who wait for events.
    pub(super) fn step<T>(
        &self,
        group: &Group,
        step: impl FnOnce(&mut GroupModel, StoreTime) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.open()?;
        let now = self.time();
        let known = state.groups.contains_key(group);
        let recall = state.recall;
        let forgotten = state.forgotten.remove(group);
        let wait = match known || forgotten.is_some() {
            true => None,
            false => state.recall.wait(now, self.options.max_ttl),
        };
        let model = state
            .groups
            .entry(group.clone())
            .or_insert_with(|| GroupModel::new(self.options.clone(), now));
        let before = model.log.last;
        model.seq = model.seq.max(forgotten.unwrap_or(0));
        if let Some(wait) = wait {
            model.wait(wait, now);
        }
        let done = step(model, now);
        let news = model.log.last != before;
        if !known && done.as_ref().is_err_and(|error| error.kind() == ErrorKind::TooLate) {
            // A late call changes nothing, and so neither makes the group nor fixes the birth of the store.
            state.groups.remove(group);
            state.recall = recall;
            state.forgotten.extend(forgotten.map(|seq| (group.clone(), seq)));
        }
        drop(state);
        if news {
            self.changed.send_replace(());
        }
        done
    }

    /// Reads a group; one that does not exist reads as an empty one that begins now.
    pub(super) fn read<T>(&self, group: &Group, read: impl FnOnce(&GroupModel, StoreTime) -> T) -> Result<T> {
        let state = self.open()?;
        let now = self.time();
        Ok(match state.groups.get(group) {
            Some(model) => read(model, now),
            None => {
                let mut model = GroupModel::new(self.options.clone(), now);
                model.log = Log::beginning_at(EventId(0));
                read(&model, now)
            }
        })
    }

    /// Whether a group is there.
    pub(super) fn knows(&self, group: &Group) -> Result<bool> {
        Ok(self.open()?.groups.contains_key(group))
    }

    fn open(&self) -> Result<std::sync::MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(Error::unavailable("the store is closed", Outcome::Unchanged));
        }
        Ok(state)
    }
}

#[async_trait]
impl MembershipStore for MemoryStore {
    async fn join(&self, group: &Group, join: &Join, call: Call) -> Result<Joined> {
        check_ttl(join.ttl, self.options.max_ttl)?;
        self.step(group, |model, now| model.join(join, call, now))
    }

    async fn beat(&self, group: &Group, beats: &[Beat]) -> Result<Beaten> {
        check_beats(beats, self.options.max_ttl)?;
        self.step(group, |model, now| {
            Ok(Beaten {
                replies: model.beat(beats, now)?,
                as_of: now,
            })
        })
    }

    async fn end(&self, group: &Group, tenure: &TenureId, by: EndBy, call: Call) -> Result<EndReason> {
        self.step(group, |model, now| model.end(tenure, by, call, now))
    }

    async fn member(&self, group: &Group, member: &MemberId) -> Result<Option<Member>> {
        self.read(group, |model, now| model.member(member, now))
    }

    async fn members(&self, group: &Group, page: &PageRequest) -> Result<Page<Member>> {
        check_limit(page.limit)?;
        self.read(group, |model, now| model.members_page(page, now))?
    }
}

#[async_trait]
impl RegistryStore for MemoryStore {
    async fn claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        tenure: &TenureId,
        keys: &[Key],
        mode: ClaimMode,
        call: Call,
    ) -> Result<Claimed> {
        check_keys(keys)?;
        let mut all = Claimed {
            outcomes: Vec::with_capacity(keys.len()),
            revision: Revision::NONE,
            before: Revision::NONE,
        };
        for (nth, part) in keys.chunks(BATCH as usize).enumerate() {
            let claimed = self.step(group, |model, now| model.claim(registry, tenure, part, mode, call, now))?;
            if nth == 0 {
                all.before = claimed.before;
            }
            all.outcomes.extend(claimed.outcomes);
            all.revision = claimed.revision;
        }
        Ok(all)
    }

    async fn release_claim(
        &self,
        group: &Group,
        registry: &RegistryName,
        key: &Key,
        tenure: &TenureId,
        call: Call,
    ) -> Result<()> {
        self.step(group, |model, now| {
            model.release_claim(registry, key, tenure, call, now)
        })
    }

    async fn claim_of(&self, group: &Group, registry: &RegistryName, key: &Key) -> Result<Option<Claim>> {
        self.read(group, |model, now| model.claim_of(registry, key, now))
    }

    async fn claims(
        &self,
        group: &Group,
        registry: &RegistryName,
        owner: Option<&MemberId>,
        page: &PageRequest,
    ) -> Result<Page<Claim>> {
        check_limit(page.limit)?;
        self.read(group, |model, now| model.claims_page(registry, owner, page, now))?
    }
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn acquire(&self, group: &Group, tenure: &TenureId, leases: &[LeaseName], call: Call) -> Result<Acquired> {
        check_leases(leases.len())?;
        // Also without a lease: the tenure is looked at.
        let mut parts = leases.chunks(BATCH as usize);
        let first = parts.next().unwrap_or_default();
        let mut all = self.step(group, |model, now| model.acquire(tenure, first, call, now))?;
        for part in parts {
            let acquired = self.step(group, |model, now| model.acquire(tenure, part, call, now))?;
            let (outcomes, before) = (std::mem::take(&mut all.outcomes), all.before);
            all = acquired;
            all.before = before;
            all.outcomes.splice(0..0, outcomes);
        }
        Ok(all)
    }

    async fn release_leases(
        &self,
        group: &Group,
        tenure: &TenureId,
        leases: &[(LeaseName, Token)],
        to: Option<&MemberId>,
        call: Call,
    ) -> Result<GivenUp> {
        check_leases(leases.len())?;
        let mut parts = leases.chunks(BATCH as usize);
        let first = parts.next().unwrap_or_default();
        let mut all = self.step(group, |model, now| model.release_leases(tenure, first, to, call, now))?;
        for part in parts {
            let given = self.step(group, |model, now| model.release_leases(tenure, part, to, call, now))?;
            let (outcomes, before) = (std::mem::take(&mut all.outcomes), all.before);
            all = given;
            all.before = before;
            all.outcomes.splice(0..0, outcomes);
        }
        Ok(all)
    }

    async fn lease_of(&self, group: &Group, lease: &LeaseName) -> Result<Option<Lease>> {
        self.read(group, |model, now| model.lease_of(lease, now))
    }

    async fn leases(&self, group: &Group, holder: Option<&MemberId>, page: &PageRequest) -> Result<Page<Lease>> {
        check_limit(page.limit)?;
        self.read(group, |model, now| model.leases_page(holder, page, now))?
    }

    async fn held_leases(&self, group: &Group, tenure: &TenureId, page: &PageRequest) -> Result<HeldLeases> {
        check_limit(page.limit)?;
        self.read(group, |model, now| {
            Ok(HeldLeases {
                page: model.held_page(tenure, page, now)?,
                revision: model.revision_of(tenure),
            })
        })?
    }
}

#[async_trait]
impl TargetStore for MemoryStore {
    async fn put_target(&self, group: &Group, target: &LeaseName, spec: TargetSpec, call: Call) -> Result<bool> {
        let spec = spec.check()?;
        self.step(group, |model, now| model.put_target(target, spec, call, now))
    }

    async fn remove_target(&self, group: &Group, target: &LeaseName, call: Call) -> Result<bool> {
        self.step(group, |model, now| model.remove_target(target, call, now))
    }

    async fn target(&self, group: &Group, target: &LeaseName) -> Result<Option<Target>> {
        self.read(group, |model, _| model.target(target))
    }

    async fn targets(&self, group: &Group, page: &PageRequest) -> Result<Page<Target>> {
        check_limit(page.limit)?;
        self.read(group, |model, _| model.targets_page(page))?
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn attach(&self, group: &Group, tenure: &TenureId, attaches: &[Attach], call: Call) -> Result<Attached> {
        check_attaches(attaches)?;
        let mut parts = attaches.chunks(BATCH as usize);
        let first = parts.next().unwrap_or_default();
        let mut all = self.step(group, |model, now| model.attach(tenure, first, call, now))?;
        for part in parts {
            let attached = self.step(group, |model, now| model.attach(tenure, part, call, now))?;
            all.outcomes.extend(attached.outcomes);
            all.revision = attached.revision;
        }
        Ok(all)
    }

    async fn detach(
        &self,
        group: &Group,
        tenure: &TenureId,
        detaches: &[Detach],
        call: Call,
    ) -> Result<Vec<DetachOutcome>> {
        check_count(detaches.len(), "detaches")?;
        let mut parts = detaches.chunks(BATCH as usize);
        let first = parts.next().unwrap_or_default();
        let mut all = self.step(group, |model, now| model.detach(tenure, first, call, now))?;
        for part in parts {
            all.extend(self.step(group, |model, now| model.detach(tenure, part, call, now))?);
        }
        Ok(all)
    }

    async fn patch_session(
        &self,
        group: &Group,
        session: &SessionId,
        tenure: Option<&TenureId>,
        data: &Data,
        call: Call,
    ) -> Result<PatchOutcome> {
        check_data(data)?;
        self.step(group, |model, now| {
            model.patch_session(session, tenure, data, call, now)
        })
    }

    async fn delete_session(&self, group: &Group, session: &SessionId, call: Call) -> Result<DeleteOutcome> {
        self.step(group, |model, now| model.delete_session(session, call, now))
    }

    async fn session(&self, group: &Group, session: &SessionId) -> Result<Option<Session>> {
        self.read(group, |model, now| model.session(session, now))
    }

    async fn session_by_alias(&self, group: &Group, alias: &Alias) -> Result<Option<Session>> {
        self.read(group, |model, now| {
            model.aliases.get(alias).and_then(|session| model.session(session, now))
        })
    }

    async fn sessions(&self, group: &Group, state: Option<SessionState>, page: &PageRequest) -> Result<Page<Session>> {
        check_limit(page.limit)?;
        self.read(group, |model, now| model.sessions_page(state, page, now))?
    }

    async fn orphans(&self, group: &Group, overdue: Duration, limit: u32) -> Result<Orphans> {
        check_limit(limit)?;
        self.read(group, |model, now| model.orphans(overdue, limit, now))
    }

    async fn session_stats(&self, group: &Group) -> Result<SessionStats> {
        self.read(group, GroupModel::session_stats)
    }
}

#[async_trait]
impl EventLog for MemoryStore {
    async fn events(&self, group: &Group, query: &EventQuery) -> Result<EventPage> {
        query.check()?;
        self.read(group, |model, _| model.log.read(query))
    }

    async fn wait_for_events(&self, group: &Group, after: EventId, patience: Duration) -> Result<()> {
        let mut news = self.changed.subscribe();
        let over = self.clock.sleep(patience);
        let waiting = async {
            while self.read(group, |model, _| model.log.last <= after)? && news.changed().await.is_ok() {}
            Ok(())
        };
        tokio::select! { biased; done = waiting => done, () = over => Ok(()) }
    }
}

#[async_trait]
impl SweepSteps for MemoryStore {
    async fn tick(&self, group: &Group) -> Result<GroupStatus> {
        if self.open()?.forgotten.contains_key(group) {
            return self.read(group, GroupModel::status);
        }
        self.step(group, GroupModel::tick)
    }

    async fn forget_group(&self, group: &Group, call: Call) -> Result<bool> {
        if !self.knows(group)? {
            return Ok(false);
        }
        let forget = self.step(group, |model, now| model.may_be_forgotten(call, now))?;
        if forget {
            let mut state = self.open()?;
            let last = state.groups.remove(group).map(|model| model.seq);
            state.forgotten.extend(last.map(|seq| (group.clone(), seq)));
        }
        Ok(forget)
    }

    async fn end_lapsed(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        self.step(group, |model, now| model.end_lapsed(limit, call, now))
    }

    async fn spare(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        self.step(group, |model, now| model.spare(limit, call, now))
    }

    async fn release(&self, group: &Group, request: &ReleaseRequest, call: Call) -> Result<ReleasedBatch> {
        self.step(group, |model, now| model.release(request, call, now))
    }

    async fn reap(&self, group: &Group, request: &ReleaseRequest, call: Call) -> Result<ReapedBatch> {
        self.step(group, |model, now| model.reap(request, call, now))
    }

    async fn reconcile(&self, group: &Group, request: &ReconcileRequest, call: Call) -> Result<Reconciled> {
        check_limit(request.limit)?;
        self.step(group, |model, now| model.reconcile(request, call, now))
    }

    async fn doomed(&self, group: &Group, limit: u32) -> Result<Vec<Doomed>> {
        self.read(group, |model, now| model.doomed(limit, now))
    }
}

#[async_trait]
impl Sweep for MemoryStore {
    fn steps(&self) -> Option<&dyn SweepSteps> {
        Some(self)
    }

    async fn status(&self, group: &Group) -> Result<GroupStatus> {
        self.read(group, GroupModel::status)
    }

    async fn settle(&self, group: Option<&Group>, cause: Option<GapCause>, call: Call) -> Result<SettleReport> {
        let groups = match group {
            Some(group) => vec![group.clone()],
            None => {
                let mut state = self.open()?;
                if call.not_after.is_some_and(|limit| self.time() > limit) {
                    return Err(Error::too_late());
                }
                // First those to come, so that none is made in between.
                state.recall.settle(cause);
                state.groups.keys().cloned().collect()
            }
        };
        let mut report = SettleReport::default();
        for group in groups {
            let settling = self.step(&group, |model, now| model.settle(cause, call, now))?;
            report.add(group, settling);
        }
        Ok(report)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn place(&self) -> String {
        "memory:".to_owned()
    }

    fn health(&self) -> Health {
        match self.open() {
            Ok(_) => Health::Up,
            Err(error) => Health::Down {
                reason: error.to_string(),
            },
        }
    }

    fn mirror(&self) -> Option<&dyn RosterMirror> {
        Some(self)
    }

    async fn now(&self) -> Result<StoreTime> {
        self.open().map(|_| self.time())
    }

    async fn groups(&self) -> Result<Vec<Group>> {
        Ok(self.open()?.groups.keys().cloned().collect())
    }

    async fn newest_events(&self, groups: &[Group]) -> Result<Vec<(Group, EventId)>> {
        let state = self.open()?;
        let newest = |group: &Group| Some((group.clone(), state.groups.get(group)?.log.last));
        Ok(groups.iter().filter_map(newest).collect())
    }

    async fn examine(&self) -> Vec<Finding> {
        vec![Finding::new(
            "persistence",
            Severity::Warning,
            "memory: keeps nothing across restarts; use sqlite: for that",
        )]
    }

    async fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.send_replace(());
    }
}
