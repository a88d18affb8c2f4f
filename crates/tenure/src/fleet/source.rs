//! Where the targets of a fleet come from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, LeaseName};
use tenure_core::store::{MAX_PAGE, PageRequest, Store};
use tenure_core::target::TargetSpec;
use tokio::sync::watch;

use crate::client::Tenure;
use crate::group::GroupHandle;

/// The most targets of one fleet. A larger list is rejected as a whole.
pub const MAX_TARGETS: usize = 1_000_000;

/// A source of targets: a configuration file, a database, the live sessions of a group
/// ([`LiveSessions`](super::LiveSessions)), or the keys of another program (`KeyTargets` of `tenure-adopt`).
#[async_trait]
pub trait TargetSource: Send + Sync + 'static {
    /// All current targets. Called every few seconds; it may be slow.
    ///
    /// # Errors
    /// Any error. The fleet keeps its known targets and retries.
    async fn targets(&self) -> Result<BTreeMap<LeaseName, TargetSpec>>;

    /// A change notification, on which the fleet reads the targets immediately. Notifications may coalesce or be
    /// spurious. With `None`, the default, changes are found by polling.
    fn changes(&self) -> Option<watch::Receiver<()>> {
        None
    }
}

/// Targets listed by the program, changeable at run time. Clones share one list.
///
/// If the lists of nodes differ, they share the common targets, and each node alone works on what only it lists.
#[derive(Clone, Default)]
pub struct TargetList {
    inner: Arc<ListState>,
}

#[derive(Default)]
struct ListState {
    targets: Mutex<BTreeMap<LeaseName, TargetSpec>>,
    changed: watch::Sender<()>,
}

impl fmt::Debug for TargetList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TargetList").field(&*self.lock()).finish()
    }
}

impl TargetList {
    /// A list of targets of weight 1, not paused.
    ///
    /// # Errors
    /// `Invalid`, naming the first character that is not allowed.
    pub fn new<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Result<Self> {
        let list = Self::default();
        list.replace(names)?;
        Ok(list)
    }

    /// Replaces the list. Targets that were already listed keep their weight and pause.
    ///
    /// # Errors
    /// `Invalid`, with nothing changed.
    pub fn replace<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<()> {
        let names: Vec<LeaseName> = names.into_iter().map(LeaseName::new).collect::<Result<_>>()?;
        self.change(|targets| {
            let before = std::mem::take(targets);
            targets.extend(names.into_iter().map(|name| {
                let spec = before.get(&name).copied().unwrap_or_default();
                (name, spec)
            }));
        });
        Ok(())
    }

    /// Adds or updates a target.
    ///
    /// # Errors
    /// `Invalid` for a name or weight that is not allowed, with nothing changed.
    pub fn put(&self, name: &str, spec: TargetSpec) -> Result<()> {
        let (name, spec) = (LeaseName::new(name)?, spec.check()?);
        self.change(|targets| targets.insert(name, spec));
        Ok(())
    }

    /// Removes a target. Returns whether it was listed.
    pub fn remove(&self, name: &str) -> bool {
        let Ok(name) = LeaseName::new(name) else { return false };
        self.change(|targets| targets.remove(&name).is_some())
    }

    /// Pauses or resumes a target. Returns whether it is listed.
    pub fn pause(&self, name: &str, paused: bool) -> bool {
        let Ok(name) = LeaseName::new(name) else { return false };
        self.change(|targets| targets.get_mut(&name).map(|spec| spec.paused = paused).is_some())
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<LeaseName, TargetSpec>) -> T) -> T {
        let answer = change(&mut self.lock());
        self.inner.changed.send_replace(());
        answer
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseName, TargetSpec>> {
        self.inner.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TargetSource for TargetList {
    async fn targets(&self) -> Result<BTreeMap<LeaseName, TargetSpec>> {
        Ok(self.lock().clone())
    }

    fn changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.inner.changed.subscribe())
    }
}

/// The targets stored for the group, as edited with `tenure targets` and the HTTP API. The events of the group report
/// changes.
#[derive(Clone)]
pub struct StoredTargets {
    store: Arc<dyn Store>,
    group: Group,
}

impl fmt::Debug for StoredTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredTargets({})", self.group)
    }
}

impl StoredTargets {
    /// The targets of a group. Changes are noticed immediately in the fleet's own group, and within the discovery
    /// interval in another group.
    #[must_use]
    pub fn of(tenure: &Tenure, group: &GroupHandle) -> Self {
        Self::new(Arc::clone(tenure.store()), group.name().clone())
    }

    pub(super) fn new(store: Arc<dyn Store>, group: Group) -> Self {
        Self { store, group }
    }
}

#[async_trait]
impl TargetSource for StoredTargets {
    async fn targets(&self) -> Result<BTreeMap<LeaseName, TargetSpec>> {
        let (mut targets, mut after) = (BTreeMap::new(), None);
        loop {
            let page = self
                .store
                .targets(&self.group, &PageRequest::new(after, MAX_PAGE)?)
                .await?;
            targets.extend(page.items.into_iter().map(|target| (target.target, target.spec)));
            after = page.next;
            if after.is_none() {
                return Ok(targets);
            }
            check_count(targets.len())?;
        }
    }
}

/// Rejects a list that is too long.
pub(super) fn check_count(count: usize) -> Result<()> {
    if count > MAX_TARGETS {
        let message = format!("there are more than {MAX_TARGETS} targets, the limit of a fleet; use several groups");
        return Err(Error::new(ErrorKind::Misconfigured, message));
    }
    Ok(())
}
