//! A front-end of a chat: clients connect to it, and each is a connection of its session for as long as its socket lasts.

use anyhow::{Context, bail};
use tenure::{Attach, Clock, How, Membership, Sessions, SystemClock};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::Signal;

use super::asked_to_leave;
use crate::exit::say;
use crate::output::line;

pub(super) async fn run(membership: Membership, mut term: Signal) -> anyhow::Result<()> {
    let sessions = membership.sessions();
    let clock = SystemClock::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
    line(listener.local_addr()?)?;
    let stay = asked_to_leave(&membership, &mut term);
    tokio::pin!(stay);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted.context("no client can connect")?;
                // One name per socket, whatever becomes of it.
                let name = format!("{:016x}", clock.entropy());
                tokio::spawn(with_client(sessions.clone(), socket, name));
            }
            leave = &mut stay => {
                if leave {
                    membership.leave().await?;
                }
                return Ok(());
            }
        }
    }
}

async fn with_client(sessions: Sessions, socket: TcpStream, name: String) {
    if let Err(error) = serve(&sessions, socket, &name).await {
        say(format_args!("a client: {error:#}"));
    }
}

/// A client sends `SESSION ROOM`, or `SESSION` to return to its room. The answer is the outcome of the attach and the room.
async fn serve(sessions: &Sessions, socket: TcpStream, name: &str) -> anyhow::Result<()> {
    let mut socket = BufReader::new(socket);
    let mut hello = String::new();
    socket.read_line(&mut hello).await?;
    let mut words = hello.split_whitespace();
    let attach = sessions.attach(words.next().context("no session is named")?, name);
    let attach = match words.next() {
        Some(room) => attach.field("room", room),
        None => attach,
    };
    let connection = match attach.await? {
        Attach::Attached(connection) => connection,
        Attach::AliasTaken { by } => bail!("its alias belongs to the session {by}"),
        Attach::Gone => bail!("there is no such session to resume"),
        Attach::Full { of } => bail!("it cannot have more than {of}"),
    };
    let how = match connection.how() {
        How::Created => "created",
        How::Attached => "attached",
        How::Resumed => "resumed",
    };
    let data = &connection.session().data;
    let room = data.get("room").and_then(|room| room.as_str()).unwrap_or("-");
    socket.write_all(format!("{how} {room}\n").as_bytes()).await?;
    while socket.read_line(&mut String::new()).await.is_ok_and(|read| read > 0) {}
    // Its grace begins now, if this was the session's last connection.
    connection.detach().await?;
    Ok(())
}
