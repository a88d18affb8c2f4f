//! What the holders write to: a sink that keeps a mark per lease, as `tenure::Fence` does it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure::{Fence, TenureId, Token};

/// A write that the fence refused although its sender trusted its lease.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The lease.
    pub lease: String,
    /// The token that came too late.
    pub token: Token,
    /// The higher one that had come before.
    pub seen: Token,
    /// Who sent it.
    pub tenure: TenureId,
}

/// The sink. It belongs to nobody's machine and never fails.
pub struct Sink {
    fence: Fence,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    highest: BTreeMap<String, Token>,
    written: u64,
    fenced: u64,
    fell: Option<String>,
    refused: Vec<Refused>,
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
    /// A write arrives. `trusted`: its sender trusts its lease at this very moment.
    pub fn write(&self, lease: &str, token: Token, tenure: &TenureId, trusted: bool) {
        let refused = self.fence.admit(lease, token).err();
        let mut state = self.state();
        let Some(refused) = refused else {
            state.written += 1;
            let highest = state.highest.entry(lease.to_owned()).or_insert(token);
            if token < *highest {
                state.fell = Some(format!("{lease}: {token} was written"));
            } else {
                *highest = token;
            }
            return;
        };
        state.fenced += 1;
        if trusted {
            state.refused.push(Refused {
                lease: lease.to_owned(),
                token,
                seen: refused.seen,
                tenure: tenure.clone(),
            });
        }
    }

    /// A write with an older token than one before it that got past the fence.
    #[must_use]
    pub fn fell(&self) -> Option<String> {
        self.state().fell.clone()
    }

    /// Writes of holders who trusted a lease that somebody else had had since.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.state().refused)
    }

    /// How many writes were admitted, and how many were fenced off.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.written, state.fenced)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
