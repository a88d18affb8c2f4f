//! A fleet: nodes that share targets. Each target is worked on by exactly one node.
//!
//! Every node runs the same program: it joins the group, provides the targets (or reads them from the store), and
//! starts a task per target. The fleet acquires leases, starts the task for each granted lease, and stops it when the
//! target moves. All nodes compute the same preferred placement ([`tenure_core::placement`], [`tenure_core::fleet`]).
//! The leases decide, so two nodes never work on one target, even if their views differ.
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
//!         // Waits until the lease is confirmed; `false` when the task should stop.
//!         while target.next_cycle().await {
//!             poll(target.target().as_str(), target.token().get()).await;
//!             target.rest(Duration::from_secs(1)).await;
//!         }
//!     })?;
//! # let mut status = fleet.watch();
//! # status.wait_for(|status| status.held == 2).await.expect("the fleet runs");
//!
//! // Stops the work and hands the leases to other nodes. Then this node can leave.
//! let ended = fleet.shut_down().await;
//! assert!(ended.stubborn.is_empty());
//! membership.leave().await?;
//! # Ok(())
//! # }
//! # async fn poll(_: &str, _: u64) {}
//! ```
//!
//! # Guarantees for a task
//!
//! - A task is polled only while its lease is held, under the token it sees. While the lease is uncertain the task is
//!   suspended at its `await`, even in the middle of a cycle or after the process was suspended. An unreachable store
//!   thus pauses the work before another node can take over. Work resumes when the lease is confirmed.
//! - The task is dropped at its `await` when the lease is lost: by an answer of the store, or after a whole ttl without
//!   one.
//! - Call [`Assignment::next_cycle`] before each cycle. Work that the task has started elsewhere (a thread, another
//!   task) is not suspended; it must check [`Assignment::verdict`]. No I/O.
//! - When the target is paused, removed or handed over, [`Assignment::stopping`] is cancelled. The task has
//!   [`FleetSettings::stop_within`] to end, then it is dropped. Its lease is released only after that. Work that cannot
//!   be dropped (it blocks its thread, or another task has a clone of the assignment) keeps its lease until it ends;
//!   [`FleetStatus::stubborn`] lists it.
//! - A lost lease ends the task of that target only. The node keeps competing for leases.
//! - A task that returns or panics is restarted after a pause, while the target belongs to this node.
//!
//! Tasks run on the runtime that called [`FleetBuilder::start`], so they cannot starve the beats.
//!
//! # How targets move
//!
//! | event | effect on targets |
//! |---|---|
//! | a node dies | its leases are free at its end time; other nodes learn it from the event or by polling, and take over |
//! | a node drains or shuts down | its work ends, and each lease is handed to the next node in the order of the target |
//! | a node joins | once the membership is stable, other nodes hand it the targets that prefer it: one first, then the rest |
//! | a node comes and goes | no other effect: see [`tenure_core::fleet::Settings::stability`] |
//! | a target is paused or removed | its work ends and its lease is released |

mod assignment;
mod calls;
mod live;
mod running;
mod schedule;
mod settings;
mod source;
mod view;
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
use assignment::ReturnedLease;
use running::{FleetContext, Running};
use work::{Starter, Task};

pub use assignment::{Assignment, Condition};
pub use live::LiveSessions;
pub use settings::{FleetSettings, Nodes};
pub use source::{MAX_TARGETS, StoredTargets, TargetList, TargetSource};
pub use tenure_core::fleet::Settings as PlacingSettings;
pub use tenure_core::target::TargetSpec;

/// The state of the fleet on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetStatus {
    /// Whether this node is draining: it acquires no more leases.
    pub draining: bool,
    /// Number of known nodes, this one included.
    pub nodes: usize,
    /// Number of targets, paused ones included.
    pub targets: usize,
    /// Number of leases held by this node, including those being released. After the fleet has ended: those whose work
    /// is still running; the rest is released in the background.
    pub held: usize,
    /// Targets whose work was told to stop and is still running. Their leases are kept.
    pub stubborn: Vec<LeaseName>,
    /// How often a task ended without being told to stop.
    pub restarts: u64,
    /// Panics of the fleet's own loop. Each is a bug; the loop was restarted.
    pub panics: u64,
    /// The last error.
    pub last_error: Option<String>,
}

/// The result of ending the fleet on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShutDown {
    /// Targets whose work did not stop in time. Their leases are still held. While there are any, do not leave the
    /// group: leaving frees the leases while the work is running. End the process instead; its tenure then lapses.
    pub stubborn: Vec<LeaseName>,
}

/// Work still running after the end, with the token that is cancelled when its lease is lost.
type RemainingWork = BTreeMap<LeaseName, CancellationToken>;

/// Requests of the handle to the loop.
#[derive(Debug, Clone, Copy, Default)]
struct Control {
    draining: bool,
    ending: bool,
}

/// This node's part in a fleet. End it with [`Fleet::shut_down`]; dropping it shuts down in the background.
pub struct Fleet {
    control: watch::Sender<Control>,
    status: watch::Receiver<FleetStatus>,
    ended: watch::Receiver<Option<ShutDown>>,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fleet").field(&*self.status.borrow()).finish()
    }
}

/// Builds the fleet of this node.
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
    /// Sets the source of targets. Default: the store ([`StoredTargets`]).
    #[must_use]
    pub fn targets(self, source: impl TargetSource) -> Self {
        Self {
            source: Some(Arc::new(source)),
            ..self
        }
    }

    /// Replaces the settings.
    #[must_use]
    pub fn settings(self, settings: FleetSettings) -> Self {
        Self { settings, ..self }
    }

    /// Sets the runtime for the tasks. Default: the runtime that calls [`FleetBuilder::start`].
    #[must_use]
    pub fn runtime(self, runtime: Handle) -> Self {
        Self {
            runtime: Some(runtime),
            ..self
        }
    }

    /// Starts the fleet. `task` is called once per granted lease and works on that target until it is told to stop.
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
        let (control, controlled) = watch::channel(Control::default());
        let (tell, status) = watch::channel(FleetStatus::default());
        let (tell_end, ended) = watch::channel(None);
        let fixed = FleetContext {
            settings: self.settings,
            source: self.source.unwrap_or_else(|| Arc::new(stored())),
            starter,
            draining: Registry::open(&shared, RegistryName::new(DRAINING)?),
            status: tell,
            shared: Arc::clone(&shared),
        };
        shared.context.runtime.spawn(async move {
            let left = run_until_ended(&fixed, returned, controlled).await;
            let stubborn = left.keys().cloned().collect();
            tell_end.send_replace(Some(ShutDown { stubborn }));
            report_remaining(&fixed.status, left).await;
        });
        Ok(Fleet { control, status, ended })
    }
}

/// Runs the loop, and restarts it after a panic, until it has ended. Returns the work that is still running.
async fn run_until_ended(
    fixed: &FleetContext,
    mut back: UnboundedReceiver<ReturnedLease>,
    control: watch::Receiver<Control>,
) -> RemainingWork {
    loop {
        let mut running = Running::new(fixed, &mut back, control.clone());
        if AssertUnwindSafe(running.run()).catch_unwind().await.is_ok() {
            return running.abandon();
        }
        // Dropping the loop stops its tasks; each lease is released when its task ends.
        let group = &fixed.shared.group;
        tracing::error!(%group, "the fleet loop panicked and is restarted");
        fixed.status.send_modify(|status| status.panics += 1);
        drop(running);
        let clock = &fixed.shared.context.clock;
        clock
            .sleep(tenure_core::clock::jitter(&**clock, crate::loops::FIRST_BACKOFF, 50))
            .await;
    }
}

/// Keeps the status current after the end, while it is observed. A lease is released when its remaining work ends.
async fn report_remaining(status: &watch::Sender<FleetStatus>, left: RemainingWork) {
    let tell = |left: &RemainingWork| {
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
    /// A builder for a fleet node that runs under this membership.
    #[must_use]
    pub fn builder(membership: &Membership) -> FleetBuilder {
        FleetBuilder {
            shared: Arc::clone(membership.shared()),
            settings: FleetSettings::default(),
            source: None,
            runtime: None,
        }
    }

    /// The current status. No I/O.
    #[must_use]
    pub fn status(&self) -> FleetStatus {
        self.status.borrow().clone()
    }

    /// A watch on the status; a slow reader sees the newest.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<FleetStatus> {
        self.status.clone()
    }

    /// Drains this node: it acquires no more leases, ends all its work, hands its leases to other nodes, and marks
    /// itself so that it receives none. Completes when no lease is held. Dropping the future does not cancel the drain;
    /// [`Fleet::undrain`] does.
    pub async fn drain(&self) {
        self.control.send_modify(|control| control.draining = true);
        let mut status = self.status.clone();
        // This fails only when the fleet has ended; no lease is held then.
        let _ended = status.wait_for(|status| status.draining && status.held == 0).await;
    }

    /// Ends the drain.
    pub fn undrain(&self) {
        self.control.send_modify(|control| control.draining = false);
    }

    /// Ends the fleet on this node: drains it and waits until all work has ended and all leases are released, at most
    /// [`FleetSettings::shut_down_within`]. The membership continues and stays marked as draining. Idempotent.
    pub async fn shut_down(&self) -> ShutDown {
        self.control.send_modify(|control| control.ending = true);
        let mut ended = self.ended.clone();
        let told = ended.wait_for(Option::is_some).await;
        told.ok().and_then(|told| told.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
