//! Where `run` hears whether this node is the primary.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::Clock;
use tenure_core::id::LeaseName;
use tenure_core::supervise::Evidence;
use tenure_supervise::catalog::Joined;
use tenure_supervise::leadership::lease::{self, Contender};
use tenure_supervise::leadership::litefs::{self, LiteFsSettings};
use tenure_supervise::leadership::{Leadership, always};
use tenure_supervise::run::Seat;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::member::Member;
use crate::exit::Usage;

/// How long giving one thing up may take, at the end. What is not given up ends with its ttl.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);
/// What giving everything up takes at most, out of the stop budget.
pub(super) const GIVING_UP: Duration = Duration::from_millis(600);

/// `--leader`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leader {
    Always,
    LiteFs(PathBuf),
    Lease(LeaseName),
}

impl FromStr for Leader {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "always" => Ok(Self::Always),
            Some(("litefs", dir)) if !dir.is_empty() => Ok(Self::LiteFs(dir.into())),
            Some(("lease", name)) => LeaseName::new(name).map(Self::Lease).map_err(|error| error.to_string()),
            _ => Err(format!(
                "{text:?} is no source of leadership; write litefs:DIR, lease:NAME or always"
            )),
        }
    }
}

/// What is to be followed.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) leader: Leader,
    pub(super) guard: Option<LeaseName>,
    pub(super) litefs: LiteFsSettings,
}

impl Following {
    fn lease(&self) -> Option<&LeaseName> {
        match &self.leader {
            Leader::Lease(name) => Some(name),
            Leader::Always | Leader::LiteFs(_) => self.guard.as_ref(),
        }
    }

    fn without_lease(&self, clock: &Arc<dyn Clock>) -> tenure_core::Result<Option<Leadership>> {
        match &self.leader {
            Leader::Always => Ok(Some(always())),
            Leader::LiteFs(_) => litefs::watch(self.litefs.clone(), clock).map(Some),
            Leader::Lease(_) => Ok(None),
        }
    }

    /// Begins to follow. A lease is asked for once the store is joined; until then nothing is certain, and `tell` is where
    /// others say why.
    ///
    /// # Errors
    /// Wrong usage alone.
    pub(super) fn start(
        self,
        clock: &Arc<dyn Clock>,
        joined: Option<Joined>,
        tell: watch::Sender<Evidence>,
    ) -> anyhow::Result<Arc<Standing>> {
        let standing = Arc::new(Standing {
            guarded: !matches!(self.leader, Leader::Lease(_)),
            held: Mutex::new(None),
        });
        let first = self.without_lease(clock)?;
        let (its, clock) = (Arc::clone(&standing), Arc::clone(clock));
        let Some(lease) = self.lease().cloned() else {
            let leadership = first.ok_or_else(|| Usage::new("--leader names no source"))?;
            its.follow(leadership, None, tell);
            return Ok(standing);
        };
        let joined = joined.ok_or_else(|| Usage::new("--leader: a lease needs a store"))?;
        tokio::spawn(async move {
            let membership = Member::membership(joined).await;
            // A name of a lease was read as one.
            let Ok((own, contender)) = lease::watch(membership, lease.as_str(), first.is_none(), &clock) else {
                return;
            };
            let leadership = match first {
                Some(first) => lease::guarded(&clock, first, own, contender.clone()),
                None => own,
            };
            its.follow(leadership, Some(contender), tell);
        });
        Ok(standing)
    }
}

async fn relay(mut from: watch::Receiver<Evidence>, to: watch::Sender<Evidence>) {
    loop {
        to.send_replace(from.borrow_and_update().clone());
        if from.changed().await.is_err() {
            return;
        }
    }
}

/// What this node holds while it may lead.
#[derive(Debug)]
pub(super) struct Standing {
    /// The lease is a second guard: it goes when the first source says that this node does not lead.
    guarded: bool,
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    /// Believed only for as long as it is held.
    _leadership: Leadership,
    contender: Option<Contender>,
    relay: JoinHandle<()>,
}

impl Standing {
    fn follow(&self, leadership: Leadership, contender: Option<Contender>, tell: watch::Sender<Evidence>) {
        let relay = tokio::spawn(relay(leadership.evidence(), tell));
        *self.held() = Some(Held {
            _leadership: leadership,
            contender,
            relay,
        });
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contender(&self) -> Option<Contender> {
        self.held().as_ref()?.contender.clone()
    }

    /// The end. With `gives_up` others may lead at once, else when the tenure has lapsed: something of the child is left.
    pub(super) async fn end(&self, gives_up: bool) {
        let Some(held) = self.held().take() else { return };
        held.relay.abort();
        if gives_up && let Some(contender) = &held.contender {
            contender.give_up(PATIENCE).await;
        }
    }
}

#[async_trait]
impl Seat for Standing {
    async fn vacate(&self) {
        if self.guarded
            && let Some(contender) = self.contender()
        {
            contender.give_up(PATIENCE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_a_file_system_a_lease_or_always() {
        let leader = |text: &str| text.parse::<Leader>();
        assert_eq!(leader("always"), Ok(Leader::Always));
        assert_eq!(leader("litefs:/data"), Ok(Leader::LiteFs("/data".into())));
        assert_eq!(
            leader("lease:music"),
            Ok(Leader::Lease(LeaseName::new("music").unwrap()))
        );
        for wrong in ["", "litefs", "litefs:", "lease:", "lease:a b", "never"] {
            assert!(leader(wrong).is_err(), "{wrong}");
        }
    }
}
