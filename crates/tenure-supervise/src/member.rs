//! The membership of a supervisor, joined in the background: a store that is away keeps nobody from starting.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tenure::Tenure;
use tenure::membership::{JoinOptions, Membership};
use tenure_core::clock::{Clock, jitter, within};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::membership::EndReason;
use tenure_core::store::Store;
use tokio::sync::watch;

use crate::catalog::Joined;

/// How long giving one thing up may take, at the end. What is not given up ends with its ttl.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// The pause between two tries to reach the store at the start.
const RETRY: Duration = Duration::from_secs(1);

/// How long the first try may keep the command from starting. What is wrong with the URL shows without asking anyone.
const FIRST: Duration = Duration::from_secs(1);

/// Connects to the store. `Invalid` is for what shows without asking anyone, and can never be.
pub type Connect = Box<dyn Fn() -> BoxFuture<'static, Result<Tenure>> + Send + Sync>;

/// What is to be joined.
pub struct Joining {
    /// How to reach the store.
    pub connect: Connect,
    /// The group.
    pub group: Group,
    /// Under which name, and with which ttl.
    pub options: JoinOptions,
}

impl fmt::Debug for Joining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joining")
            .field("group", &self.group)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The membership, once it is there.
pub(crate) struct Member {
    joined: Joined,
    connected: Arc<Mutex<Option<Tenure>>>,
    over: watch::Receiver<bool>,
}

impl Joining {
    /// Begins to join, again and again until it has come to that. `doubt` hears why it has not yet.
    ///
    /// # Errors
    /// `Invalid`, as far as that shows in a moment: a supervisor must not begin with what can never be.
    pub(crate) async fn start(self, clock: &Arc<dyn Clock>, doubt: impl Fn(String) + Send + 'static) -> Result<Member> {
        let first = match within(&**clock, FIRST, (self.connect)()).await {
            Some(Err(error)) if error.kind() == ErrorKind::Invalid => return Err(error),
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
        mut first: Option<Tenure>,
        clock: &dyn Clock,
        doubt: impl Fn(String),
    ) -> Option<(Tenure, Membership)> {
        loop {
            match self.join(first.take()).await {
                Ok(joined) => return Some(joined),
                Err(error) if is_hopeless(&error) => {
                    tracing::error!(error = error.chain(), "the store cannot be used");
                    return None;
                }
                Err(error) => {
                    let why = format!("the store is out of reach: {}", error.chain());
                    tracing::warn!("{why}");
                    doubt(why);
                    clock.sleep(jitter(clock, RETRY, 25)).await;
                }
            }
        }
    }

    async fn join(&self, connected: Option<Tenure>) -> Result<(Tenure, Membership)> {
        let connected = match connected {
            Some(connected) => connected,
            None => (self.connect)().await?,
        };
        let group = connected.group(self.group.as_str())?;
        let membership = group.join(self.options.clone()).await?;
        Ok((connected, membership))
    }
}

/// Whether trying again cannot help.
fn is_hopeless(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Misconfigured)
}

impl Member {
    /// The membership, once it is there.
    pub(crate) fn joined(&self) -> Joined {
        self.joined.clone()
    }

    /// Waits for it.
    pub(crate) async fn membership(mut joined: Joined) -> Arc<Membership> {
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
    pub(crate) fn store(&self) -> impl Future<Output = Option<Arc<dyn Store>>> + Send + 'static {
        let (joined, connected) = (self.joined(), Arc::clone(&self.connected));
        async move {
            Self::membership(joined).await;
            let connected = connected.lock().unwrap_or_else(PoisonError::into_inner);
            connected.as_ref().map(|connected| Arc::clone(connected.store()))
        }
    }

    /// Completes when it is over for good, or cannot be had at all; it was said why.
    pub(crate) fn over(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut over = self.over.clone();
        async move {
            // A task that is gone cannot join any more.
            let _ = over.wait_for(|over| *over).await;
        }
    }

    /// Leaves when `leaves`, else the tenure lapses; lets go of the store.
    pub(crate) async fn end(&self, leaves: bool, clock: &dyn Clock) {
        let membership = self.joined.borrow().clone();
        if leaves && let Some(membership) = membership {
            let left = within(clock, PATIENCE, membership.leave()).await;
            if !matches!(left, Some(Ok(_))) {
                tracing::warn!(tenure = %membership.tenure(), "could not leave; it will lapse");
            }
        }
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(connected) = connected {
            within(clock, PATIENCE, connected.close()).await;
        }
    }
}
