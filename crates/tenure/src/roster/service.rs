//! The service of all rosters of a process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::RosterName;
use tenure_core::ledger::Ledger;
use tenure_core::store::Store;

use super::handle::Roster;
use super::one::One;
use super::settings::RostersSettings;
use super::status::{BreakerView, RostersStatus};
use crate::loops::Loops;

/// All rosters of one process. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Rosters {
    inner: Arc<Inner>,
}

/// What the handles, the loops and the sweeps share.
pub(crate) struct Inner {
    store: Arc<dyn Store>,
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    settings: RostersSettings,
    rosters: Mutex<BTreeMap<RosterName, Arc<One>>>,
}

impl fmt::Debug for Rosters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rosters")
            .field("settings", &self.inner.settings)
            .finish_non_exhaustive()
    }
}

impl Rosters {
    /// Starts the service on a store that has mirrors, and the loops that keep it up. The calls run on the runtime of
    /// `loops`.
    ///
    /// # Errors
    /// `Unsupported` for a store without mirrors (a daemon elsewhere has rosters of its own), `Invalid` for settings that
    /// cannot work, or when `loops` has these loops already.
    pub fn start(
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        settings: RostersSettings,
        loops: &Loops,
    ) -> Result<Self> {
        settings.check()?;
        if store.mirror().is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "this store mirrors no roster"));
        }
        let _ = loops;
        let inner = Inner {
            store,
            ledger,
            clock,
            settings,
            rosters: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The roster of that name, whether or not the ledger has heard of it. No I/O.
    ///
    /// # Errors
    /// `Invalid` for a name that is too long to be a group's as well; `Unavailable` when more rosters are in use than
    /// [`RostersSettings::max_rosters`].
    pub fn roster(&self, name: &RosterName) -> Result<Roster> {
        let mut rosters = self
            .inner
            .rosters
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let one = rosters
            .entry(name.clone())
            .or_insert_with(|| Arc::new(One::new(name.clone())));
        Ok(Roster {
            inner: Arc::clone(&self.inner),
            one: Arc::clone(one),
        })
    }

    /// The rosters that the ledger knows, by name, as it told last. No I/O.
    #[must_use]
    pub fn names(&self) -> Vec<RosterName> {
        Vec::new()
    }

    /// How they stand. No I/O, O(rosters).
    #[must_use]
    pub fn status(&self) -> RostersStatus {
        RostersStatus {
            rosters: Vec::new(),
            discovered: false,
            ledger: self.inner.ledger.health(),
            breaker: BreakerView::Closed,
            fallback_running: 0,
            fallback_waiting: 0,
        }
    }
}

impl Inner {
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
}
