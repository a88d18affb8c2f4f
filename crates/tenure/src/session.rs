//! Sessions as a front-end sees them: the connections it serves, and what is kept with their sessions.
//!
//! A client of a chat or a game connects, and the front-end attaches that connection to the client's session:
//! [`Sessions::attach`]. What comes back is a [`Connection`], held under the tenure of the membership: the beats of the
//! membership keep all of them alive together, and when this process dies the janitors of others detach what it had. When
//! the last connection of a session goes, its grace begins; whoever attaches within it resumes the session with its data,
//! alias and room. After it the session is an orphan, which nothing resumes, and the reaper deletes it.
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
//! let connection = attach.await?.attached().expect("nobody else is called alice");
//! assert_eq!(connection.session().data["room"], "lobby");
//!
//! // The socket is gone. The session stays for its grace.
//! connection.detach().await?;
//! let away = sessions.group().look_up("alice-session").await?.expect("it is disconnected");
//! assert_eq!(away.connections, 0);
//!
//! // The client is back, here or at another front-end, with a new socket: the room is still there.
//! let again = sessions.attach("alice-session", "socket-2").await?.attached().expect("it is resumed");
//! assert_eq!(again.session().data["room"], "lobby");
//! # membership.leave().await?;
//! # tenure.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is attached again by itself
//!
//! After the membership joined again (its tenure `lapsed`, or the store's data is gone) and after the store lost the end of
//! its data, every connection is attached again, a thousand in a call. A session that is still there is resumed as it is. One
//! that was reaped meanwhile is made anew with the alias and grace of the attach and without data, and the connection tells
//! ([`Connection::renewed`]); one that was only to be resumed is lost ([`Connection::lost`]), as is one whose alias is
//! another's by now. No data is remembered here: what belongs into a session that was made anew, the user knows.

mod asking;
mod book;
mod connection;
mod group;
mod keeper;
mod reaped;

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::event::EventId;
use tenure_core::id::{Alias, ConnectionId, SessionId};
use tenure_core::session::{Attach as Wanted, Data, Limit};

use crate::membership::Shared;

pub(crate) use book::Book;
pub use book::{ConnectionLost, ConnectionStatus};
pub use connection::Connection;
pub use group::GroupSessions;
pub(crate) use keeper::keep_connections;
pub use reaped::{Reaped, ReapedFeed, ReapedNews};

/// How many connections go into one call: enough to be quick, few enough for one request timeout.
const PART: usize = 1_000;

/// What asking to attach a connection came to.
#[derive(Debug)]
pub enum Attach {
    /// It is attached.
    Attached(Connection),
    /// The alias belongs to another session. Nothing changed.
    AliasTaken {
        /// Which.
        by: SessionId,
    },
    /// There is nothing to resume. Nothing changed.
    Gone,
    /// The session cannot take more. Nothing changed.
    Full {
        /// More than this.
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

/// The sessions of one membership's group, and the connections that it holds to them. Cheap to clone; all clones are one.
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

    /// Attaches a connection to a session: makes the session, adds to it, or resumes it. Await the answer, or say more first.
    /// Use a connection's name once (one per socket): one that is attached elsewhere moves here, and the process that had
    /// it is not told.
    #[must_use = "nothing is attached until it is awaited"]
    pub fn attach(&self, session: &str, connection: &str) -> Attaching {
        let names =
            SessionId::new(session).and_then(|session| Ok(Wanted::new(session, ConnectionId::new(connection)?)));
        Attaching {
            shared: Arc::clone(&self.shared),
            wanted: names,
        }
    }

    /// Attaches many connections, each answered by itself, in the order given. One call of the store per 1,000.
    ///
    /// # Errors
    /// As [`Attaching::send`]. Connections of earlier calls that were attached before an error are detached again.
    pub async fn attach_many(&self, wanted: &[Wanted]) -> Result<Vec<Attach>> {
        asking::attach(&self.shared, wanted).await
    }

    /// How many connections this membership has attached, as far as it knows. No I/O.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.connections.held()
    }

    /// The sessions of the group, whoever serves them: to look at, to change, to delete.
    #[must_use]
    pub fn group(&self) -> GroupSessions {
        GroupSessions::new(self.shared.context.clone(), self.shared.group.clone())
    }

    /// The sessions that were reaped, from a point on; see [`GroupSessions::reaped`].
    #[must_use]
    pub fn reaped(&self, after: Option<EventId>) -> ReapedFeed {
        self.group().reaped(after)
    }
}

/// A connection that is about to be attached.
#[must_use = "nothing is attached until it is awaited"]
pub struct Attaching {
    shared: Arc<Shared>,
    wanted: Result<Wanted>,
}

impl std::fmt::Debug for Attaching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Attaching").field(&self.wanted).finish()
    }
}

impl Attaching {
    fn with(mut self, change: impl FnOnce(&mut Wanted) -> Result<()>) -> Self {
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

    /// A change to the session's data: each field given replaces the old one, and `null` removes it.
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

    /// How long the session can be resumed after its last connection went, from now on: 1 s to 30 days. It counts from the
    /// next time that happens.
    pub fn grace(self, grace: Duration) -> Self {
        self.with(|wanted| {
            wanted.grace = Some(grace);
            Ok(())
        })
    }

    /// Do not make the session: answer [`Attach::Gone`] when there is none, or only an orphan.
    pub fn resume_only(self) -> Self {
        self.with(|wanted| {
            wanted.resume_only = true;
            Ok(())
        })
    }

    /// Attaches it. Awaiting the builder is the same.
    ///
    /// # Errors
    /// `Ended` when the tenure is over (the membership may be joining again), `Invalid` for a name or what breaks a limit,
    /// `TooLate`, `Unavailable`. A call whose reply was lost is asked again for about two seconds first; after an error with
    /// an unknown outcome, and when the future is dropped, what was attached all the same is detached in the background.
    pub async fn send(self) -> Result<Attach> {
        let mut answers = asking::attach(&self.shared, &[self.wanted?]).await?;
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
        "the store answered fewer connections than it was asked",
    )
}

#[cfg(test)]
mod tests;
