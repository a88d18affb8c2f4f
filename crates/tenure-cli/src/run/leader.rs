//! Where `run` hears whether this node is the primary.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::membership::{JoinOptions, Membership};
use tenure_core::clock::{Clock, jitter, within};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::{Group, LeaseName};
use tenure_core::supervise::Evidence;
use tenure_supervise::leadership::lease::{self, Contender};
use tenure_supervise::leadership::litefs::{self, LiteFsSettings};
use tenure_supervise::leadership::{Leadership, always};
use tenure_supervise::run::Seat;
use tenure_supervise::signals::Wish;
use tokio::sync::{mpsc, watch};

use crate::connect::{self, Connected};
use crate::exit::{FAILED, Usage};

/// The pause between two tries to reach the store at the start.
const RETRY: Duration = Duration::from_secs(1);
/// How long giving one thing up may take, at the end. What is not given up ends with its ttl.
const PATIENCE: Duration = Duration::from_millis(200);
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
    pub(super) store: String,
    pub(super) group: Group,
    pub(super) join: JoinOptions,
    pub(super) max_ttl: Duration,
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

    /// Begins to follow. A store that is out of reach is tried again and again; the evidence says so meanwhile.
    ///
    /// # Errors
    /// Wrong usage alone.
    pub(super) fn start(
        self,
        clock: &Arc<dyn Clock>,
        wish: mpsc::Sender<Wish>,
    ) -> anyhow::Result<(watch::Receiver<Evidence>, Arc<Standing>)> {
        let standing = Arc::new(Standing {
            clock: Arc::clone(clock),
            guarded: !matches!(self.leader, Leader::Lease(_)),
            held: Mutex::new(None),
        });
        let first = self.without_lease(clock)?;
        let Some(lease) = self.lease().cloned() else {
            let leadership = first.ok_or_else(|| Usage::new("--leader names no source"))?;
            let evidence = leadership.evidence();
            standing.hold(Held {
                leadership,
                member: None,
            });
            return Ok((evidence, standing));
        };
        let why = Evidence::Uncertain("the store was not reached yet".to_owned());
        let (tell, evidence) = watch::channel(why);
        let (clock, its) = (Arc::clone(clock), Arc::clone(&standing));
        tokio::spawn(async move {
            if let Some((evidence, membership)) = self.with_lease(lease, first, &clock, &its, &tell).await {
                tokio::select! {
                    () = relay(evidence, &tell) => {}
                    end = membership.ended() => tracing::error!(?end, "the membership is over for good"),
                }
            }
            // It was said why; the same would be said for ever.
            let _ = wish.send(Wish::End(FAILED)).await;
        });
        Ok((evidence, standing))
    }

    /// Joins and asks for the lease. `None` when that can never be.
    async fn with_lease(
        &self,
        lease: LeaseName,
        first: Option<Leadership>,
        clock: &Arc<dyn Clock>,
        standing: &Standing,
        tell: &watch::Sender<Evidence>,
    ) -> Option<(watch::Receiver<Evidence>, Arc<Membership>)> {
        let (connected, membership) = loop {
            match self.join().await {
                Ok(joined) => break joined,
                Err(error) if is_hopeless(&error) => {
                    tracing::error!(error = format!("{error:#}"), "the store cannot be used");
                    return None;
                }
                Err(error) => {
                    let why = format!("the store is out of reach: {error:#}");
                    tracing::warn!("{why}");
                    tell.send_replace(Evidence::Uncertain(why));
                    clock.sleep(jitter(&**clock, RETRY, 25)).await;
                }
            }
        };
        let membership = Arc::new(membership);
        // A name of a lease was read as one.
        let watched = lease::watch(Arc::clone(&membership), lease.as_str(), first.is_none(), clock);
        let (own, contender) = watched.ok()?;
        let leadership = match first {
            Some(first) => lease::guarded(clock, first, own, contender.clone()),
            None => own,
        };
        let evidence = leadership.evidence();
        standing.hold(Held {
            leadership,
            member: Some(Member {
                connected,
                membership: Arc::clone(&membership),
                contender,
            }),
        });
        Some((evidence, membership))
    }

    async fn join(&self) -> anyhow::Result<(Connected, Membership)> {
        let connected = connect::for_membership(&self.store, self.max_ttl).await?;
        let group = connected.tenure.group(self.group.as_str())?;
        let membership = group.join(self.join.clone()).await?;
        Ok((connected, membership))
    }
}

/// Whether trying again cannot help.
fn is_hopeless(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<Error>().map(Error::kind);
    error.is::<Usage>() || matches!(kind, Some(ErrorKind::Invalid | ErrorKind::Misconfigured))
}

async fn relay(mut from: watch::Receiver<Evidence>, to: &watch::Sender<Evidence>) {
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
    clock: Arc<dyn Clock>,
    /// The lease is a second guard: it goes when the first source says that this node does not lead.
    guarded: bool,
    held: Mutex<Option<Held>>,
}

struct Held {
    leadership: Leadership,
    member: Option<Member>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

struct Member {
    connected: Connected,
    membership: Arc<Membership>,
    contender: Contender,
}

impl Standing {
    fn hold(&self, held: Held) {
        *self.held() = Some(held);
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contender(&self) -> Option<Contender> {
        let held = self.held();
        held.as_ref()?.member.as_ref().map(|member| member.contender.clone())
    }

    /// The end. With `gives_up` others may lead at once, else when the tenure has lapsed: something of the child is left.
    pub(super) async fn end(&self, gives_up: bool) {
        let held = self.held().take();
        let Some(Held {
            leadership,
            member: Some(member),
        }) = held
        else {
            return;
        };
        if gives_up {
            member.contender.give_up(PATIENCE).await;
            let left = within(&*self.clock, PATIENCE, member.membership.leave()).await;
            if !matches!(left, Some(Ok(_))) {
                tracing::warn!(tenure = %member.membership.tenure(), "could not leave; it will lapse");
            }
        }
        drop(leadership);
        within(&*self.clock, PATIENCE, member.connected.tenure.close()).await;
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
