//! What a node follows to hear whether it is the primary, and what it holds while it may be.

use std::future::pending;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::Clock;
use tenure_core::error::{Error, Result};
use tenure_core::id::LeaseName;
use tenure_core::supervise::Evidence;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lease::{self, Contender};
use super::litefs::{self, LiteFsSettings};
use super::{Leadership, always};
use crate::catalog::Joined;
use crate::member::{Member, PATIENCE};
use crate::run::Seat;

/// What giving everything up takes at most, out of the stop budget.
pub const GIVING_UP: Duration = Duration::from_millis(600);

/// What makes a node the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leader {
    /// That it runs.
    Always,
    /// LiteFS, by the file `.primary` in this directory.
    LiteFs(PathBuf),
    /// This lease of the store.
    Lease(LeaseName),
}

impl FromStr for Leader {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
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
pub struct Following {
    /// The source.
    pub leader: Leader,
    /// A lease as a second guard: both have to say that this node is the primary.
    pub guard: Option<LeaseName>,
    /// For [`Leader::LiteFs`].
    pub litefs: LiteFsSettings,
}

impl Following {
    fn lease(&self) -> Option<&LeaseName> {
        match &self.leader {
            Leader::Lease(name) => Some(name),
            Leader::Always | Leader::LiteFs(_) => self.guard.as_ref(),
        }
    }

    fn without_lease(&self, clock: &Arc<dyn Clock>) -> Result<Option<Leadership>> {
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
    /// `Invalid` for a lease without a store, and settings of LiteFS that cannot work.
    pub fn start(
        self,
        clock: &Arc<dyn Clock>,
        joined: Option<Joined>,
        tell: watch::Sender<Evidence>,
    ) -> Result<Arc<Standing>> {
        let standing = Arc::new(Standing::default());
        let first = self.without_lease(clock)?;
        let (its, clock) = (Arc::clone(&standing), Arc::clone(clock));
        let Some(lease) = self.lease().cloned() else {
            let leadership = first.ok_or_else(|| Error::invalid("--leader names no source"))?;
            its.follow(leadership, None, tell);
            return Ok(standing);
        };
        let joined = joined.ok_or_else(|| Error::invalid("--leader: a lease needs a store"))?;
        tokio::spawn(async move {
            let membership = Member::membership(joined).await;
            // A name of a lease was read as one.
            let Ok((own, contender)) = lease::watch(membership, lease.as_str(), first.is_none(), &clock) else {
                return;
            };
            let Some(first) = first else {
                return its.follow(own, Some(Hold { contender, guard: None }), tell);
            };
            let (first_says, lease_says) = (first.evidence(), own.evidence());
            let leadership = lease::guarded(&clock, first, own, contender.clone());
            let guard = Some([first_says, leadership.evidence(), lease_says]);
            its.follow(leadership, Some(Hold { contender, guard }), tell);
        });
        Ok(standing)
    }
}

/// Hands on every change.
async fn relay(mut from: watch::Receiver<Evidence>, to: watch::Sender<Evidence>) {
    while from.changed().await.is_ok() {
        to.send_replace(from.borrow_and_update().clone());
    }
}

/// What this node holds while it may lead.
#[derive(Debug, Default)]
pub struct Standing(Mutex<Option<Held>>);

#[derive(Debug)]
struct Held {
    /// Believed only for as long as it is held.
    leadership: Leadership,
    lease: Option<Hold>,
    relay: JoinHandle<()>,
}

/// The lease, or the wish for it.
#[derive(Debug, Clone)]
struct Hold {
    contender: Contender,
    /// It is a second guard: what is said by the source that it guards, by both together, and by the lease alone.
    guard: Option<[watch::Receiver<Evidence>; 3]>,
}

impl Hold {
    /// It is a guard, and held where it guards nothing. Not where both together still say primary either, which is what
    /// a child would be started for.
    fn is_idle(&self) -> bool {
        let leads = |says: &watch::Receiver<Evidence>| matches!(*says.borrow(), Evidence::Primary(_));
        let guards = self
            .guard
            .as_ref()
            .is_none_or(|[first, both, _]| leads(first) || leads(both));
        !guards && self.contender.holds()
    }

    /// Waits for something to be said. Sources that say nothing any more have nothing to be waited for.
    async fn news(&mut self) {
        let Some([first, both, lease]) = &mut self.guard else {
            return pending().await;
        };
        let heard = tokio::select! {
            heard = first.changed() => heard,
            heard = both.changed() => heard,
            heard = lease.changed() => heard,
        };
        if heard.is_err() {
            pending().await
        }
    }
}

impl Standing {
    /// What is said first is heard before anything else is.
    fn follow(&self, leadership: Leadership, lease: Option<Hold>, tell: watch::Sender<Evidence>) {
        let mut evidence = leadership.evidence();
        let first = evidence.borrow_and_update().clone();
        *self.held() = Some(Held {
            leadership,
            lease,
            relay: tokio::spawn(relay(evidence, tell.clone())),
        });
        tell.send_replace(first);
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> Option<Hold> {
        self.held().as_ref()?.lease.clone()
    }

    /// The end. With `gives_up` others may lead at once, else when the tenure has lapsed: something of the child is left,
    /// and what is held stays held here.
    pub async fn end(&self, gives_up: bool) {
        let held = self.held().take_if(|held| {
            held.relay.abort();
            gives_up
        });
        let Some(Held { leadership, lease, .. }) = held else {
            return;
        };
        // First of all nobody asks for it again.
        drop(leadership);
        if let Some(lease) = lease {
            lease.contender.give_up(PATIENCE).await;
        }
    }
}

#[async_trait]
impl Seat for Standing {
    async fn idle(&self) {
        // What is followed later is news of its own.
        let Some(mut lease) = self.lease() else {
            return pending().await;
        };
        while !lease.is_idle() {
            lease.news().await;
        }
    }

    async fn vacate(&self) {
        if let Some(lease) = self.lease()
            && lease.is_idle()
        {
            lease.contender.give_up(PATIENCE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure::{JoinOptions, Tenure};
    use tenure_core::clock::within;

    use super::*;

    /// Whether it is idle now, or becomes so without anything more being said.
    async fn is_idle(standing: &Standing, clock: &dyn Clock) -> bool {
        within(clock, Duration::from_millis(50), standing.idle())
            .await
            .is_some()
    }

    #[tokio::test]
    async fn a_guard_is_given_up_where_it_guards_nothing_and_kept_while_anything_is_left_of_a_child() {
        let tenure = Tenure::connect("memory:").await.unwrap();
        let group = tenure.group("players").unwrap();
        let membership = Arc::new(group.join(JoinOptions::default()).await.unwrap());
        let clock = Arc::clone(tenure.clock());
        let (leadership, contender) = lease::watch(membership, "music", true, &clock).unwrap();
        let mut lease = leadership.evidence();
        let holds = |said: &Evidence| matches!(said, Evidence::Primary(_));
        lease.wait_for(holds).await.unwrap();
        let (file, first) = watch::channel(Evidence::primary());
        let (together, both) = watch::channel(Evidence::primary());
        let (standing, hold) = (Standing::default(), contender.clone());
        let guard = Some([first, both, lease.clone()]);
        let lease_of = Hold { contender: hold, guard };
        standing.follow(leadership, Some(lease_of), watch::channel(Evidence::Replica).0);
        assert!(!is_idle(&standing, &*clock).await, "it guards");
        file.send_replace(Evidence::Replica);
        assert!(!is_idle(&standing, &*clock).await, "a child may start any moment");
        together.send_replace(Evidence::Replica);
        standing.idle().await;
        file.send_replace(Evidence::primary());
        standing.vacate().await;
        assert!(contender.holds(), "it guards again");
        file.send_replace(Evidence::Uncertain("gone".to_owned()));
        standing.idle().await;
        standing.vacate().await;
        assert!(!contender.holds() && !is_idle(&standing, &*clock).await);
        contender.contend();
        standing.idle().await;
        // The end, with something of the child left, and with nothing.
        standing.end(false).await;
        assert!(contender.holds());
        standing.end(true).await;
        assert!(!contender.holds());
    }

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
