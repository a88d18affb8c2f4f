//! Moving a fleet that shares its targets by plain keys to Tenure, one instance at a time.
//!
//! Such a fleet has a key per target, `poll:lease:<target>` = instance id, taken with `SET NX PX` and renewed with
//! `PEXPIRE`. Its instances know nothing of Tenure. So for as long as one of them runs, a new node holds *both*: Tenure's
//! lease, which keeps the new nodes apart, and the old key, which keeps old and new apart. [`OldLeases::around`] is that
//! second half, put around the task of a [`Fleet`](tenure::fleet::Fleet). Once the last old instance is gone, the next
//! deployment takes it out again.
//!
//! ```no_run
//! # async fn example(membership: tenure::Membership) -> tenure::Result<()> {
//! use std::time::Duration;
//! use tenure_adopt::{OldLeaseSettings, OldLeases};
//! use tenure::fleet::{Assignment, Fleet};
//!
//! let settings = OldLeaseSettings::new("poll:lease:{target}", Duration::from_secs(30));
//! let old = OldLeases::connect(&membership, "redis://db:6379", settings).await?;
//! let fleet = Fleet::builder(&membership).start(old.around(|target: Assignment| async move {
//!     while target.next_cycle().await {
//!         // Poll it.
//!         target.rest(Duration::from_secs(1)).await;
//!     }
//! }))?;
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - The task runs only while Tenure's lease *and* the old key are certainly ours. The old key is from the moment its last
//!   confirmed renewal was **sent**, for its ttl minus a margin, on the clock that counts suspend. The task is not polled
//!   after that, and is dropped at its next `await`.
//! - While an old instance has the key, the task waits, and the target is polled by that instance alone.
//! - The old key is given back after the task and all clones of its assignment have ended, and before Tenure's lease is.
//! - Each time an old key is taken it gets a value that was never used before (`member@term#n`), unless an instance id
//!   is set. So nothing that arrives late can renew or release somebody else's.
//!
//! # What does not
//!
//! An old instance that goes on polling after its key has expired (a long pause, a renewal that does not compare), or that
//! deletes a key without looking whose it is, did so before as well. A store that loses keys (a failover, a restart
//! without data) gives an old key to whoever asks first; a new node notices that at its next renewal, after ttl/3.

mod around;
mod beside;
mod keeper;
mod keys;
mod record;
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
use tenure::heart::HeartbeatRuntime;
use tenure::membership::Membership;
use tenure_core::clock::Clock;
use tenure_core::error::{Error, Result};
use tenure_core::timing::Timing;
use tenure_valkey::connection::{Connection, ConnectionOptions};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::pattern::KeyPattern;
use record::Record;

pub use beside::{Beside, Counts, HeldBy, MovingKeys, Row};
pub use keys::{OldKeys, Taken};
pub use step::{MAX_OLD_TTL, MIN_OLD_TTL, OldLease, StoredKeys};

/// How to honour old keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldLeaseSettings {
    /// How the key of a target is called, with `{target}` (or one `*`) where the target's name goes.
    pub pattern: String,
    /// For how long a key is taken and renewed, best that of the old fleet. It is renewed every third of it. Shorter frees
    /// the targets of a killed node sooner; longer survives longer trouble of the store.
    pub ttl: Duration,
    /// The value to hold keys by, for fleets in which others look at it. It has to be another at every start of the
    /// process. Without it: the tenure and a number, another at every taking.
    pub instance: Option<String>,
    /// How often a key is asked for that another holds. Shorter takes over sooner after a release; after an expiry it is
    /// asked for at once either way.
    pub look_every: Duration,
}

impl OldLeaseSettings {
    /// The usual settings.
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
            return Err(Error::invalid(
                "old keys cannot be asked for more often than every 20ms",
            ));
        }
        if self.instance.as_ref().is_some_and(String::is_empty) {
            return Err(Error::invalid("the instance id to hold old keys by is empty"));
        }
        Timing::for_ttl(self.ttl).check(MAX_OLD_TTL)
    }
}

/// What is held, and what is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OldLeaseStatus {
    /// Targets whose old key is ours for certain.
    pub held: usize,
    /// Targets that wait for their old key.
    pub waiting: usize,
    /// How often work was dropped because its old key was not certainly ours any more.
    pub lost: u64,
}

/// The old keys of a fleet that is moving to Tenure. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct OldLeases {
    inner: Arc<Inner>,
    /// The keeper ends with the last clone.
    _stop: Arc<DropGuard>,
    /// Holds the thread that the keeper runs on.
    _runtime: HeartbeatRuntime,
}

struct Inner {
    keys: Arc<dyn OldKeys>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    timing: Timing,
    look_every: Duration,
    instance: Option<String>,
    book: Mutex<BTreeMap<u64, Arc<Record>>>,
    /// Something is due that was not.
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
    /// Connects to where the old keys are, on the thread that sends the membership's beats. A store that is away is no
    /// error: the targets wait until it is there.
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

    /// The same over keys that are kept in another way.
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
            book: Mutex::default(),
            wake: Notify::new(),
            serial: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        inner.runtime.spawn(keeper::keep(Arc::clone(&inner), stop.clone()));
        Ok(Self {
            inner,
            _stop: Arc::new(stop.drop_guard()),
            _runtime: runtime,
        })
    }

    /// The task of a fleet that works on a target only while its old key is ours as well. For
    /// [`FleetBuilder::start`](tenure::fleet::FleetBuilder::start).
    ///
    /// The assignment that `task` gets is `Lost` as soon as the old key is; the task is then dropped, and started anew
    /// once the key is ours again.
    pub fn around<F, W>(
        &self,
        task: F,
    ) -> impl Fn(Assignment) -> BoxFuture<'static, ()> + Send + Sync + 'static + use<F, W>
    where
        F: Fn(Assignment) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let (old, task) = (self.clone(), Arc::new(task));
        move |assignment| around::run(old.clone(), assignment, Arc::clone(&task)).boxed()
    }

    /// What is held and waited for now. No I/O. O(targets).
    #[must_use]
    pub fn status(&self) -> OldLeaseStatus {
        let now = self.inner.clock.mono();
        let book = self.inner.book();
        let held = book.values().filter(|record| record.valid_until() > now).count();
        OldLeaseStatus {
            held,
            waiting: book.values().filter(|record| record.is_waiting()).count(),
            lost: self.inner.lost.load(Ordering::Relaxed),
        }
    }
}

/// A connection that lives on the thread of the beats.
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
    fn book(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Record>>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
