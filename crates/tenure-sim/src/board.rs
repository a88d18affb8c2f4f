//! What the operators of a roster were answered: the providers that they have deactivated, and who was shown as
//! available afterwards. It runs on no machine of the simulation, like the [`sink`](crate::sink).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure::ProviderId;

use crate::time::{At, WorldClock};

/// A provider that was shown or let in although an operator had been told that it is deactivated.
#[derive(Debug, Clone)]
pub struct LetIn {
    /// The provider.
    pub provider: ProviderId,
    /// When the operator was answered.
    pub answered: At,
    /// Whether the process is the one that answered.
    pub same_process: bool,
    /// When the look-up or act began.
    pub began: At,
    /// The node that let it in.
    pub node: usize,
    /// What it was let in for.
    pub how: &'static str,
}

/// A look-up or an act that has begun: what was deactivated then.
#[derive(Debug, Clone)]
pub struct Look {
    began: At,
    denied: BTreeMap<ProviderId, (At, u64)>,
}

#[derive(Debug, Default)]
struct BoardState {
    /// Deactivated providers: when the operator was answered, and by which process.
    denied: BTreeMap<ProviderId, (At, u64)>,
    /// The number of activations that have begun, and of those that are not answered.
    activations: BTreeMap<ProviderId, (u64, u64)>,
    let_in: Vec<LetIn>,
}

/// The board.
#[derive(Debug)]
pub struct Board {
    world: WorldClock,
    state: Mutex<BoardState>,
}

impl Board {
    /// An empty board.
    #[must_use]
    pub fn new(world: &WorldClock) -> Self {
        Self {
            world: world.clone(),
            state: Mutex::default(),
        }
    }

    /// An operator begins to deactivate a provider. Returns what [`Board::deactivated`] takes.
    #[must_use]
    pub fn deactivating(&self, provider: &ProviderId) -> Option<u64> {
        let state = self.state();
        let (begun, open) = state.activations.get(provider).copied().unwrap_or_default();
        (open == 0).then_some(begun)
    }

    /// The operator was answered by this process.
    pub fn deactivated(&self, provider: &ProviderId, before: Option<u64>, process: u64) {
        let now = self.world.now();
        let mut state = self.state();
        let begun = state.activations.get(provider).map_or(0, |(begun, _)| *begun);
        // An activation that began in between may have come later.
        if before == Some(begun) {
            state.denied.insert(provider.clone(), (now, process));
        }
    }

    /// An operator begins to activate a provider. If its answer is lost, the activation stays open.
    pub fn activating(&self, provider: &ProviderId) {
        let mut state = self.state();
        state.denied.remove(provider);
        let (begun, open) = state.activations.entry(provider.clone()).or_default();
        (*begun, *open) = (*begun + 1, *open + 1);
    }

    /// The operator was answered.
    pub fn activated(&self, provider: &ProviderId) {
        if let Some((_, open)) = self.state().activations.get_mut(provider) {
            *open -= 1;
        }
    }

    /// A look-up or an act begins.
    #[must_use]
    pub fn look(&self) -> Look {
        Look {
            began: self.world.now(),
            denied: self.state().denied.clone(),
        }
    }

    /// The look-up showed, or the act let in, this provider.
    pub fn shown(&self, look: &Look, provider: &ProviderId, node: usize, process: u64, how: &'static str) {
        let mut state = self.state();
        if let Some((answered, by)) = look.denied.get(provider)
            && state.denied.get(provider) == Some(&(*answered, *by))
        {
            state.let_in.push(LetIn {
                provider: provider.clone(),
                answered: *answered,
                same_process: *by == process,
                began: look.began,
                node,
                how,
            });
        }
    }

    /// Takes what was let in since the last call.
    #[must_use]
    pub fn take_let_in(&self) -> Vec<LetIn> {
        std::mem::take(&mut self.state().let_in)
    }

    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
