//! The registration as a session of the store, in addition to the journal on disk.
//!
//! A claim would not work: the store's janitor evicts the claims of an ended tenure in one atomic step, a quarter of a
//! second after its end. Then all knowledge of the registration is gone, and the eviction event may be trimmed before a
//! process that can reach the agent reads it. A session outlives its connections. When the store's janitor has detached
//! ours, the session is disconnected and serves as a durable order to remove the registration. Any number of
//! [`super::consul::Janitor`]s may carry out the order; the session is deleted only while no connection is attached
//! again. The reaper deletes an order that was not carried out after [`KEPT`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::{Connection, SessionId};
use tenure_core::clock::{Clock, within};

use super::MembershipWatch;

/// How long an order is kept: by then, an agent that was unreachable for longer has removed the critical service
/// itself.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// The timeout of one attempt; nothing waits longer for the store.
const BOUND: Duration = Duration::from_millis(500);
/// The pause between two attempts to attach before the registration is made.
const RETRY: Duration = Duration::from_millis(100);

/// The session of one registration, attached while the registration may be in the catalog.
#[derive(Debug)]
pub(super) struct RegistrationSession {
    joined: MembershipWatch,
    session: SessionId,
    clock: Arc<dyn Clock>,
    connection: Mutex<Option<Connection>>,
}

impl RegistrationSession {
    /// No I/O.
    pub(super) fn new(joined: MembershipWatch, session: SessionId, clock: &Arc<dyn Clock>) -> Self {
        Self {
            joined,
            session,
            clock: Arc::clone(clock),
            connection: Mutex::new(None),
        }
    }

    /// Attaches before the registration is made: waits for the membership and the store, at most `bound`. If a
    /// supervisor is killed with its service registered but no session, only Consul's own reaper removes it, after
    /// minutes. A store outage longer than `bound` does not delay the registration further.
    pub(super) async fn attach_first(&self, bound: Duration) {
        let taken = async {
            loop {
                self.joined().await;
                self.attach().await;
                if self.is_attached() {
                    return;
                }
                self.clock.sleep(RETRY).await;
            }
        };
        if within(&*self.clock, bound, taken).await.is_none() {
            let session = &self.session;
            tracing::warn!(%session, "the store does not respond; registering without it: no janitor removes this registration until it does");
        }
    }

    /// Waits for the membership.
    pub(super) async fn joined(&self) {
        let mut joined = self.joined.clone();
        if joined.wait_for(Option::is_some).await.is_err() {
            // It will never be joined.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the membership is joined.
    pub(super) fn is_joined(&self) -> bool {
        self.joined.borrow().is_some()
    }

    /// Attaches if necessary; called at every beat. No I/O while attached. A failure is retried at the next beat.
    pub(super) async fn attach(&self) {
        if self.is_attached() {
            return;
        }
        let Some(membership) = self.joined.borrow().clone() else {
            return;
        };
        let sessions = membership.sessions();
        let name = format!("{:016x}", self.clock.entropy());
        let attach = sessions.attach(self.session.as_str(), &name).grace(KEPT);
        let why = match within(&*self.clock, BOUND, attach.send()).await {
            Some(Ok(tenure::Attach::Attached(connection))) => {
                *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
                return;
            }
            Some(Ok(tenure::Attach::AliasTaken { by })) => format!("its alias belongs to {by}"),
            Some(Ok(tenure::Attach::Gone)) => "the session does not exist".to_owned(),
            Some(Ok(tenure::Attach::Full { of })) => format!("it cannot have more than {of}"),
            Some(Err(error)) => error.chain(),
            None => "the store does not respond".to_owned(),
        };
        tracing::debug!(session = %self.session, why, "the session of the registration is not attached yet");
    }

    /// Whether a janitor would notice our death.
    fn is_attached(&self) -> bool {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .as_ref()
            .is_some_and(|connection| !connection.lost().is_cancelled())
    }

    /// Detaches and deletes the session: the registration is confirmed gone. On failure a janitor does it, and finds no
    /// registration.
    pub(super) async fn detach(&self) {
        let held = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(connection) = held else { return };
        let Some(membership) = self.joined.borrow().clone() else {
            return;
        };
        let sessions = membership.sessions();
        let done = within(&*self.clock, BOUND, async {
            connection.detach().await?;
            sessions.group().delete(self.session.as_str()).await
        })
        .await;
        match done {
            Some(Ok(_)) => {}
            Some(Err(error)) => tracing::debug!(session = %self.session, error = error.chain(), "left to a janitor"),
            None => tracing::debug!(session = %self.session, "left to a janitor: the store does not respond"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::{JoinOptions, Membership, SessionState, Tenure};
    use tenure_core::membership::EndBy;
    use tenure_core::store::Call;
    use tokio::sync::watch;

    const NAME: &str = "consul:00ff:127.0.0.1:8500:web-1";

    async fn joined(
        tenure: &Tenure,
    ) -> (
        Arc<Membership>,
        watch::Sender<Option<Arc<Membership>>>,
        RegistrationSession,
    ) {
        let options = JoinOptions::named("one").unwrap();
        let membership = Arc::new(tenure.group("web").unwrap().join(options).await.unwrap());
        let (tell, joined) = watch::channel(None);
        let hold = RegistrationSession::new(joined, SessionId::new(NAME).unwrap(), tenure.clock());
        (membership, tell, hold)
    }

    #[tokio::test]
    async fn session_attaches_with_the_membership_and_detach_deletes_it() {
        let tenure = Tenure::connect("memory:").await.unwrap();
        let (membership, tell, hold) = joined(&tenure).await;
        let sessions = membership.sessions();
        hold.attach().await;
        assert!(!hold.is_attached() && sessions.group().look_up(NAME).await.unwrap().is_none());
        hold.detach().await;
        tell.send_replace(Some(Arc::clone(&membership)));
        hold.attach().await;
        let first = sessions.group().look_up(NAME).await.unwrap().unwrap();
        hold.attach().await;
        let again = sessions.group().look_up(NAME).await.unwrap().unwrap();
        assert_eq!((first.state, first.epoch), (SessionState::Active, again.epoch));
        assert_eq!(first.grace, Some(KEPT));
        hold.detach().await;
        assert!(sessions.group().look_up(NAME).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn ended_tenure_leaves_a_disconnected_session() {
        let tenure = Tenure::connect("memory:").await.unwrap();
        let (membership, tell, hold) = joined(&tenure).await;
        tell.send_replace(Some(Arc::clone(&membership)));
        hold.attach().await;
        let (store, group) = (tenure.store(), membership.group());
        let ended = membership.tenure();
        store.end(group, &ended, EndBy::Expel, Call::default()).await.unwrap();
        let sessions = tenure.group("web").unwrap().sessions();
        let mut state = SessionState::Active;
        let (clock, patience) = (tenure.clock(), Duration::from_secs(30));
        let disconnected = async {
            while state != SessionState::Disconnected || sessions.stats().await.unwrap().disconnected == 0 {
                state = sessions.look_up(NAME).await.unwrap().unwrap().state;
                clock.sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(within(&**clock, patience, disconnected).await.is_some());
    }
}
