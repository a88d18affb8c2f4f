//! A store wrapper with injected faults: lost replies, errors and stalls per verb.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::Clock;
use tenure_core::call::{self, Reply, StoreRequest};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::Group;
use tenure_core::membership::BeatReply;
use tenure_core::store::Store;
use tenure_core::store::middleware::Middleware;
use tokio::sync::Notify;

/// The kinds of store calls, as coarse as the tests need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Join,
    Beat,
    End,
    Look,
    Claim,
    ReleaseClaim,
    Acquire,
    ReleaseLeases,
    Targets,
    Attach,
    Detach,
    Sessions,
    Events,
    Tick,
    EndLapsed,
    Release,
    Reap,
    Mirror,
    Now,
    Groups,
    Turns,
    Pulse,
}

impl Verb {
    /// The kind of a call; `None` if no faults apply to it.
    fn of(verb: call::Verb) -> Option<Self> {
        use call::Verb as V;
        Some(match verb {
            V::Join => Self::Join,
            V::Beat => Self::Beat,
            V::End | V::SetLabels => Self::End,
            V::Claim => Self::Claim,
            V::ReleaseClaim => Self::ReleaseClaim,
            V::Acquire => Self::Acquire,
            V::ReleaseLeases | V::Withdraw | V::RevokeLease => Self::ReleaseLeases,
            V::Member | V::Members | V::ClaimOf | V::Claims => Self::Look,
            V::LeaseOf | V::Leases | V::HeldLeases | V::Target | V::Targets => Self::Look,
            V::PutTarget | V::RemoveTarget => Self::Targets,
            V::Attach => Self::Attach,
            V::Detach => Self::Detach,
            V::PatchSession | V::DeleteSession => Self::Sessions,
            V::Session | V::SessionByAlias | V::Sessions | V::Orphans | V::SessionStats => Self::Look,
            V::Events => Self::Events,
            // A probe ticks a group without members.
            V::Tick | V::Probe => Self::Tick,
            V::EndLapsed | V::Spare => Self::EndLapsed,
            V::Release => Self::Release,
            V::Reap | V::Reconcile => Self::Reap,
            V::Now => Self::Now,
            V::BeatPulse => Self::Pulse,
            V::Groups => Self::Groups,
            V::WaitForGrants => Self::Turns,
            V::PutProviders | V::EnsureTenures | V::Heartbeat | V::Available | V::Availability | V::Look => {
                Self::Mirror
            }
            V::Rows | V::RosterStats | V::MirrorStatus | V::PendingOffline | V::OfflineDone => Self::Mirror,
            V::PutRosterSettings | V::RosterSettings | V::Retime | V::TakeTurn | V::EndTurn => Self::Mirror,
            V::MarkSeeded | V::VerifyRoster => Self::Mirror,
            V::Due
            | V::FindGroups
            | V::ForgetGroup
            | V::Settle
            | V::WaitForEvents
            | V::Doomed
            | V::Status
            | V::Sweep => {
                return None;
            }
        })
    }

    /// Whether the call is also sent to the replica.
    fn is_replicated(self) -> bool {
        use Verb::{Acquire, Attach, Beat, Claim, Detach, End, Join, ReleaseClaim, ReleaseLeases, Tick};
        matches!(
            self,
            Join | Beat | End | Claim | ReleaseClaim | Acquire | ReleaseLeases | Attach | Detach | Tick
        )
    }
}

/// The fault of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Fails before it is applied, with this kind.
    Fail(ErrorKind),
    /// Applied, but the reply is lost.
    LoseReply,
    /// Not applied; the outcome is unknown to the caller.
    LoseRequest,
    /// Never answers.
    Hang {
        /// Whether it is applied first.
        applied: bool,
    },
    /// Waits before it is applied.
    Delay(Duration),
    /// Waits for [`Faulty::open`] before it is applied.
    Gate,
    /// Panics.
    Panic,
    /// Answers that each beat was refused.
    RefuseBeats,
}

/// The wrapper.
pub(crate) struct Faulty {
    inner: Mutex<Arc<dyn Store>>,
    clock: Arc<dyn Clock>,
    plan: Mutex<Plan>,
    gate: Notify,
    /// Receives a copy of every write.
    replica: Mutex<Option<Arc<dyn Store>>>,
}

#[derive(Default)]
struct Plan {
    /// The faults of the next calls, in order.
    next: BTreeMap<Verb, Vec<Fault>>,
    /// The fault of every call once `next` is used up.
    always: BTreeMap<Verb, Fault>,
    /// The fault of a percentage of the calls.
    sometimes: BTreeMap<Verb, (u64, Fault)>,
    /// The next call times out immediately and is applied this much later.
    late: BTreeMap<Verb, Duration>,
    calls: BTreeMap<Verb, u64>,
    beats: Vec<usize>,
    broken_group: Option<Group>,
    /// How long each call about a group takes, and the node that has the group.
    slow_groups: BTreeMap<Group, (Duration, String)>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(inner),
            clock,
            plan: Mutex::default(),
            gate: Notify::new(),
            replica: Mutex::default(),
        })
    }

    /// Adds a fault for the next call of this verb.
    pub(crate) fn next(&self, verb: Verb, fault: Fault) {
        self.plan().next.entry(verb).or_default().push(fault);
    }

    /// Sets the fault of every call of this verb; `None` clears it.
    pub(crate) fn always(&self, verb: Verb, fault: Option<Fault>) {
        match fault {
            Some(fault) => drop(self.plan().always.insert(verb, fault)),
            None => drop(self.plan().always.remove(&verb)),
        }
    }

    /// Sets the fault of a percentage of the calls of this verb.
    pub(crate) fn sometimes(&self, verb: Verb, percent: u64, fault: Fault) {
        self.plan().sometimes.insert(verb, (percent, fault));
    }

    /// Clears all faults.
    pub(crate) fn heal(&self) {
        let mut plan = self.plan();
        plan.next.clear();
        plan.always.clear();
        plan.sometimes.clear();
    }

    /// Makes the next call of this verb time out immediately and take effect later.
    pub(crate) fn late(&self, verb: Verb, late: Duration) {
        self.plan().late.insert(verb, late);
    }

    /// Copies further writes to a replica, until `None`.
    pub(crate) fn replicate(&self, replica: Option<Arc<dyn Store>>) {
        *self.replica.lock().unwrap_or_else(PoisonError::into_inner) = replica;
    }

    /// Cuts off all calls, or reconnects.
    pub(crate) fn cut(&self, cut: bool) {
        use Verb::*;
        for verb in [
            Join,
            Beat,
            End,
            Look,
            Claim,
            ReleaseClaim,
            Acquire,
            ReleaseLeases,
            Targets,
            Attach,
            Detach,
            Sessions,
            Reap,
            Mirror,
            Events,
            Tick,
            EndLapsed,
            Release,
            Now,
            Groups,
            Pulse,
        ] {
            self.always(verb, cut.then_some(Fault::Hang { applied: false }));
        }
    }

    /// Makes sweep steps of one group fail.
    pub(crate) fn break_group(&self, group: Option<Group>) {
        self.plan().broken_group = group;
    }

    /// Makes each call about this group slow, on a node of its own.
    pub(crate) fn slow_group(&self, group: &Group, takes: Duration, node: &str) {
        let slow = (takes, node.to_owned());
        self.plan().slow_groups.insert(group.clone(), slow);
    }

    /// Releases one gated call.
    pub(crate) fn open(&self) {
        self.gate.notify_one();
    }

    pub(crate) fn calls(&self, verb: Verb) -> u64 {
        self.plan().calls.get(&verb).copied().unwrap_or(0)
    }

    /// The sizes of the beat batches so far.
    pub(crate) fn beat_batches(&self) -> Vec<usize> {
        self.plan().beats.clone()
    }

    /// Replaces the store inside by another: its data is lost.
    pub(crate) fn swap(&self, inner: Arc<dyn Store>) {
        *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = inner;
    }

    fn twin(&self) -> Option<Arc<dyn Store>> {
        self.replica.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_late(&self, verb: Verb) -> Option<tenure_core::clock::Sleep> {
        let late = self.plan().late.remove(&verb)?;
        *self.plan().calls.entry(verb).or_default() += 1;
        Some(self.clock.sleep(late))
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, verb: Verb) -> Option<Fault> {
        let mut plan = self.plan();
        *plan.calls.entry(verb).or_default() += 1;
        let next = plan
            .next
            .get_mut(&verb)
            .filter(|faults| !faults.is_empty())
            .map(|faults| faults.remove(0));
        let sometimes = plan.sometimes.get(&verb);
        let sometimes = sometimes.filter(|(percent, _)| self.clock.entropy() % 100 < *percent);
        let sometimes = sometimes.map(|(_, fault)| fault.clone());
        next.or_else(|| plan.always.get(&verb).cloned()).or(sometimes)
    }

    async fn run(&self, verb: Verb, call: impl Future<Output = Result<Reply>> + Send) -> Result<Reply> {
        match self.take(verb) {
            None => call.await,
            Some(Fault::Fail(kind)) => Err(Error::new(kind, "made to fail")),
            Some(Fault::LoseReply) => {
                call.await?;
                Err(lost())
            }
            Some(Fault::LoseRequest) => Err(lost()),
            Some(Fault::Hang { applied }) => {
                if applied {
                    call.await?;
                }
                std::future::pending().await
            }
            Some(Fault::Delay(wait)) => {
                self.clock.sleep(wait).await;
                call.await
            }
            Some(Fault::Gate) => {
                self.gate.notified().await;
                call.await
            }
            Some(Fault::Panic) => panic!("made to panic"),
            Some(Fault::RefuseBeats) => {
                let mut reply = call.await?;
                if let Reply::Beat(beaten) = &mut reply {
                    beaten.replies.fill(BeatReply::Refused);
                }
                Ok(reply)
            }
        }
    }
}

impl Middleware for Faulty {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn handle(&self, ask: StoreRequest) -> Result<Reply> {
        let slow = ask
            .group
            .as_ref()
            .and_then(|group| self.plan().slow_groups.get(group).cloned());
        if let Some((takes, _)) = slow {
            self.clock.sleep(takes).await;
        }
        let is_step = matches!(
            ask.op.verb(),
            call::Verb::Tick | call::Verb::EndLapsed | call::Verb::Release | call::Verb::Doomed
        );
        if is_step && ask.group.is_some() && self.plan().broken_group == ask.group {
            return Err(Error::new(ErrorKind::Internal, "this group is broken"));
        }
        let store = self.store();
        let Some(verb) = Verb::of(ask.op.verb()) else {
            return store.call(ask).await;
        };
        if verb == Verb::Beat {
            self.plan().beats.push(ask.op.items());
        }
        if let Some(sleep) = self.is_late(verb) {
            tokio::spawn(async move {
                sleep.await;
                drop(store.call(ask).await);
            });
            return Err(lost());
        }
        let twin = self.twin().filter(|_| verb.is_replicated());
        let copy = twin.map(|twin| (twin, ask.clone()));
        let both = async {
            let done = store.call(ask).await;
            if let Some((twin, ask)) = copy {
                twin.call(ask).await.ok();
            }
            done
        };
        self.run(verb, both).await
    }

    fn node_of(&self, group: &Group) -> Option<String> {
        self.plan().slow_groups.get(group).map(|(_, node)| node.clone())
    }

    fn place(&self) -> String {
        "faulty:".to_owned()
    }
}

fn lost() -> Error {
    Error::unavailable("the reply was lost", Outcome::Unknown)
}
