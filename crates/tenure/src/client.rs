//! The client: a store with its heartbeat thread, beat batcher and sweeper.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::store::Store;
use tenure_core::timeout::Timeout;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::batch::{BatchSettings, BeatBatcher};
use crate::connect::{OpenOptions, open_store};
use crate::group::GroupHandle;
use crate::heartbeat::HeartbeatThread;
use crate::lease::LeaseWaits;
use crate::loops::{LoopStatus, Loops};
use crate::membership::{Membership, Wrapper};
use crate::on_runtime::OnRuntime;
use crate::pulse::Pulser;
use crate::registry::PATIENCE;
use crate::sweeper::{Sweeper, SweeperSettings};

/// A connection to a store.
///
/// It runs a thread for beats and all I/O, and a janitor if the store has no sweeper of its own. Clones share state.
/// Memberships keep thread and janitor alive after the last clone is dropped.
#[derive(Clone)]
pub struct Tenure {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
}

/// State shared by all handles of one client.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Handle,
    pub(crate) batcher: BeatBatcher,
    pub(crate) max_ttl: Duration,
    pub(crate) waits: LeaseWaits,
    sweeper: Option<Sweeper>,
    /// Held, like the thread below, so that the janitor runs as long as any handle of this client exists.
    loops: Loops,
    /// Held so that the thread runs as long as any handle of this client exists.
    _thread: Option<Arc<HeartbeatThread>>,
}

impl Context {
    /// Awaits a store call that changes data, bounded by a time-out. The store may need several steps for it.
    pub(crate) async fn act<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        Timeout::change(PATIENCE).call(&*self.clock, "the store", call).await
    }

    /// Awaits a store call that reads, bounded by a time-out.
    pub(crate) async fn read<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        Timeout::read(PATIENCE).call(&*self.clock, "the store", call).await
    }

    /// Announces to the local janitor that this process uses the group.
    pub(crate) fn touch(&self, group: &Group) {
        if let Some(sweeper) = &self.sweeper {
            sweeper.touch(group);
        }
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenure({})", self.store().place())
    }
}

/// Settings of a client on a store that is already open.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Longest ttl of a join; a longer one is rejected before it is sent.
    pub max_ttl: Duration,
    /// How beats are batched.
    pub batch: BatchSettings,
    /// The local janitor; `None` runs none. It runs only on stores without a sweeper of their own.
    pub sweeper: Option<SweeperSettings>,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            max_ttl: tenure_core::timing::DEFAULT_MAX_TTL,
            batch: BatchSettings::default(),
            sweeper: Some(SweeperSettings::default()),
        }
    }
}

impl Tenure {
    /// Connects to a store by URL with the defaults; see [`crate::connect`] for the URLs.
    ///
    /// # Errors
    /// Those of [`open_store`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, OpenOptions::default(), ClientSettings::default()).await
    }

    /// Connects to a store by URL. `options.store.max_ttl` overrides `settings.max_ttl`.
    ///
    /// # Errors
    /// Those of [`open_store`], and `Misconfigured` when the system refuses to start a thread.
    pub async fn connect_with(url: &str, options: OpenOptions, settings: ClientSettings) -> Result<Self> {
        let thread = HeartbeatThread::start()?;
        let clock = Arc::clone(&options.clock);
        let settings = ClientSettings {
            max_ttl: options.store.max_ttl,
            ..settings
        };
        let url = url.to_owned();
        let store = thread.run(async move { open_store(&url, &options).await }).await??;
        let runtime = thread.runtime().clone();
        Self::assemble(store, clock, runtime, &settings, Some(thread))
    }

    /// A client on an open store, with the caller's clock and runtime. It starts no thread, so a simulation can drive
    /// it.
    ///
    /// # Errors
    /// `Invalid` for sweeper settings that cannot work.
    pub fn on_store(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        settings: &ClientSettings,
    ) -> Result<Self> {
        Self::assemble(store, clock, runtime, settings, None)
    }

    fn assemble(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        settings: &ClientSettings,
        thread: Option<HeartbeatThread>,
    ) -> Result<Self> {
        let loops = Loops::new(Arc::clone(&clock), runtime.clone());
        let store = match store.steps() {
            Some(_) => {
                let pulser = Pulser::new(store, Arc::clone(&clock));
                pulser.start(&loops)?;
                pulser.watched()
            }
            None => store,
        };
        let sweeper = match &settings.sweeper {
            Some(wanted) if store.steps().is_some() => Some(Sweeper::start(
                Arc::clone(&store),
                Arc::clone(&clock),
                wanted.clone(),
                &loops,
            )?),
            _ => None,
        };
        let waits = LeaseWaits::new(
            Arc::clone(&store),
            Arc::clone(&clock),
            runtime.clone(),
            PATIENCE,
            sweeper.clone(),
            CancellationToken::new(),
        );
        // Beats are sent by tasks on the heartbeat runtime. Other calls are moved onto it.
        let batcher = BeatBatcher::new(Arc::clone(&store), Arc::clone(&clock), runtime.clone(), settings.batch);
        let store = if thread.is_some() {
            OnRuntime::new(store, runtime.clone())
        } else {
            store
        };
        let max_ttl = settings.max_ttl;
        let context = Context {
            waits,
            store,
            clock,
            runtime,
            batcher,
            max_ttl,
            sweeper,
            loops,
            _thread: thread.map(Arc::new),
        };
        Ok(Self {
            inner: Arc::new(Inner { context }),
        })
    }

    /// A group by name.
    ///
    /// # Errors
    /// `Invalid`, naming the first character that is not allowed.
    pub fn group(&self, name: &str) -> Result<GroupHandle> {
        Ok(GroupHandle::new(self.inner.context.clone(), Group::new(name)?))
    }

    /// Acts under the tenure of the `tenure join` or `tenure lock` around this process, without a join of its own. Retries
    /// for up to `patience` while the store is unavailable.
    ///
    /// The tenure is the holder: processes that share it share its leases, so let each acquire others. Leaving ends only
    /// this handle; what it holds stays with the tenure until the wrapper leaves. When the wrapper joins again after a
    /// lapse, the membership follows it.
    ///
    /// # Errors
    /// `Misconfigured` outside a wrapper; `Ended` when the tenure is over; `Unavailable` after `patience`.
    pub async fn inherit(&self, patience: Duration) -> Result<Membership> {
        let wrapper = Wrapper::find()?.ok_or_else(|| {
            let needs = "TENURE_ID and TENURE_GROUP are not set; start this program by `tenure join` or `tenure lock`";
            Error::new(ErrorKind::Misconfigured, needs)
        })?;
        Membership::inherit(self.inner.context.clone(), wrapper, patience).await
    }

    /// The store, for calls that no handle offers.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.context.store
    }

    /// The clock that [`Membership::valid_until`](crate::Membership::valid_until) is on.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.context.clock
    }

    /// The waiting requests of this client, for a program that acquires leases under a tenure whose beats another process
    /// sends. A member waits with [`Leases::acquire_within`](crate::Leases::acquire_within).
    #[must_use]
    pub fn waits(&self) -> &LeaseWaits {
        &self.inner.context.waits
    }

    /// The status of the loops in this process.
    #[must_use]
    pub fn loops(&self) -> Vec<LoopStatus> {
        self.inner.context.loops.snapshot()
    }

    /// Stops the janitor and closes the store. Leave memberships first: leaving needs the store.
    pub async fn close(&self) {
        self.inner.context.loops.shut_down(Duration::from_secs(2)).await;
        self.inner.context.store.close().await;
    }
}
