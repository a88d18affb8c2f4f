//! Leadership: is this node the primary? A source is a stream of [`Evidence`].
//!
//! Sources answer [`Evidence::Primary`] only on positive evidence, [`Evidence::Replica`] only when somebody said so, and
//! [`Evidence::Uncertain`] for everything else: silence, hanging file systems, missing mounts, their own bugs. What
//! *uncertain* means for a child that runs is not theirs to decide.

mod events;
mod judge;
pub mod lease;
pub mod litefs;
mod mount;
mod standing;

use std::sync::Arc;

use tenure_core::clock::Clock;
pub use tenure_core::supervise::{Evidence, Primacy};
use tokio::sync::watch;

use crate::survive::{self, Task};

pub use mount::MountRule;
pub use standing::{Following, GIVING_UP, Leader, Standing};

/// A source of evidence, running. It stops with the handle; its receivers then keep the last word, so hold the handle
/// for as long as you believe it.
#[derive(Debug)]
pub struct Leadership {
    evidence: watch::Receiver<Evidence>,
    tasks: Vec<Task>,
    /// What the evidence is made of.
    _parts: Vec<Leadership>,
    /// The sender of a source that has nothing more to say, so that its receivers do not see an end.
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

    /// The evidence, and its changes: `borrow_and_update`, `changed`. A change that is overtaken by the next is skipped.
    #[must_use]
    pub fn evidence(&self) -> watch::Receiver<Evidence> {
        self.evidence.clone()
    }
}

/// A node that is always the primary.
#[must_use]
pub fn always() -> Leadership {
    let (tell, evidence) = watch::channel(Evidence::primary());
    Leadership {
        _silent: Some(tell),
        ..Leadership::new(evidence, Vec::new())
    }
}

/// Two sources that guard each other: primary only where both say so, replica where either says so, else uncertain.
///
/// Runs on the runtime of the caller.
#[must_use]
pub fn combine(clock: &Arc<dyn Clock>, first: Leadership, second: Leadership) -> Leadership {
    let (mut one, mut other) = (first.evidence(), second.evidence());
    let (tell, evidence) = watch::channel(both(&one.borrow_and_update(), &other.borrow_and_update()));
    let (broken, receivers) = (tell.clone(), (one, other));
    let task = survive::spawn(
        "combine",
        Arc::clone(clock),
        move || {
            let (tell, (mut one, mut other)) = (tell.clone(), receivers.clone());
            async move {
                loop {
                    let now = both(&one.borrow_and_update(), &other.borrow_and_update());
                    publish(&tell, now);
                    // The senders live as long as the sources, which live as long as this task.
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

/// What two sources say together.
#[must_use]
pub fn both(one: &Evidence, other: &Evidence) -> Evidence {
    match (one, other) {
        (Evidence::Replica, _) | (_, Evidence::Replica) => Evidence::Replica,
        (Evidence::Primary(one), Evidence::Primary(other)) => Evidence::Primary(Primacy {
            // The earlier of two deadlines; none counts as never.
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

/// Says something, unless it was said last.
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
