//! What is asked of the store: members that live in it, and one kind of operation at a time, over and over.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::client::Tenure;
use tenure_core::Store;
use tenure_core::clock::{Clock, Mono};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::{Group, Key, LeaseName, MemberId, RegistryName, TenureId};
use tenure_core::lease::AcquireOutcome;
use tenure_core::membership::{Beat, EndBy, Join, Labels};
use tenure_core::registry::ClaimMode;
use tenure_core::store::{Call, DEFAULT_PAGE, MAX_PAGE, PageRequest};
use tenure_core::timing::Timing;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::measured::{Measured, Samples};

/// Beats in one call, as clients and daemons gather them.
pub(super) const BATCH: u32 = 200;
/// Retries of members that could not leave, and the pause before each.
const ROUNDS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    RoundTrip,
    Join,
    Beats,
    Beat,
    Claim,
    Acquire,
    LookUp,
    List,
    Leave,
}

/// In this order.
pub(super) const OPERATIONS: [Operation; 8] = {
    use Operation::{Acquire, Beat, Beats, Claim, Join, List, LookUp, RoundTrip};
    [Join, RoundTrip, Beats, Beat, Claim, Acquire, LookUp, List]
};

/// When it is enough.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bound {
    Count(u64),
    Time(Duration),
}

impl Operation {
    pub(super) fn bound(self, members: u32, time: Duration) -> Bound {
        match self {
            Self::Join => Bound::Count(members.into()),
            _ => Bound::Time(time),
        }
    }
}

/// Why a kind of operation was not measured to its end.
#[derive(Debug)]
pub(super) enum Halt {
    /// The group gives no leases for this long.
    Unsettled(Duration),
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The members, and where they live.
pub(super) struct Load {
    pub(super) store: Arc<dyn Store>,
    /// No new operation begins once it is cancelled.
    pub(super) stop: CancellationToken,
    clock: Arc<dyn Clock>,
    group: Group,
    ttl: Duration,
    /// The prefix of all names of this benchmark.
    name: String,
    tenures: Mutex<Arc<Vec<TenureId>>>,
}

impl Load {
    pub(super) fn new(tenure: &Tenure, group: &Group, ttl: Duration) -> Self {
        let clock = Arc::clone(tenure.clock());
        Self {
            store: Arc::clone(tenure.store()),
            stop: CancellationToken::new(),
            name: format!("bench-{:016x}", clock.entropy()),
            clock,
            group: group.clone(),
            ttl,
            tenures: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Vec<TenureId>>> {
        self.tenures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tenures(&self) -> Arc<Vec<TenureId>> {
        Arc::clone(&self.lock())
    }

    /// Sends heartbeats for all members while it is polled. A failure shows in the measured operations.
    pub(super) async fn keep_alive(&self) -> Infallible {
        let interval = Timing::for_ttl(self.ttl).interval;
        loop {
            self.clock.sleep(interval).await;
            for batch in self.tenures().chunks(BATCH as usize) {
                let beats: Vec<_> = batch.iter().cloned().map(Beat::of).collect();
                let _ = self.store.beat(&self.group, &beats).await;
            }
        }
    }

    /// Repeats an operation in many tasks. When it fails in one, the others end what they have begun.
    pub(super) async fn run(
        self: &Arc<Self>,
        operation: Operation,
        bound: Bound,
        tasks: u32,
    ) -> (Measured, Option<Halt>) {
        self.run_until(operation, bound, tasks, self.stop.child_token()).await
    }

    async fn run_until(
        self: &Arc<Self>,
        operation: Operation,
        bound: Bound,
        tasks: u32,
        stop: CancellationToken,
    ) -> (Measured, Option<Halt>) {
        let (begun, next) = (self.clock.mono(), Arc::new(AtomicU64::new(0)));
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let (load, next, stop) = (Arc::clone(self), Arc::clone(&next), stop.clone());
            running.spawn(async move { load.repeat(operation, bound, (begun, task), &next, &stop).await });
        }
        let (mut samples, mut halt) = (Samples::default(), None);
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok((taken, stopped)) => {
                    samples.merge(taken);
                    halt = halt.or(stopped);
                }
                Err(error) => {
                    stop.cancel();
                    let failed = Error::new(ErrorKind::Internal, "a task of the measurement was lost").because(error);
                    halt = Some(Halt::Failed(failed));
                }
            }
        }
        (samples.over(self.clock.mono().since(begun)), halt)
    }

    async fn repeat(
        &self,
        operation: Operation,
        bound: Bound,
        (begun, task): (Mono, u32),
        next: &AtomicU64,
        stop: &CancellationToken,
    ) -> (Samples, Option<Halt>) {
        let mut samples = Samples::default();
        while !stop.is_cancelled() {
            let (nth, sent) = (next.fetch_add(1, Ordering::Relaxed), self.clock.mono());
            let enough = match bound {
                Bound::Count(count) => nth >= count,
                Bound::Time(time) => sent.since(begun) >= time,
            };
            if enough {
                break;
            }
            match self.once(operation, nth, task).await {
                Ok(()) => samples.add(self.clock.mono().since(sent)),
                Err(halt) => {
                    stop.cancel();
                    return (samples, Some(halt));
                }
            }
        }
        (samples, None)
    }

    async fn once(&self, operation: Operation, nth: u64, task: u32) -> Result<(), Halt> {
        let (store, group) = (&self.store, &self.group);
        match operation {
            Operation::RoundTrip => store.now().await.map(drop)?,
            Operation::Join => self.join(nth).await?,
            Operation::Beats => {
                let tenures = self.tenures();
                let batches = tenures.len().div_ceil(BATCH as usize).max(1);
                self.beat(tenures.chunks(BATCH as usize).nth(at(nth, batches)).unwrap_or_default())
                    .await?;
            }
            Operation::Beat => self.beat(&[self.tenure(nth)?]).await?,
            Operation::Claim => self.claim(task).await?,
            Operation::Acquire => self.acquire(task).await?,
            Operation::LookUp => store.member(group, self.tenure(nth)?.member()).await.map(drop)?,
            Operation::List => store
                .members(group, &PageRequest::new(None, DEFAULT_PAGE)?)
                .await
                .map(drop)?,
            Operation::Leave => store
                .end(group, &self.tenure(nth)?, EndBy::Leave, Call::default())
                .await
                .map(drop)?,
        }
        Ok(())
    }

    /// One of the members.
    fn tenure(&self, nth: u64) -> Result<TenureId, Error> {
        let tenures = self.tenures();
        let found = tenures.get(at(nth, tenures.len().max(1)));
        found.cloned().ok_or_else(|| Error::invalid("no member has joined"))
    }

    async fn join(&self, nth: u64) -> Result<(), Error> {
        let join = Join {
            member: MemberId::new(format!("{}-{nth}", self.name))?,
            ttl: self.ttl,
            labels: Labels::default(),
        };
        let joined = self.store.join(&self.group, &join, Call::default()).await?;
        Arc::make_mut(&mut self.lock()).push(joined.tenure);
        Ok(())
    }

    async fn beat(&self, tenures: &[TenureId]) -> Result<(), Error> {
        let beats: Vec<_> = tenures.iter().cloned().map(Beat::of).collect();
        let beaten = self.store.beat(&self.group, &beats).await?;
        let mut answered = tenures.iter().zip(beaten.replies);
        answered.try_for_each(|(tenure, reply)| reply.renewed(tenure).map(drop))
    }

    async fn claim(&self, task: u32) -> Result<(), Error> {
        let (tenure, registry) = (self.tenure(task.into())?, RegistryName::new("bench")?);
        let key = Key::new(format!("{}-{task}", self.name))?;
        let (keys, call) = (std::slice::from_ref(&key), Call::default());
        self.store
            .claim(&self.group, &registry, &tenure, keys, ClaimMode::Take, call)
            .await?;
        self.store
            .release_claim(&self.group, &registry, &key, &tenure, call)
            .await
    }

    async fn acquire(&self, task: u32) -> Result<(), Halt> {
        let tenure = self.tenure(task.into())?;
        let lease = LeaseName::new(format!("{}-{task}", self.name))?;
        let (group, call) = (&self.group, Call::default());
        let acquired = self
            .store
            .acquire(group, &tenure, std::slice::from_ref(&lease), call)
            .await?;
        let token = match acquired.outcomes.first() {
            Some(AcquireOutcome::Unsettled { retry_in, .. }) => return Err(Halt::Unsettled(*retry_in)),
            outcome => outcome.and_then(AcquireOutcome::token),
        };
        let token =
            token.ok_or_else(|| Error::new(ErrorKind::Held, format!("another member holds lease \"{lease}\"")))?;
        self.store
            .release_leases(group, &tenure, &[(lease, token)], None, call)
            .await?;
        Ok(())
    }

    /// Lets everybody leave, also those whose join was applied without an answer.
    pub(super) async fn clean_up(self: &Arc<Self>, tasks: u32, has_failed: bool) -> anyhow::Result<()> {
        let mut failed = None;
        for round in 0..ROUNDS {
            // A call that timed out may still arrive shortly afterwards.
            if has_failed || round > 0 {
                self.clock.sleep(PAUSE).await;
            }
            match self.leave(tasks).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.map_or_else(|| anyhow::anyhow!("there are still some"), Into::into))
    }

    /// Ends the remaining members, and answers whether none is left.
    async fn leave(self: &Arc<Self>, tasks: u32) -> Result<bool, Error> {
        let ours = self.ours().await?;
        let bound = Bound::Count(ours.len() as u64);
        *self.lock() = Arc::new(ours);
        let never = CancellationToken::new();
        match self.run_until(Operation::Leave, bound, tasks, never).await {
            (_, Some(Halt::Failed(error))) => Err(error),
            _ => Ok(self.ours().await?.is_empty()),
        }
    }

    /// Those of the group's members that were made here.
    async fn ours(&self) -> Result<Vec<TenureId>, Error> {
        let (mut ours, mut page) = (Vec::new(), PageRequest::new(None, MAX_PAGE)?);
        loop {
            let found = self.store.members(&self.group, &page).await?;
            let members = found.items.into_iter();
            ours.extend(
                members
                    .filter(|one| one.member.as_str().starts_with(&self.name))
                    .map(|one| one.tenure),
            );
            match found.next {
                Some(next) => page.after = Some(next),
                None => return Ok(ours),
            }
        }
    }
}

/// The place of the `nth` in a list that is begun again and again.
fn at(nth: u64, length: usize) -> usize {
    usize::try_from(nth % length as u64).unwrap_or_default()
}
