//! The source of leadership that a node follows, and the lease it holds while it may lead.

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

use super::lease::{self, LeaseCandidate};
use super::litefs::{self, LiteFsSettings};
use super::{Leadership, always};
use crate::catalog::MembershipWatch;
use crate::member::{Member, RELEASE_TIMEOUT};
use crate::run::LeaderGuard;

/// The time to release everything at the end, out of the stop budget.
pub const RELEASE_BUDGET: Duration = Duration::from_millis(600);

/// What makes a node the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leader {
    /// The node itself: it is always the primary.
    Always,
    /// LiteFS, by the file `.primary` in this directory.
    LiteFs(PathBuf),
    /// A lease of the store.
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
                "{text:?} is not a source of leadership; write litefs:DIR, lease:NAME or always"
            )),
        }
    }
}

/// The sources of leadership.
#[derive(Debug)]
pub struct LeadershipSettings {
    /// The first source.
    pub leader: Leader,
    /// A lease as a second guard: both sources must say that this node is the primary.
    pub guard: Option<LeaseName>,
    /// For [`Leader::LiteFs`].
    pub litefs: LiteFsSettings,
}

impl LeadershipSettings {
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

    /// Starts to follow the sources. A lease needs the membership; until it is joined, the evidence is uncertain.
    /// `tell` receives the evidence.
    ///
    /// # Errors
    /// `Invalid` for a lease without a store, or for LiteFS settings that cannot work.
    pub fn start(
        self,
        clock: &Arc<dyn Clock>,
        joined: Option<MembershipWatch>,
        tell: watch::Sender<Evidence>,
    ) -> Result<Arc<LeadershipHandle>> {
        let handle = Arc::new(LeadershipHandle::default());
        let first = self.without_lease(clock)?;
        let (its, clock) = (Arc::clone(&handle), Arc::clone(clock));
        let Some(lease) = self.lease().cloned() else {
            let leadership = first.ok_or_else(|| Error::invalid("--leader names no source"))?;
            its.follow(leadership, None, tell);
            return Ok(handle);
        };
        let joined = joined.ok_or_else(|| Error::invalid("--leader: a lease needs a store"))?;
        tokio::spawn(async move {
            let membership = Member::membership(joined).await;
            // The lease name was validated before.
            let Ok((own, candidate)) = lease::watch(membership, lease.as_str(), first.is_none(), &clock) else {
                return;
            };
            let Some(first) = first else {
                return its.follow(own, Some(LeaseControl { candidate, guard: None }), tell);
            };
            let (first_says, lease_says) = (first.evidence(), own.evidence());
            let leadership = lease::guarded(&clock, first, own, candidate.clone());
            let guard = Some([first_says, leadership.evidence(), lease_says]);
            its.follow(leadership, Some(LeaseControl { candidate, guard }), tell);
        });
        Ok(handle)
    }
}

/// Forwards every change.
async fn relay(mut from: watch::Receiver<Evidence>, to: watch::Sender<Evidence>) {
    while from.changed().await.is_ok() {
        to.send_replace(from.borrow_and_update().clone());
    }
}

/// Controls the leadership that a node follows.
#[derive(Debug, Default)]
pub struct LeadershipHandle(Mutex<Option<Active>>);

#[derive(Debug)]
struct Active {
    /// Valid only while this source is held.
    leadership: Leadership,
    lease: Option<LeaseControl>,
    relay: JoinHandle<()>,
}

/// The candidate for the lease, and the evidence it guards.
#[derive(Debug, Clone)]
struct LeaseControl {
    candidate: LeaseCandidate,
    /// For a second guard: the evidence of the first source, of both combined, and of the lease alone.
    guard: Option<[watch::Receiver<Evidence>; 3]>,
}

impl LeaseControl {
    /// Whether the lease is held although neither the first source nor the combination says primary. The combination
    /// matters because a child starts on it.
    fn is_idle(&self) -> bool {
        let leads = |says: &watch::Receiver<Evidence>| matches!(*says.borrow(), Evidence::Primary(_));
        let guards = self
            .guard
            .as_ref()
            .is_none_or(|[first, both, _]| leads(first) || leads(both));
        !guards && self.candidate.holds()
    }

    /// Waits for new evidence. Pending forever once a source has ended.
    async fn changed(&mut self) {
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

impl LeadershipHandle {
    /// Publishes the first evidence before any later one.
    fn follow(&self, leadership: Leadership, lease: Option<LeaseControl>, tell: watch::Sender<Evidence>) {
        let mut evidence = leadership.evidence();
        let first = evidence.borrow_and_update().clone();
        *self.held() = Some(Active {
            leadership,
            lease,
            relay: tokio::spawn(relay(evidence, tell.clone())),
        });
        tell.send_replace(first);
    }

    fn held(&self) -> MutexGuard<'_, Option<Active>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> Option<LeaseControl> {
        self.held().as_ref()?.lease.clone()
    }

    /// Ends leadership. With `gives_up` other nodes may lead immediately. Otherwise the lease stays held until the
    /// tenure lapses, because a process of the child is left.
    pub async fn end(&self, gives_up: bool) {
        let held = self.held().take_if(|held| {
            held.relay.abort();
            gives_up
        });
        let Some(Active { leadership, lease, .. }) = held else {
            return;
        };
        // Drop the source first, so that nothing acquires the lease again.
        drop(leadership);
        if let Some(lease) = lease {
            lease.candidate.release(RELEASE_TIMEOUT).await;
        }
    }
}

#[async_trait]
impl LeaderGuard for LeadershipHandle {
    async fn idle(&self) {
        // A lease that is followed later is not idle before new evidence arrives.
        let Some(mut lease) = self.lease() else {
            return pending().await;
        };
        while !lease.is_idle() {
            lease.changed().await;
        }
    }

    async fn release(&self) {
        if let Some(lease) = self.lease()
            && lease.is_idle()
        {
            lease.candidate.release(RELEASE_TIMEOUT).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure::{JoinOptions, Tenure};
    use tenure_core::clock::within;

    use super::*;

    /// Whether it is idle now, without new evidence.
    async fn is_idle(handle: &LeadershipHandle, clock: &dyn Clock) -> bool {
        within(clock, Duration::from_millis(50), handle.idle()).await.is_some()
    }

    #[tokio::test]
    async fn idle_guard_is_released_and_a_childs_guard_is_kept() {
        let tenure = Tenure::connect("memory:").await.unwrap();
        let group = tenure.group("players").unwrap();
        let membership = Arc::new(group.join(JoinOptions::default()).await.unwrap());
        let clock = Arc::clone(tenure.clock());
        let (leadership, candidate) = lease::watch(membership, "music", true, &clock).unwrap();
        let mut lease = leadership.evidence();
        let holds = |said: &Evidence| matches!(said, Evidence::Primary(_));
        lease.wait_for(holds).await.unwrap();
        let (file, first) = watch::channel(Evidence::primary());
        let (together, both) = watch::channel(Evidence::primary());
        let (handle, hold) = (LeadershipHandle::default(), candidate.clone());
        let guard = Some([first, both, lease.clone()]);
        let lease_of = LeaseControl { candidate: hold, guard };
        handle.follow(leadership, Some(lease_of), watch::channel(Evidence::Replica).0);
        assert!(!is_idle(&handle, &*clock).await, "it guards");
        file.send_replace(Evidence::Replica);
        assert!(!is_idle(&handle, &*clock).await, "a child may start any moment");
        together.send_replace(Evidence::Replica);
        handle.idle().await;
        file.send_replace(Evidence::primary());
        handle.release().await;
        assert!(candidate.holds(), "it guards again");
        file.send_replace(Evidence::Uncertain("gone".to_owned()));
        handle.idle().await;
        handle.release().await;
        assert!(!candidate.holds() && !is_idle(&handle, &*clock).await);
        candidate.campaign();
        handle.idle().await;
        // The end, with and without processes of the child left.
        handle.end(false).await;
        assert!(candidate.holds());
        handle.end(true).await;
        assert!(!candidate.holds());
    }

    #[test]
    fn leader_parses_litefs_lease_and_always() {
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
