//! Migrates a fleet that shares its targets by plain Redis keys (distributed locks) to Tenure, one instance at a time.
//!
//! Such a fleet has one key per target, `poll:lease:<target>` = instance id, acquired with `SET NX PX` and renewed with
//! `PEXPIRE`. Its instances do not know Tenure. So while one of them runs, a new node holds *both* locks: Tenure's
//! lease, which excludes other new nodes, and the old key, which excludes old instances. [`OldLeases::guard_task`] adds
//! the old key to the task of a [`Fleet`](tenure::fleet::Fleet). Remove it in the deployment after the last old
//! instance has stopped.
//!
//! ```no_run
//! # async fn example(membership: tenure::Membership) -> tenure::Result<()> {
//! use std::time::Duration;
//! use tenure_adopt::{OldLeaseSettings, OldLeases};
//! use tenure::fleet::{Assignment, Fleet};
//!
//! let settings = OldLeaseSettings::new("poll:lease:{target}", Duration::from_secs(30));
//! let old = OldLeases::connect(&membership, "redis://db:6379", settings).await?;
//! let fleet = Fleet::builder(&membership).start(old.guard_task(|target: Assignment| async move {
//!     while target.next_cycle().await {
//!         // Poll it.
//!         target.rest(Duration::from_secs(1)).await;
//!     }
//! }))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - The task runs only while both Tenure's lease *and* the old key are certainly ours. The old key is ours from the
//!   moment its last confirmed renewal was **sent**, for its ttl minus a margin, on the clock that counts suspend.
//!   After that the task is not polled, and it is dropped at its next `await`.
//! - While an old instance holds the key, the task waits, and only that instance polls the target.
//! - The old key is released after the task and all clones of its assignment have ended, and before Tenure's lease.
//! - Each acquire of an old key uses a new value (`member@term#n`), unless an instance id is set. So a late command
//!   cannot renew or release the key of another holder.
//!
//! # Limits
//!
//! An old instance may keep polling after its key has expired (a long pause, a renewal without a comparison) or delete
//! a key it does not own. It could do so before the migration as well. A store that loses keys (a failover, a restart
//! without data) grants an old key to the next caller; a new node notices at its next renewal, after ttl/3.

mod comparison;
mod guarded_task;
mod keys;
mod record;
mod renewer;
mod step;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tenure::fleet::Assignment;
use tenure::heartbeat::HeartbeatRuntime;
use tenure::membership::Membership;
use tenure_core::clock::Clock;
use tenure_core::error::{Error, Result};
use tenure_core::timing::Timing;
use tenure_valkey::connection::{Connection, ConnectionOptions};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::pattern::KeyPattern;
use record::KeyRecord;

pub use comparison::{HeldBy, HolderCounts, LeaseComparison, MovingKeys, NamesWithoutUse, TargetRow, Until};
pub use keys::{OldKeys, TakeOutcome};
pub use step::{MAX_OLD_TTL, MIN_OLD_TTL, OldLease, StoredKeys};

/// How old keys are acquired and renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldLeaseSettings {
    /// The key of a target, with `{target}` (or one `*`) in place of the target's name.
    pub pattern: String,
    /// The ttl of a key, best that of the old fleet. It is renewed every third of the ttl. A shorter ttl frees the
    /// targets of a killed node sooner; a longer one survives longer store outages.
    pub ttl: Duration,
    /// The value of held keys, for fleets in which other programs read it. It must change at every start of the
    /// process. `None`: the tenure and a number, different for each acquire.
    pub instance: Option<String>,
    /// How often a key that another instance holds is tried. A shorter interval takes over sooner after a release; an
    /// expiry is noticed immediately in any case.
    pub look_every: Duration,
}

impl OldLeaseSettings {
    /// The defaults.
    #[must_use]
    pub fn new(pattern: &str, ttl: Duration) -> Self {
        Self {
            pattern: pattern.to_owned(),
            ttl,
            instance: None,
            look_every: Duration::from_millis(500),
        }
    }

    fn timing(&self) -> Result<Timing> {
        if self.look_every < tenure::loops::FLOOR {
            return Err(Error::invalid("the interval for trying old keys is below 20ms"));
        }
        if self.instance.as_ref().is_some_and(String::is_empty) {
            return Err(Error::invalid("the instance id for old keys is empty"));
        }
        Timing::for_ttl(self.ttl).check(MAX_OLD_TTL)
    }
}

/// The numbers of held and awaited keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OldLeaseStatus {
    /// Targets whose old key is certainly ours.
    pub held: usize,
    /// Targets that wait for their old key.
    pub waiting: usize,
    /// How often a task was dropped because its old key was no longer certainly ours.
    pub lost: u64,
}

/// The old keys of a fleet that migrates to Tenure. Clones share state.
#[derive(Clone)]
pub struct OldLeases {
    inner: Arc<Inner>,
    /// The renewer stops with the last clone.
    _stop: Arc<DropGuard>,
    /// Keeps the renewer's thread alive.
    _runtime: HeartbeatRuntime,
}

struct Inner {
    keys: Arc<dyn OldKeys>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    timing: Timing,
    look_every: Duration,
    instance: Option<String>,
    records: Mutex<BTreeMap<u64, Arc<KeyRecord>>>,
    /// Wakes the renewer when a key is due earlier than it knows.
    wake: Notify,
    serial: AtomicU64,
    lost: AtomicU64,
}

impl fmt::Debug for OldLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldLeases")
            .field("keys", &self.inner.keys)
            .field("status", &self.status())
            .finish()
    }
}

impl OldLeases {
    /// Connects to the store of the old keys, on the thread that sends the membership's beats. An unreachable store is
    /// not an error: the targets wait until it is reachable.
    ///
    /// # Errors
    /// `Invalid` for settings that cannot work, `Misconfigured` or `Unsupported` for the URL.
    pub async fn connect(membership: &Membership, url: &str, settings: OldLeaseSettings) -> Result<Self> {
        let timing = settings.timing()?;
        let pattern = KeyPattern::parse(&settings.pattern)?;
        let options = ConnectionOptions {
            request_timeout: timing.request_timeout,
            ..ConnectionOptions::default()
        };
        let connection = connected(&membership.heartbeat_runtime(), url, options).await?;
        let keys = StoredKeys::new(connection, pattern, settings.ttl)?;
        Self::over(membership, Arc::new(keys), &settings)
    }

    /// Like [`OldLeases::connect`], for keys that are stored in another way.
    ///
    /// # Errors
    /// `Invalid` for settings that cannot work.
    pub fn over(membership: &Membership, keys: Arc<dyn OldKeys>, settings: &OldLeaseSettings) -> Result<Self> {
        let (runtime, stop) = (membership.heartbeat_runtime(), CancellationToken::new());
        let inner = Arc::new(Inner {
            keys,
            clock: Arc::clone(runtime.clock()),
            runtime: runtime.handle().clone(),
            timing: settings.timing()?,
            look_every: settings.look_every,
            instance: settings.instance.clone(),
            records: Mutex::default(),
            wake: Notify::new(),
            serial: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        inner.runtime.spawn(renewer::run(Arc::clone(&inner), stop.clone()));
        Ok(Self {
            inner,
            _stop: Arc::new(stop.drop_guard()),
            _runtime: runtime,
        })
    }

    /// Wraps the task of a fleet so that it works on a target only while its old key is ours as well. Pass it to
    /// [`FleetBuilder::start`](tenure::fleet::FleetBuilder::start).
    ///
    /// The assignment passed to `task` becomes `Lost` as soon as the old key is lost; the task is then dropped and
    /// started again once the key is ours.
    pub fn guard_task<F, W>(
        &self,
        task: F,
    ) -> impl Fn(Assignment) -> BoxFuture<'static, ()> + Send + Sync + 'static + use<F, W>
    where
        F: Fn(Assignment) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let (old, task) = (self.clone(), Arc::new(task));
        move |assignment| guarded_task::run(old.clone(), assignment, Arc::clone(&task)).boxed()
    }

    /// The current numbers of held and awaited keys. No I/O. O(targets).
    #[must_use]
    pub fn status(&self) -> OldLeaseStatus {
        let now = self.inner.clock.mono();
        let records = self.inner.records();
        let held = records.values().filter(|record| record.valid_until() > now).count();
        OldLeaseStatus {
            held,
            waiting: records.values().filter(|record| record.is_waiting()).count(),
            lost: self.inner.lost.load(Ordering::Relaxed),
        }
    }
}

/// Opens a connection on the thread of the beats.
pub(crate) async fn connected(runtime: &HeartbeatRuntime, url: &str, options: ConnectionOptions) -> Result<Connection> {
    let (url, clock) = (url.to_owned(), Arc::clone(runtime.clock()));
    let open = async move {
        let connection = Connection::open(&url, options, clock)?;
        connection.first_try().await;
        Ok(connection)
    };
    runtime.run(open).await?
}

impl Inner {
    fn records(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<KeyRecord>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
