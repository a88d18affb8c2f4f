//! What one lease, or one key of a registry, may do, as a specification for the checker of `todc-utils`.
//!
//! **What it says.** A lease is a register of (holder, token). It is granted if it is free, or if its holder's tenure
//! may be over when the grant is answered: a tenure may be over for others once it began to leave, or once a whole ttl
//! has passed since the *sending* of its last confirmed beat, whichever is earlier. A grant has a token above all before.
//! The holder keeps its token. Only holder and token together release it. A read shows the holder; it shows it dead, or
//! no holder, only if its tenure may have ended or been superseded by then, and once it was shown dead it is never alive
//! again. A key is the same without tokens, and a claim takes it from the living unless it says otherwise.
//!
//! Each place of a shared lease is such a register of its own. An operator's release may free a place at any time after it
//! was sent, or never: [`check`](crate::check) judges whether that was too early.
//!
//! **What it does not say.** That a tenure ends in time: [`check`](crate::check) bounds how long a ghost may live. Which
//! of two ends came first. And after a declared loss of data, that reads are right for a name that was used before: they are left
//! out from then on, and a holder that the store forgot is over once one max ttl has passed since, or right away if only
//! the tail is lost.
//!
//! A call whose outcome is unknown may take effect at any time after its begin, or never.

use std::sync::Arc;

use todc_utils::specifications::Specification;

use crate::history::Micros;

/// From when a tenure may be over.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ends {
    /// What it holds alone may pass to others: it gave it up, or could not trust it any longer.
    pub free: Micros,
    /// It may read dead: also because it was superseded.
    pub dead: Micros,
    /// The number of its member.
    pub member: usize,
}

/// All tenures by number.
pub type Tenures = Arc<Vec<Ends>>;

/// One call, with its outcome.
#[derive(Debug, Clone)]
pub enum What {
    /// Granted under a token.
    Granted(u64),
    /// Refused: this tenure holds it.
    HeldBy(usize),
    /// It may have been granted.
    MaybeGranted,
    /// Released under a token, or found free.
    Released(u64),
    /// Refused: not held under this token.
    NotHolder(u64),
    /// It may have been released; `None` for whatever token.
    MaybeReleased(Option<u64>),
    /// Claimed, from its owner if it had one.
    Claimed,
    /// Claimed if no living member had it.
    ClaimedAbsent,
    /// It may have been claimed.
    MaybeClaimed,
    /// A read: the tenure, whether it is alive, its token.
    Reads(Option<(usize, bool, u64)>),
}

/// A call as the checker sees it.
#[derive(Debug, Clone)]
pub struct Step {
    /// What happened.
    pub what: What,
    /// Under which tenure.
    pub by: usize,
    /// When its outcome was known.
    pub end: Micros,
    /// All tenures.
    pub tenures: Tenures,
    /// One max ttl after data was lost, if that is before this call.
    pub forgotten: bool,
    /// Whether data has been lost before this call.
    pub is_after_loss: bool,
}

/// Who holds it: the tenure, its token if it is known (a claim has 0), whether it was seen dead; and the highest token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    holder: Option<(usize, Option<u64>, bool)>,
    highest: u64,
}

impl State {
    fn held(&self, by: usize, token: Option<u64>) -> Self {
        Self {
            holder: Some((by, token, false)),
            highest: self.highest.max(token.unwrap_or(0)),
        }
    }

    fn free(&self) -> Self {
        Self {
            holder: None,
            highest: self.highest,
        }
    }
}

/// The specification.
#[derive(Debug)]
pub struct Holding;

impl Specification for Holding {
    type State = State;
    type Operation = Step;

    fn init() -> State {
        State::default()
    }

    fn apply(step: &Step, state: &State) -> (bool, State) {
        let next = match &step.what {
            What::Granted(token) => granted(step, state, *token),
            What::HeldBy(other) => match state.holder {
                Some((by, _, _)) if by == *other => Some(state.clone()),
                _ => None,
            },
            What::MaybeGranted if can_pass(step, state) => Some(state.held(step.by, None)),
            What::MaybeGranted => Some(state.clone()),
            What::Released(token) => match state.holder {
                Some((by, own, _)) if by == step.by => own.is_none_or(|own| own == *token).then(|| state.free()),
                Some(_) => is_dead(step, state).then(|| state.free()),
                None => Some(state.clone()),
            },
            What::NotHolder(token) => match state.holder {
                Some((by, Some(own), _)) if by == step.by && own == *token && !step.is_after_loss => None,
                _ => Some(state.clone()),
            },
            What::MaybeReleased(token) => match state.holder {
                Some((by, own, _)) if by == step.by && (token.is_none() || own.is_none() || own == *token) => {
                    Some(state.free())
                }
                _ => Some(state.clone()),
            },
            What::Claimed | What::MaybeClaimed => Some(state.held(step.by, Some(0))),
            What::ClaimedAbsent => {
                (is_own_member(step, state) || is_dead(step, state)).then(|| state.held(step.by, Some(0)))
            }
            What::Reads(None) => is_dead(step, state).then(|| state.free()),
            What::Reads(Some((tenure, is_alive, token))) => reads(step, state, *tenure, *is_alive, *token),
        };
        match next {
            Some(next) => (true, next),
            None => (false, state.clone()),
        }
    }
}

/// Whether a lease can pass to another tenure by the end of the step.
fn can_pass(step: &Step, state: &State) -> bool {
    state
        .holder
        .is_none_or(|(by, _, _)| step.forgotten || step.tenures[by].free <= step.end)
}

/// Whether it has no holder, or the holder may read dead by the end of the step.
fn is_dead(step: &Step, state: &State) -> bool {
    state
        .holder
        .is_none_or(|(by, _, was_dead)| was_dead || step.forgotten || step.tenures[by].dead <= step.end)
}

fn is_own_member(step: &Step, state: &State) -> bool {
    state
        .holder
        .is_some_and(|(by, _, _)| step.tenures[by].member == step.tenures[step.by].member)
}

fn granted(step: &Step, state: &State, token: u64) -> Option<State> {
    match state.holder {
        Some((by, own, _)) if by == step.by && !step.is_after_loss => {
            (own == Some(token) || own.is_none() && token > state.highest).then(|| state.held(by, Some(token)))
        }
        Some((by, Some(own), _)) if by == step.by => (token >= own).then(|| state.held(by, Some(token))),
        _ => (can_pass(step, state) && token > state.highest).then(|| state.held(step.by, Some(token))),
    }
}

fn reads(step: &Step, state: &State, tenure: usize, is_alive: bool, token: u64) -> Option<State> {
    let (by, own, was_dead) = state.holder?;
    let fits = by == tenure && own.is_none_or(|own| own == token) && (!is_alive || !was_dead);
    if !fits || !is_alive && !is_dead(step, state) {
        return None;
    }
    Some(State {
        holder: Some((by, Some(token), !is_alive)),
        highest: state.highest.max(token),
    })
}
