//! The storage that lease holders write to. It keeps the highest token per lease and place, like `tenure::Fence`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure::{Fence, LeaseGuard, LeaseName, TenureId, Token};

/// A write under a lease.
#[derive(Debug, Clone)]
pub struct Write {
    /// The lease.
    pub lease: LeaseName,
    /// The name under which the storage keeps the highest token: one per place.
    pub resource: String,
    /// The token of the grant.
    pub token: Token,
    /// The sender.
    pub tenure: TenureId,
}

impl Write {
    /// A write under this guard.
    #[must_use]
    pub fn under(guard: &LeaseGuard) -> Self {
        Self {
            lease: guard.lease().clone(),
            resource: guard.fence_resource(),
            token: guard.token(),
            tenure: guard.tenure().clone(),
        }
    }
}

/// A write that the fence refused although its sender trusted its lease.
#[derive(Debug, Clone)]
pub struct RefusedWrite {
    /// The lease.
    pub lease: LeaseName,
    /// The token of the write.
    pub token: Token,
    /// The higher token seen before.
    pub seen: Token,
    /// The sender.
    pub tenure: TenureId,
}

/// The storage. It runs on no machine of the simulation and never fails.
pub struct Sink {
    fence: Fence,
    state: Mutex<SinkState>,
}

#[derive(Debug, Default)]
struct SinkState {
    highest: BTreeMap<String, Token>,
    written: u64,
    fenced: u64,
    regression: Option<String>,
    refused: Vec<RefusedWrite>,
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sink({:?})", self.state())
    }
}

impl Default for Sink {
    fn default() -> Self {
        Self {
            fence: Fence::new(64),
            state: Mutex::default(),
        }
    }
}

impl Sink {
    /// Handles a write. `trusted`: its sender trusts its lease at this instant.
    pub fn write(&self, write: &Write, trusted: bool) {
        let Write {
            lease,
            resource,
            token,
            tenure,
        } = write;
        let refused = self.fence.admit(resource, *token).err();
        let mut state = self.state();
        let Some(refused) = refused else {
            state.written += 1;
            let highest = state.highest.entry(resource.clone()).or_insert(*token);
            if token < highest {
                state.regression = Some(format!("{resource}: {token} was written"));
            } else {
                *highest = *token;
            }
            return;
        };
        state.fenced += 1;
        if trusted {
            state.refused.push(RefusedWrite {
                lease: lease.clone(),
                token: *token,
                seen: refused.seen,
                tenure: tenure.clone(),
            });
        }
    }

    /// A write with a token below an earlier one that the fence admitted.
    #[must_use]
    pub fn regression(&self) -> Option<String> {
        self.state().regression.clone()
    }

    /// Writes whose sender trusted a lease that another holder had acquired since.
    pub fn take_refused(&self) -> Vec<RefusedWrite> {
        std::mem::take(&mut self.state().refused)
    }

    /// The number of admitted writes and of refused ones.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.written, state.fenced)
    }

    fn state(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
