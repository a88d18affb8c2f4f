//! The registration as a holding of this process' tenure, beside the journal on disk.
//!
//! It is a *session* of the group, and the holding is our connection to it. A claim would not do: the janitor of the store
//! removes the claims of an ended tenure in one atomic step a quarter of a second after the end, whoever sweeps, and with
//! the claim goes all that was known of the registration; its event may be trimmed before anybody who can reach the agent
//! has read it. A session outlives its connections: when the janitor has detached ours, it is disconnected, which makes it a
//! durable order to look after the registration. Whoever has done so deletes it ([`super::consul::Janitor`]), and only
//! while nobody has attached again; any number may try. One that nobody could carry out is forgotten by the reaper after
//! [`KEPT`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::{Connection, SessionId};
use tenure_core::clock::{Clock, within};

use super::Joined;

/// For how long an order to clear a registration away is kept: an agent that was away for longer has removed what is
/// critical by itself.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long one try may take: what the store does is never waited for longer.
const BOUND: Duration = Duration::from_millis(500);
/// The pause between two tries to hold it before it is registered.
const RETRY: Duration = Duration::from_millis(100);

/// One registration, held for as long as it may be in the catalog.
#[derive(Debug)]
pub(super) struct Hold {
    joined: Joined,
    session: SessionId,
    clock: Arc<dyn Clock>,
    connection: Mutex<Option<Connection>>,
}

impl Hold {
    /// Does nothing yet.
    pub(super) fn new(joined: Joined, session: SessionId, clock: &Arc<dyn Clock>) -> Self {
        Self {
            joined,
            session,
            clock: Arc::clone(clock),
            connection: Mutex::new(None),
        }
    }

    /// Holds it before the registration is made: waits for the membership, and for the store to take the holding, for as
    /// long as `bound`. A supervisor that is killed with its service registered and not held leaves it to Consul's own
    /// reaper, for minutes. A store that is away for longer keeps no service out of the catalog.
    pub(super) async fn take_first(&self, bound: Duration) {
        let taken = async {
            loop {
                self.there().await;
                self.take().await;
                if self.is_held() {
                    return;
                }
                self.clock.sleep(RETRY).await;
            }
        };
        if within(&*self.clock, bound, taken).await.is_none() {
            let session = &self.session;
            tracing::warn!(%session, "the store does not answer; registering without it: until it answers, no janitor removes this registration");
        }
    }

    /// Waits for the membership.
    pub(super) async fn there(&self) {
        let mut joined = self.joined.clone();
        if joined.wait_for(Option::is_some).await.is_err() {
            // It will never be there.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the membership is there.
    pub(super) fn is_there(&self) -> bool {
        self.joined.borrow().is_some()
    }

    /// Holds it, again at every beat; no I/O while it is held. What is dropped or fails is tried again at the next beat.
    pub(super) async fn take(&self) {
        if self.is_held() {
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
            Some(Ok(tenure::Attach::Gone)) => "there is no such session".to_owned(),
            Some(Ok(tenure::Attach::Full { of })) => format!("it cannot have more than {of}"),
            Some(Err(error)) => error.chain(),
            None => "the store does not answer".to_owned(),
        };
        tracing::debug!(session = %self.session, why, "the registration is not held yet");
    }

    /// Whether a janitor would hear of our death.
    fn is_held(&self) -> bool {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .as_ref()
            .is_some_and(|connection| !connection.lost().is_cancelled())
    }

    /// Lets go: the registration is known to be gone. What fails is done by a janitor, who finds nothing to clear away.
    pub(super) async fn let_go(&self) {
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
            None => tracing::debug!(session = %self.session, "left to a janitor: the store does not answer"),
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

    async fn joined(tenure: &Tenure) -> (Arc<Membership>, watch::Sender<Option<Arc<Membership>>>, Hold) {
        let options = JoinOptions::named("one").unwrap();
        let membership = Arc::new(tenure.group("web").unwrap().join(options).await.unwrap());
        let (tell, joined) = watch::channel(None);
        let hold = Hold::new(joined, SessionId::new(NAME).unwrap(), tenure.clock());
        (membership, tell, hold)
    }

    #[tokio::test]
    async fn it_is_held_once_there_is_a_membership_and_leaves_nothing_when_it_is_let_go() {
        let tenure = Tenure::connect("memory:").await.unwrap();
        let (membership, tell, hold) = joined(&tenure).await;
        let sessions = membership.sessions();
        hold.take().await;
        assert!(!hold.is_held() && sessions.group().look_up(NAME).await.unwrap().is_none());
        hold.let_go().await;
        tell.send_replace(Some(Arc::clone(&membership)));
        hold.take().await;
        let first = sessions.group().look_up(NAME).await.unwrap().unwrap();
        hold.take().await;
        let again = sessions.group().look_up(NAME).await.unwrap().unwrap();
        assert_eq!((first.state, first.epoch), (SessionState::Active, again.epoch));
        assert_eq!(first.grace, Some(KEPT));
        hold.let_go().await;
        assert!(sessions.group().look_up(NAME).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn an_ended_tenure_leaves_an_order_to_look_after_it() {
        let tenure = Tenure::connect("memory:").await.unwrap();
        let (membership, tell, hold) = joined(&tenure).await;
        tell.send_replace(Some(Arc::clone(&membership)));
        hold.take().await;
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
