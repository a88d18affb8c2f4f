//! A fleet: nodes that share targets, each target worked on by exactly one of them.
//!
//! Every node runs the same program: it joins the group, names the targets (or finds them in the store), and gives a task
//! that works on one target. The fleet asks for leases, starts the task for each lease that is granted, and stops it
//! when the target goes elsewhere. Which node gets which target is a preference that all nodes compute alike
//! ([`tenure_core::placement`], [`tenure_core::fleet`]); the leases decide, so no target is ever worked on twice, whatever
//! the nodes believe.
//!
//! ```
//! use std::time::Duration;
//! use tenure::fleet::{Assignment, Fleet, TargetList};
//! use tenure::{JoinOptions, Tenure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure::Result<()> {
//! let tenure = Tenure::connect("memory:").await?;
//! let membership = tenure.group("pollers")?.join(JoinOptions::named("node-1")?).await?;
//!
//! let fleet = Fleet::builder(&membership)
//!     .targets(TargetList::new(["endpoint-1", "endpoint-2"])?)
//!     .start(|target: Assignment| async move {
//!         // Before every cycle: is it still ours? Waits through doubts; `false` when it is time to stop.
//!         while target.next_cycle().await {
//!             poll(target.target().as_str(), target.token().get()).await;
//!             target.rest(Duration::from_secs(1)).await;
//!         }
//!     })?;
//! # let mut status = fleet.watch();
//! # status.wait_for(|status| status.held == 2).await.expect("the fleet runs");
//!
//! // Work ends first, then the leases go to the other nodes, then this node leaves.
//! let ended = fleet.shut_down().await;
//! assert!(ended.stubborn.is_empty());
//! membership.leave().await?;
//! # Ok(())
//! # }
//! # async fn poll(_: &str, _: u64) {}
//! ```
//!
//! # What a task can rely on
//!
//! - It runs only while the lease is certainly ours, under the token that it is shown. While that is in doubt it is not
//!   polled: it stands still at its `await`, also in the middle of a cycle, and also after the process was suspended. So a
//!   store that is out of reach pauses the work before anybody else can take over; it goes on once the lease is confirmed.
//! - It is dropped at its `await` the moment the lease is lost: by an answer of the store, or by a whole ttl without one.
//! - [`Assignment::next_cycle`] is where to ask before each cycle. What the task has started elsewhere (a thread, another
//!   task) does not stand still by itself; it has to ask [`Assignment::verdict`]. No I/O.
//! - When the target is paused, removed or handed over, [`Assignment::stopping`] is cancelled. The task has
//!   [`FleetSettings::stop_within`] to end, then it is dropped. Its lease is given up after that and not before. Work that
//!   cannot be dropped (it blocks its thread, or has cloned the assignment into another task) keeps its lease until it
//!   ends; [`FleetStatus::stubborn`] names it.
//! - Losing a lease ends that target's task and nothing else. The node goes on competing, for ever.
//! - A task that returns or panics by itself is started again after a rest, for as long as the target is ours.
//!
//! The tasks run on the runtime that [`FleetBuilder::start`] was called on, so that they cannot starve the beats.
//!
//! # How targets move
//!
//! | what happens | what becomes of the targets |
//! |---|---|
//! | a node dies | its leases can be had at its end time; the others notice it by the event, or by looking then, and take them |
//! | a node drains or shuts down | its work ends, each lease is handed to the next in the target's order, which takes it at once |
//! | a node joins | after the membership was stable for a while, others hand it what prefers it: one lease first, then the rest |
//! | a node comes and goes | nothing more: see [`tenure_core::fleet::Settings::stability`] |
//! | a target is paused or removed | its work ends and its lease is released |

mod assignment;
mod chore;
mod errand;
mod live;
mod running;
mod settings;
mod sight;
mod source;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure_core::error::Result;
use tenure_core::id::{LeaseName, RegistryName};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::membership::{Membership, Shared};
use crate::nodes::DRAINING;
use crate::registry::Registry;
use assignment::Returned;
use running::{Fixed, Running};
use work::{Starter, Task};

pub use assignment::{Assignment, Condition};
pub use live::LiveSessions;
pub use settings::{FleetSettings, Nodes};
pub use source::{MAX_TARGETS, StoredTargets, TargetList, TargetSource};
pub use tenure_core::fleet::Settings as PlacingSettings;
pub use tenure_core::target::TargetSpec;

/// What the fleet is doing on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetStatus {
    /// Whether this node is on its way out: it asks for nothing more.
    pub draining: bool,
    /// How many nodes were seen at the last look, this one included.
    pub nodes: usize,
    /// How many targets there are, paused ones included.
    pub targets: usize,
    /// How many leases this node holds, those included that it is giving up. Once the fleet has ended: those under work
    /// that has not stopped yet; the rest is given up in the background.
    pub held: usize,
    /// Targets whose work was told to stop and does not. Their leases are kept.
    pub stubborn: Vec<LeaseName>,
    /// How often a task ended without being told to.
    pub restarts: u64,
    /// Panics of the fleet's own loop; each is a bug, and survived.
    pub panics: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// How the fleet ended on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShutDown {
    /// Targets whose work did not stop in time. Their leases are still held. While there are any, do not leave the group:
    /// leaving frees them at once, under work that goes on. End the process instead; its tenure then lapses after it.
    pub stubborn: Vec<LeaseName>,
}

/// Work that goes on after the end, with what tells that its lease is no longer ours.
type Left = BTreeMap<LeaseName, CancellationToken>;

/// What the handle wants of the loop.
#[derive(Debug, Clone, Copy, Default)]
struct Wish {
    draining: bool,
    ending: bool,
}

/// This node's part of a fleet. [`Fleet::shut_down`] is how it ends well; dropping it does the same in the background.
pub struct Fleet {
    wish: watch::Sender<Wish>,
    status: watch::Receiver<FleetStatus>,
    ended: watch::Receiver<Option<ShutDown>>,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fleet").field(&*self.status.borrow()).finish()
    }
}

/// How to run a fleet on this node.
pub struct FleetBuilder {
    shared: Arc<Shared>,
    settings: FleetSettings,
    source: Option<Arc<dyn TargetSource>>,
    runtime: Option<Handle>,
}

impl fmt::Debug for FleetBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FleetBuilder").field(&self.settings).finish()
    }
}

impl FleetBuilder {
    /// Where the targets come from. Without this: from the store ([`StoredTargets`]).
    #[must_use]
    pub fn targets(self, source: impl TargetSource) -> Self {
        Self {
            source: Some(Arc::new(source)),
            ..self
        }
    }

    /// How it runs.
    #[must_use]
    pub fn settings(self, settings: FleetSettings) -> Self {
        Self { settings, ..self }
    }

    /// On which runtime the tasks run. Without this: on the one that [`FleetBuilder::start`] is called on.
    #[must_use]
    pub fn runtime(self, runtime: Handle) -> Self {
        Self {
            runtime: Some(runtime),
            ..self
        }
    }

    /// Starts it. `task` is called once for every lease that is granted, and works on that target until it is told to
    /// stop.
    ///
    /// # Errors
    /// `Misconfigured` for settings that cannot work.
    pub fn start<F, W>(self, task: F) -> Result<Fleet>
    where
        F: Fn(Assignment) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.settings.check()?;
        let shared = self.shared;
        let task: Task = Arc::new(move |assignment| task(assignment).boxed());
        let (back, returned) = unbounded_channel();
        let own = || Handle::try_current().unwrap_or_else(|_| shared.context.runtime.clone());
        let starter = Starter {
            task,
            runtime: self.runtime.unwrap_or_else(own),
            clock: Arc::clone(&shared.context.clock),
            back,
        };
        let stored = || source::StoredTargets::new(Arc::clone(&shared.context.store), shared.group.clone());
        let (wish, wished) = watch::channel(Wish::default());
        let (tell, status) = watch::channel(FleetStatus::default());
        let (tell_end, ended) = watch::channel(None);
        let fixed = Fixed {
            settings: self.settings,
            source: self.source.unwrap_or_else(|| Arc::new(stored())),
            starter,
            draining: Registry::open(&shared, RegistryName::new(DRAINING)?),
            status: tell,
            shared: Arc::clone(&shared),
        };
        shared.context.runtime.spawn(async move {
            let left = live(&fixed, returned, wished).await;
            let stubborn = left.keys().cloned().collect();
            tell_end.send_replace(Some(ShutDown { stubborn }));
            outlive(&fixed.status, left).await;
        });
        Ok(Fleet { wish, status, ended })
    }
}

/// Runs the loop, again after every panic, until it has ended. Answers what does not stop.
async fn live(fixed: &Fixed, mut back: UnboundedReceiver<Returned>, wish: watch::Receiver<Wish>) -> Left {
    loop {
        let mut running = Running::new(fixed, &mut back, wish.clone());
        if AssertUnwindSafe(running.run()).catch_unwind().await.is_ok() {
            return running.abandon();
        }
        // What it was in charge of stops now, and its leases are released one by one as it does.
        let group = &fixed.shared.group;
        tracing::error!(%group, "the loop of the fleet panicked; it is started afresh");
        fixed.status.send_modify(|status| status.panics += 1);
        drop(running);
        let clock = &fixed.shared.context.clock;
        clock
            .sleep(tenure_core::clock::jitter(&**clock, crate::loops::FIRST_BACKOFF, 50))
            .await;
    }
}

/// Keeps the status true after the end, for as long as somebody can see it: work that goes on gives its lease back when it
/// ends, as nobody is there to take it.
async fn outlive(status: &watch::Sender<FleetStatus>, left: Left) {
    let tell = |left: &Left| {
        status.send_modify(|status| {
            status.held = left.len();
            status.stubborn = left.keys().cloned().collect();
        });
    };
    tell(&left);
    let mut ends: FuturesUnordered<_> = left
        .iter()
        .map(|(lease, lost)| {
            let (lease, lost) = (lease.clone(), lost.clone());
            async move {
                lost.cancelled_owned().await;
                lease
            }
        })
        .collect();
    let mut left = left;
    loop {
        tokio::select! {
            biased;
            () = status.closed() => return,
            ended = ends.next() => match ended {
                Some(lease) => left.remove(&lease),
                None => return,
            },
        };
        tell(&left);
    }
}

impl Fleet {
    /// A fleet for this member to be a node of.
    #[must_use]
    pub fn builder(membership: &Membership) -> FleetBuilder {
        FleetBuilder {
            shared: Arc::clone(membership.shared()),
            settings: FleetSettings::default(),
            source: None,
            runtime: None,
        }
    }

    /// What it is doing now. No I/O.
    #[must_use]
    pub fn status(&self) -> FleetStatus {
        self.status.borrow().clone()
    }

    /// Every change of the status; a slow reader sees the newest.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<FleetStatus> {
        self.status.clone()
    }

    /// Takes this node out, or back in ([`Fleet::undrain`]): it asks for nothing more, ends all its work, hands the leases
    /// to the other nodes, and tells everybody not to hand it anything. Completes when nothing is held any more; dropping
    /// the future does not take the wish back.
    pub async fn drain(&self) {
        self.wish.send_modify(|wish| wish.draining = true);
        let mut status = self.status.clone();
        // It fails only when the fleet has ended, and then nothing is held.
        let _ended = status.wait_for(|status| status.draining && status.held == 0).await;
    }

    /// Takes this node back in.
    pub fn undrain(&self) {
        self.wish.send_modify(|wish| wish.draining = false);
    }

    /// Ends the fleet on this node: drains it, waits for all work to end and all leases to be given up, at most
    /// [`FleetSettings::shut_down_within`]. The membership goes on, and is marked as draining as long as it does. Idempotent.
    pub async fn shut_down(&self) -> ShutDown {
        self.wish.send_modify(|wish| wish.ending = true);
        let mut ended = self.ended.clone();
        let told = ended.wait_for(Option::is_some).await;
        told.ok().and_then(|told| told.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
