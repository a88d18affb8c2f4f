//! The membership of a supervisor, joined in the background: an unreachable store does not delay the start.

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

use crate::catalog::MembershipWatch;

/// The timeout for each release at the end. What is not released in time ends with its ttl.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_millis(200);

/// The pause between two attempts to reach the store.
const RETRY: Duration = Duration::from_secs(1);

/// How long the first attempt may delay the start. It is enough to reject an invalid URL.
const FIRST: Duration = Duration::from_secs(1);

/// Connects to the store. `Invalid` means that no attempt can ever succeed.
pub type Connect = Box<dyn Fn() -> BoxFuture<'static, Result<Tenure>> + Send + Sync>;

/// The membership to join.
pub struct JoinSettings {
    /// How to reach the store.
    pub connect: Connect,
    /// The group.
    pub group: Group,
    /// The member name and the ttl.
    pub options: JoinOptions,
}

impl fmt::Debug for JoinSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSettings")
            .field("group", &self.group)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The membership, once it is joined.
pub(crate) struct Member {
    joined: MembershipWatch,
    connected: Arc<Mutex<Option<Tenure>>>,
    over: watch::Receiver<bool>,
}

impl JoinSettings {
    /// Starts to join and retries until it succeeds. `doubt` receives the reason of each failure.
    ///
    /// # Errors
    /// `Invalid`, if the first attempt finds it: a supervisor must not start with settings that cannot work.
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
            if let Some((connected, membership)) = self.join_with_retry(first, &*clock, doubt).await {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(connected);
                let membership = Arc::new(membership);
                tell.send_replace(Some(Arc::clone(&membership)));
                match membership.ended().await {
                    Ok(EndReason::Left) => {}
                    Ok(reason) => tracing::error!(reason = reason.as_str(), "the membership has ended for good"),
                    Err(error) => tracing::error!(error = error.chain(), "the membership has ended for good"),
                }
            }
            end.send_replace(true);
            // The joined membership stays readable after its end.
            tell.closed().await;
        });
        Ok(Member {
            joined,
            connected,
            over,
        })
    }

    /// `None` when no attempt can succeed.
    async fn join_with_retry(
        &self,
        mut first: Option<Tenure>,
        clock: &dyn Clock,
        doubt: impl Fn(String),
    ) -> Option<(Tenure, Membership)> {
        loop {
            match self.join(first.take()).await {
                Ok(joined) => return Some(joined),
                Err(error) if is_permanent(&error) => {
                    tracing::error!(error = error.chain(), "the store cannot be used");
                    return None;
                }
                Err(error) => {
                    let why = format!("the store is unreachable: {}", error.chain());
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

/// Whether retrying cannot help.
fn is_permanent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Misconfigured)
}

impl Member {
    /// The membership, once it is joined.
    pub(crate) fn joined(&self) -> MembershipWatch {
        self.joined.clone()
    }

    pub(crate) async fn membership(mut joined: MembershipWatch) -> Arc<Membership> {
        loop {
            if let Some(membership) = joined.borrow_and_update().clone() {
                return membership;
            }
            if joined.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the store is joined. `None` after [`Member::end`].
    pub(crate) fn store(&self) -> impl Future<Output = Option<Arc<dyn Store>>> + Send + 'static {
        let (joined, connected) = (self.joined(), Arc::clone(&self.connected));
        async move {
            Self::membership(joined).await;
            let connected = connected.lock().unwrap_or_else(PoisonError::into_inner);
            connected.as_ref().map(|connected| Arc::clone(connected.store()))
        }
    }

    /// Completes when the membership has ended for good or cannot be joined. The reason was logged.
    pub(crate) fn over(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut over = self.over.clone();
        async move {
            // Without the task nothing can join any more.
            let _ = over.wait_for(|over| *over).await;
        }
    }

    /// Leaves if `leaves`, otherwise lets the tenure lapse. Closes the store.
    pub(crate) async fn end(&self, leaves: bool, clock: &dyn Clock) {
        let membership = self.joined.borrow().clone();
        if leaves && let Some(membership) = membership {
            let left = within(clock, RELEASE_TIMEOUT, membership.leave()).await;
            if !matches!(left, Some(Ok(_))) {
                tracing::warn!(tenure = %membership.tenure(), "could not leave; it will lapse");
            }
        }
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(connected) = connected {
            within(clock, RELEASE_TIMEOUT, connected.close()).await;
        }
    }
}
