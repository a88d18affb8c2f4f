//! The client: a store, and the thread, batcher and sweeper that belong to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::Result;
use tenure_core::id::Group;
use tenure_core::store::Store;
use tenure_core::timeout::Timeout;
use tokio::runtime::Handle;

use crate::batch::{BatchSettings, BeatBatcher};
use crate::connect::{OpenOptions, open_store};
use crate::group::GroupHandle;
use crate::heart::Heart;
use crate::loops::{LoopStatus, Loops};
use crate::on_heart::OnHeart;
use crate::registry::PATIENCE;
use crate::sweeper::{Sweeper, SweeperSettings};

/// A connection to a store: the way in.
///
/// It has a thread of its own for beats and for all I/O, and, when the store is one that is swept by its users, a
/// janitor. Cheap to clone. Memberships keep it alive: after the last clone is gone, thread and janitor go on for as long
/// as there is a membership.
#[derive(Clone)]
pub struct Tenure {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
}

/// What everything that belongs to one client needs.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Handle,
    pub(crate) batcher: BeatBatcher,
    pub(crate) max_ttl: Duration,
    sweeper: Option<Sweeper>,
    /// Held, as is the heart below, so that the janitor runs for as long as anybody needs this client.
    loops: Loops,
    /// Held so that the thread lives as long as anybody needs it.
    _heart: Option<Arc<Heart>>,
}

impl Context {
    /// Waits for a call of the store that changes something; it may take the store several steps.
    pub(crate) async fn act<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        Timeout::change(PATIENCE).call(&*self.clock, "the store", call).await
    }

    /// Waits for a call of the store that changes nothing.
    pub(crate) async fn read<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        Timeout::read(PATIENCE).call(&*self.clock, "the store", call).await
    }

    /// This process serves the group: its janitor should know of it at once.
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

/// How to run a client on a store that is open already.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Joins above this ttl are refused before they are sent.
    pub max_ttl: Duration,
    /// How beats are gathered.
    pub batch: BatchSettings,
    /// The janitor of this process; `None` for none. It only runs on stores that are swept by their users.
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

    /// Connects to a store by URL. `settings.max_ttl` is taken from the options.
    ///
    /// # Errors
    /// Those of [`open_store`], and `Misconfigured` when the system refuses a thread.
    pub async fn connect_with(url: &str, options: OpenOptions, settings: ClientSettings) -> Result<Self> {
        let heart = Heart::start()?;
        let clock = Arc::clone(&options.clock);
        let settings = ClientSettings {
            max_ttl: options.store.max_ttl,
            ..settings
        };
        let url = url.to_owned();
        let store = heart.run(async move { open_store(&url, &options).await }).await??;
        let runtime = heart.runtime().clone();
        Self::assemble(store, clock, runtime, &settings, Some(heart))
    }

    /// A client on a store that is open already, with a clock and a runtime of the caller's. Nothing here knows of
    /// threads, so this is also how simulation drives it.
    ///
    /// # Errors
    /// `Invalid` for settings of the sweeper that cannot work.
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
        heart: Option<Heart>,
    ) -> Result<Self> {
        let loops = Loops::new(Arc::clone(&clock), runtime.clone());
        let sweeper = match &settings.sweeper {
            Some(wanted) if store.steps().is_some() => Some(Sweeper::start(
                Arc::clone(&store),
                Arc::clone(&clock),
                wanted.clone(),
                &loops,
            )?),
            _ => None,
        };
        // Beats are sent from tasks that are on the heart already; everyone else goes through it.
        let batcher = BeatBatcher::new(Arc::clone(&store), Arc::clone(&clock), runtime.clone(), settings.batch);
        let store = if heart.is_some() {
            OnHeart::new(store, runtime.clone())
        } else {
            store
        };
        let max_ttl = settings.max_ttl;
        let context = Context {
            store,
            clock,
            runtime,
            batcher,
            max_ttl,
            sweeper,
            loops,
            _heart: heart.map(Arc::new),
        };
        Ok(Self {
            inner: Arc::new(Inner { context }),
        })
    }

    /// A group by name.
    ///
    /// # Errors
    /// `Invalid`, naming the first character that a name cannot have.
    pub fn group(&self, name: &str) -> Result<GroupHandle> {
        Ok(GroupHandle::new(self.inner.context.clone(), Group::new(name)?))
    }

    /// The store, for everything that has no handle here.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.context.store
    }

    /// The clock that [`Membership::valid_until`](crate::Membership::valid_until) is on.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.context.clock
    }

    /// What the loops of this process did so far.
    #[must_use]
    pub fn loops(&self) -> Vec<LoopStatus> {
        self.inner.context.loops.snapshot()
    }

    /// Stops the janitor and closes the store. Leave memberships first: without the store they cannot.
    pub async fn close(&self) {
        self.inner.context.loops.shut_down(Duration::from_secs(2)).await;
        self.inner.context.store.close().await;
    }
}
