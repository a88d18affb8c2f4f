//! Where a fleet's targets come from.

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

/// The most targets of one fleet. A source that tells of more is refused as a whole: none is better than some.
pub const MAX_TARGETS: usize = 1_000_000;

/// What there is to work on, from wherever it is kept: a configuration file, a database, the live sessions of a group
/// ([`LiveSessions`](super::LiveSessions)), another program's keys (`KeyTargets` of `tenure-adopt`).
#[async_trait]
pub trait TargetSource: Send + Sync + 'static {
    /// All targets there are now. It is asked every few seconds, and may take its time.
    ///
    /// # Errors
    /// Whatever went wrong. The fleet then goes on with the targets that it knows, and asks again.
    async fn targets(&self) -> Result<BTreeMap<LeaseName, TargetSpec>>;

    /// Tells of changes, so that the fleet asks at once. Wake-ups may coalesce and may be for nothing. `None`, the
    /// default, when there is nothing to be told: then changes are found by asking.
    fn changes(&self) -> Option<watch::Receiver<()>> {
        None
    }
}

/// Targets that the program names itself, changeable at run time. Cheap to clone; all clones are one list.
///
/// Nodes whose lists differ share what they have in common, and each works alone on what only it names.
#[derive(Clone, Default)]
pub struct TargetList {
    inner: Arc<Listed>,
}

#[derive(Default)]
struct Listed {
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
    /// `Invalid`, naming the first character that a name cannot have.
    pub fn new<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Result<Self> {
        let list = Self::default();
        list.replace(names)?;
        Ok(list)
    }

    /// Makes the list exactly these targets. Those that were in it keep their weight, and stay paused if they were.
    ///
    /// # Errors
    /// `Invalid`; nothing changed then.
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

    /// Adds a target, or changes how it is to be treated.
    ///
    /// # Errors
    /// `Invalid` for a name or a weight that cannot be; nothing changed then.
    pub fn put(&self, name: &str, spec: TargetSpec) -> Result<()> {
        let (name, spec) = (LeaseName::new(name)?, spec.check()?);
        self.change(|targets| targets.insert(name, spec));
        Ok(())
    }

    /// Removes a target. Whether it was there.
    pub fn remove(&self, name: &str) -> bool {
        let Ok(name) = LeaseName::new(name) else { return false };
        self.change(|targets| targets.remove(&name).is_some())
    }

    /// Pauses a target, or lets it go on. Whether it is there.
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

/// The targets that the store keeps for the group, as `tenure targets` and the HTTP API change them. The fleet is told of
/// changes by the group's events.
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
    /// The targets of a group. Changes in the group that the fleet itself is in are noticed at once, those in another
    /// group within the fleet's discovery interval.
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

/// Refuses a list that is too long.
pub(super) fn check_count(count: usize) -> Result<()> {
    if count > MAX_TARGETS {
        let message = format!("there are more than {MAX_TARGETS} targets; no fleet is that large");
        return Err(Error::new(ErrorKind::Misconfigured, message));
    }
    Ok(())
}
