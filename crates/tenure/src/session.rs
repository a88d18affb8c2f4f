//! Sessions from a front-end's point of view: the connections that it serves, and the data of their sessions.
//!
//! When a client of a chat or a game connects, the front-end attaches that connection to the client's session with
//! [`Sessions::attach`]. The result is a [`Connection`], held under the tenure of the membership: the beats of the
//! membership keep all of them alive, and when this process dies, the janitor of another process detaches them. When a
//! session loses its last connection, its grace begins. An attach within the grace resumes the session with its data,
//! alias and room. After the grace the session is an orphan: it cannot be resumed, and the reaper deletes it.
//!
//! ```
//! use tenure::{JoinOptions, Tenure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure::Result<()> {
//! let tenure = Tenure::connect("memory:").await?;
//! let membership = tenure.group("chat")?.join(JoinOptions::named("front-1")?).await?;
//! let sessions = membership.sessions();
//!
//! // One name per socket: a connection is never attached twice.
//! let attach = sessions.attach("alice-session", "socket-1").alias("alice").field("room", "lobby");
//! let connection = attach.await?.attached().expect("the alias is free");
//! assert_eq!(connection.session().data["room"], "lobby");
//!
//! // The socket closes. The session stays for its grace.
//! connection.detach().await?;
//! let away = sessions.group().look_up("alice-session").await?.expect("it is disconnected");
//! assert_eq!(away.connections, 0);
//!
//! // The client returns, here or at another front-end, with a new socket: the room is still there.
//! let again = sessions.attach("alice-session", "socket-2").await?.attached().expect("it is resumed");
//! assert_eq!(again.session().data["room"], "lobby");
//! # membership.leave().await?;
//! # tenure.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Automatic re-attach
//!
//! After the membership has joined again (its tenure `lapsed`, or the store's data is gone), and after the store has
//! lost the end of its data, every connection is attached again, a thousand per call. A session that still exists is
//! resumed unchanged. A session that was reaped in the meantime is recreated with the alias and grace of the attach and
//! without data, and [`Connection::renewed`] reports it. A connection attached with `resume_only` is lost instead
//! ([`Connection::lost`]), and so is one whose alias now belongs to another session. This process remembers no session
//! data: the application restores what a recreated session needs.

mod attach;
mod connection;
mod group;
mod handles;
mod reaped;
mod reconciler;

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::event::EventId;
use tenure_core::id::{Alias, ConnectionId, SessionId};
use tenure_core::session::{Attach as AttachRequest, Data, Limit};

use crate::membership::Shared;

pub use connection::Connection;
pub use group::GroupSessions;
pub(crate) use handles::LiveHandles;
pub use handles::{ConnectionLost, ConnectionStatus};
pub use reaped::{Reaped, ReapedEvent, ReapedFeed};
pub(crate) use reconciler::reconcile_connections;

/// How many connections go into one call: few enough for one request timeout.
const PART: usize = 1_000;

/// The result of an attach.
#[derive(Debug)]
pub enum Attach {
    /// The connection is attached.
    Attached(Connection),
    /// The alias belongs to another session. Nothing changed.
    AliasTaken {
        /// The session that has the alias.
        by: SessionId,
    },
    /// There is no session to resume. Nothing changed.
    Gone,
    /// A limit of the session would be exceeded. Nothing changed.
    Full {
        /// The limit.
        of: Limit,
    },
}

impl Attach {
    /// The connection, when it was attached.
    #[must_use]
    pub fn attached(self) -> Option<Connection> {
        match self {
            Self::Attached(connection) => Some(connection),
            _ => None,
        }
    }
}

/// The sessions of a membership's group, and the connections that it holds to them. Clones share state.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sessions({})", self.shared.group)
    }
}

impl Sessions {
    pub(crate) fn open(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
        }
    }

    /// Attaches a connection to a session: creates the session, adds to it, or resumes it. Await the builder, or set
    /// options first. Use a connection name once (one per socket): a name that is attached elsewhere moves here, and
    /// the process that held it is not notified.
    #[must_use = "nothing is attached until it is awaited"]
    pub fn attach(&self, session: &str, connection: &str) -> Attaching {
        let names =
            SessionId::new(session).and_then(|session| Ok(AttachRequest::new(session, ConnectionId::new(connection)?)));
        Attaching {
            shared: Arc::clone(&self.shared),
            wanted: names,
        }
    }

    /// Attaches many connections, each with its own result, in the order given. One call of the store per 1,000.
    ///
    /// # Errors
    /// As [`Attaching::send`]. After an error, connections that earlier calls attached are detached again.
    pub async fn attach_many(&self, wanted: &[AttachRequest]) -> Result<Vec<Attach>> {
        attach::attach(&self.shared, wanted).await
    }

    /// How many connections this membership has attached, as far as this process knows. No I/O.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.connections.held()
    }

    /// The sessions of the group, whichever process serves them: to read, change and delete.
    #[must_use]
    pub fn group(&self) -> GroupSessions {
        GroupSessions::new(self.shared.context.clone(), self.shared.group.clone())
    }

    /// The sessions reaped after a position; see [`GroupSessions::reaped`].
    #[must_use]
    pub fn reaped(&self, after: Option<EventId>) -> ReapedFeed {
        self.group().reaped(after)
    }
}

/// An attach that has not been sent.
#[must_use = "nothing is attached until it is awaited"]
pub struct Attaching {
    shared: Arc<Shared>,
    wanted: Result<AttachRequest>,
}

impl std::fmt::Debug for Attaching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Attaching").field(&self.wanted).finish()
    }
}

impl Attaching {
    fn with(mut self, change: impl FnOnce(&mut AttachRequest) -> Result<()>) -> Self {
        self.wanted = self.wanted.and_then(|mut wanted| {
            change(&mut wanted)?;
            Ok(wanted)
        });
        self
    }

    /// The session's other name from now on, unique in the group.
    pub fn alias(self, alias: &str) -> Self {
        self.with(|wanted| {
            wanted.alias = Some(Alias::new(alias)?);
            Ok(())
        })
    }

    /// Changes the session's data: each given field replaces the old one, and `null` removes it.
    pub fn data(self, data: Data) -> Self {
        self.with(|wanted| {
            wanted.data.extend(data);
            Ok(())
        })
    }

    /// One field of the session's data.
    pub fn field(self, name: &str, value: impl Into<Value>) -> Self {
        self.data(Data::from([(name.to_owned(), value.into())]))
    }

    /// How long the session can be resumed after its last connection is gone: 1 s to 30 days. A change applies from the
    /// next time that happens.
    pub fn grace(self, grace: Duration) -> Self {
        self.with(|wanted| {
            wanted.grace = Some(grace);
            Ok(())
        })
    }

    /// Does not create the session: the result is [`Attach::Gone`] when there is none, or only an orphan.
    pub fn resume_only(self) -> Self {
        self.with(|wanted| {
            wanted.resume_only = true;
            Ok(())
        })
    }

    /// Sends it. Awaiting the builder is the same.
    ///
    /// # Errors
    /// `Ended` when the tenure has ended (the membership may be joining again), `Invalid` for a bad name or an exceeded
    /// limit, `TooLate`, `Unavailable`. A call without a reply is repeated for about two seconds. After an error with
    /// an unknown outcome, and when the future is dropped, a connection that was attached nevertheless is detached in
    /// the background.
    pub async fn send(self) -> Result<Attach> {
        let mut answers = attach::attach(&self.shared, &[self.wanted?]).await?;
        answers.pop().ok_or_else(short_answer)
    }
}

impl IntoFuture for Attaching {
    type Output = Result<Attach>;
    type IntoFuture = BoxFuture<'static, Result<Attach>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

fn short_answer() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the store answered fewer connections than it was sent",
    )
}

#[cfg(test)]
mod tests;
