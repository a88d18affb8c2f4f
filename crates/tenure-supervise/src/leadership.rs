//! Leadership: is this node the primary? A source is a stream of [`Evidence`].
//!
//! A source reports [`Evidence::Primary`] only on positive evidence, [`Evidence::Replica`] only on an explicit
//! statement, and [`Evidence::Uncertain`] for everything else: silence, hanging file systems, missing mounts, its own
//! bugs. The supervisor decides what *uncertain* means for a running child.

mod evaluator;
mod events;
mod handle;
pub mod lease;
pub mod litefs;
mod mount;

use std::sync::Arc;

use tenure_core::clock::Clock;
pub use tenure_core::supervise::{Evidence, Primacy};
use tokio::sync::watch;

use crate::restart::{self, Task};

pub use handle::{Leader, LeadershipHandle, LeadershipSettings, RELEASE_BUDGET};
pub use mount::MountRule;

/// A running source of evidence. Dropping it stops the source; its receivers then keep the last value, so keep the
/// handle for as long as you rely on it.
#[derive(Debug)]
pub struct Leadership {
    evidence: watch::Receiver<Evidence>,
    tasks: Vec<Task>,
    /// The sources that this one combines.
    _parts: Vec<Leadership>,
    /// Keeps the channel open for a source that never changes.
    _silent: Option<watch::Sender<Evidence>>,
}

impl Leadership {
    fn new(evidence: watch::Receiver<Evidence>, tasks: Vec<Task>) -> Self {
        Self {
            evidence,
            tasks,
            _parts: Vec::new(),
            _silent: None,
        }
    }

    /// The evidence and its changes (`borrow_and_update`, `changed`). Receivers skip values that were overwritten
    /// before they looked.
    #[must_use]
    pub fn evidence(&self) -> watch::Receiver<Evidence> {
        self.evidence.clone()
    }
}

/// A source for a node that is always the primary.
#[must_use]
pub fn always() -> Leadership {
    let (tell, evidence) = watch::channel(Evidence::primary());
    Leadership {
        _silent: Some(tell),
        ..Leadership::new(evidence, Vec::new())
    }
}

/// Combines two sources: primary if both say so, replica if either says so, otherwise uncertain.
///
/// Runs on the caller's runtime.
#[must_use]
pub fn combine(clock: &Arc<dyn Clock>, first: Leadership, second: Leadership) -> Leadership {
    let (mut one, mut other) = (first.evidence(), second.evidence());
    let (tell, evidence) = watch::channel(both(&one.borrow_and_update(), &other.borrow_and_update()));
    let (broken, receivers) = (tell.clone(), (one, other));
    let task = restart::spawn(
        "combine",
        Arc::clone(clock),
        move || {
            let (tell, (mut one, mut other)) = (tell.clone(), receivers.clone());
            async move {
                loop {
                    let now = both(&one.borrow_and_update(), &other.borrow_and_update());
                    publish(&tell, now);
                    // The senders live as long as the sources, and the sources as long as this task.
                    let heard = tokio::select! {
                        heard = one.changed() => heard,
                        heard = other.changed() => heard,
                    };
                    if heard.is_err() {
                        publish(
                            &tell,
                            Evidence::Uncertain("a source of leadership has ended".to_owned()),
                        );
                        return;
                    }
                }
            }
        },
        move |why| publish(&broken, Evidence::Uncertain(why)),
    );
    Leadership {
        _parts: vec![first, second],
        ..Leadership::new(evidence, vec![task])
    }
}

/// Combines two pieces of evidence.
#[must_use]
pub fn both(one: &Evidence, other: &Evidence) -> Evidence {
    match (one, other) {
        (Evidence::Replica, _) | (_, Evidence::Replica) => Evidence::Replica,
        (Evidence::Primary(one), Evidence::Primary(other)) => Evidence::Primary(Primacy {
            // The earlier of two deadlines; `None` means never.
            until: match (one.until, other.until) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
            term: one.term.or(other.term),
            token: one.token.or(other.token),
        }),
        (Evidence::Uncertain(one), Evidence::Uncertain(other)) => Evidence::Uncertain(format!("{one}; {other}")),
        (Evidence::Uncertain(why), _) | (_, Evidence::Uncertain(why)) => Evidence::Uncertain(why.clone()),
    }
}

/// Sends the evidence unless it equals the last value.
fn publish(tell: &watch::Sender<Evidence>, evidence: Evidence) {
    tell.send_if_modified(|last| {
        let news = *last != evidence;
        if news {
            *last = evidence;
        }
        news
    });
}

#[cfg(test)]
mod tests;
