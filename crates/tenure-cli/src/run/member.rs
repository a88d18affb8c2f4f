//! The membership of a supervisor, joined in the background: a store that is away keeps nobody from starting.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::membership::{JoinOptions, Membership};
use tenure_core::clock::{Clock, jitter, within};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::Group;
use tenure_core::membership::EndReason;
use tenure_core::store::Store;
use tenure_supervise::catalog::Joined;
use tokio::sync::watch;

use super::leader::PATIENCE;
use crate::connect::{self, Connected};
use crate::exit::Usage;

/// The pause between two tries to reach the store at the start.
const RETRY: Duration = Duration::from_secs(1);

/// How long the first try may keep the command from starting. What is wrong with the URL shows without asking anyone.
const FIRST: Duration = Duration::from_secs(1);

/// What is to be joined.
#[derive(Debug, Clone)]
pub(super) struct Joining {
    pub(super) store: String,
    pub(super) group: Group,
    pub(super) options: JoinOptions,
    pub(super) max_ttl: Duration,
}

/// The membership, once it is there.
pub(super) struct Member {
    joined: Joined,
    connected: Arc<Mutex<Option<Connected>>>,
    over: watch::Receiver<bool>,
}

impl Joining {
    /// Begins to join, again and again until it has come to that. `doubt` hears why it has not yet.
    ///
    /// # Errors
    /// `Usage`, as far as that shows in a moment: a supervisor must not begin with what can never be.
    pub(super) async fn start(
        self,
        clock: &Arc<dyn Clock>,
        doubt: impl Fn(String) + Send + 'static,
    ) -> anyhow::Result<Member> {
        let first = match within(&**clock, FIRST, self.connect()).await {
            Some(Err(error)) if error.is::<Usage>() => return Err(error),
            first => first.and_then(Result::ok),
        };
        let (tell, joined) = watch::channel(None);
        let (end, over) = watch::channel(false);
        let connected = Arc::new(Mutex::new(None));
        let (clock, place) = (Arc::clone(clock), Arc::clone(&connected));
        tokio::spawn(async move {
            if let Some((connected, membership)) = self.join_at_last(first, &*clock, doubt).await {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(connected);
                let membership = Arc::new(membership);
                tell.send_replace(Some(Arc::clone(&membership)));
                match membership.ended().await {
                    Ok(EndReason::Left) => {}
                    Ok(reason) => tracing::error!(reason = reason.as_str(), "the membership is over for good"),
                    Err(error) => tracing::error!(error = error.chain(), "the membership is over for good"),
                }
            }
            end.send_replace(true);
            // What was joined stays there to be looked at, also when it is over.
            tell.closed().await;
        });
        Ok(Member {
            joined,
            connected,
            over,
        })
    }

    /// `None` when that can never be.
    async fn join_at_last(
        &self,
        mut first: Option<Connected>,
        clock: &dyn Clock,
        doubt: impl Fn(String),
    ) -> Option<(Connected, Membership)> {
        loop {
            match self.join(first.take()).await {
                Ok(joined) => return Some(joined),
                Err(error) if is_hopeless(&error) => {
                    tracing::error!(error = format!("{error:#}"), "the store cannot be used");
                    return None;
                }
                Err(error) => {
                    let why = format!("the store is out of reach: {error:#}");
                    tracing::warn!("{why}");
                    doubt(why);
                    clock.sleep(jitter(clock, RETRY, 25)).await;
                }
            }
        }
    }

    async fn connect(&self) -> anyhow::Result<Connected> {
        connect::for_membership(&self.store, self.max_ttl).await
    }

    async fn join(&self, connected: Option<Connected>) -> anyhow::Result<(Connected, Membership)> {
        let connected = match connected {
            Some(connected) => connected,
            None => self.connect().await?,
        };
        let group = connected.tenure.group(self.group.as_str())?;
        let membership = group.join(self.options.clone()).await?;
        Ok((connected, membership))
    }
}

/// Whether trying again cannot help.
fn is_hopeless(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<Error>().map(Error::kind);
    error.is::<Usage>() || matches!(kind, Some(ErrorKind::Invalid | ErrorKind::Misconfigured))
}

impl Member {
    /// The membership, once it is there.
    pub(super) fn joined(&self) -> Joined {
        self.joined.clone()
    }

    /// Waits for it.
    pub(super) async fn membership(mut joined: Joined) -> Arc<Membership> {
        loop {
            if let Some(membership) = joined.borrow_and_update().clone() {
                return membership;
            }
            if joined.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the store is joined. `None` when it has been let go of already.
    pub(super) fn store(&self) -> impl Future<Output = Option<Arc<dyn Store>>> + Send + 'static {
        let (joined, connected) = (self.joined(), Arc::clone(&self.connected));
        async move {
            Self::membership(joined).await;
            let connected = connected.lock().unwrap_or_else(PoisonError::into_inner);
            connected.as_ref().map(|connected| Arc::clone(connected.tenure.store()))
        }
    }

    /// Completes when it is over for good, or cannot be had at all; it was said why.
    pub(super) fn over(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut over = self.over.clone();
        async move {
            // A task that is gone cannot join any more.
            let _ = over.wait_for(|over| *over).await;
        }
    }

    /// Leaves when `leaves`, else the tenure lapses; lets go of the store.
    pub(super) async fn end(&self, leaves: bool, clock: &dyn Clock) {
        let membership = self.joined.borrow().clone();
        if leaves && let Some(membership) = membership {
            let left = within(clock, PATIENCE, membership.leave()).await;
            if !matches!(left, Some(Ok(_))) {
                tracing::warn!(tenure = %membership.tenure(), "could not leave; it will lapse");
            }
        }
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(connected) = connected {
            within(clock, PATIENCE, connected.tenure.close()).await;
        }
    }
}
