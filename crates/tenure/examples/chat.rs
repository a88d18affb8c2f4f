//! A chat over websockets, served by any number of front-end processes over one store. Each client is in a room. A
//! client whose front-end dies reconnects to another within the grace and is still in its room; a client that does not
//! return leaves it.
//!
//! ```text
//! valkey-server --port 6379 &
//! for n in 1 2; do
//!     cargo run --example chat -- --store valkey://127.0.0.1:6379 --node front-$n \
//!         --listen 127.0.0.1:800$n --presence ./presence --grace 30s &
//! done
//! ```
//!
//! Connect with any websocket client. The first message names the session; the answer has the outcome of the attach and
//! the room:
//!
//! ```text
//! > {"session": "alice-1", "room": "lobby"}
//! < {"how": "created", "room": "lobby", "epoch": 1767225600000000}
//! > {"say": "hello"}
//! < {"from": "alice-1", "say": "hello"}
//! > {"room": "garden"}
//! < {"how": "moved", "room": "garden", "epoch": 1767225600000000}
//! ```
//!
//! Kill the front-end with SIGKILL and connect to the other with the same session, without a room: `resumed`, in the
//! garden. Stay away for longer than the grace: the session is reaped, and a later connect is `created`, in the lobby.
//!
//! # Where state lives
//!
//! The session, with the room as its data, is in the store. The socket is a connection of the session, held under the
//! tenure of this process, with a unique name. Messages in a room reach only the sockets of this process: fan-out
//! between front-ends is not a task of Tenure.
//!
//! `--presence DIR` stands for the application's own database: one file with the epoch per session in a room. A reaped
//! session must be removed exactly once, by any process. Every front-end follows the feed of reaped sessions and
//! removes the entries with that epoch or an older one. The feed delivers at least once, so its position is saved after
//! the removal. In SQL: `DELETE FROM presence WHERE session = $1 AND epoch <= $2`.

#![expect(clippy::print_stdout, reason = "the lines are what the example is for")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tenure::session::ReapedEvent;
use tenure::{
    Attach, ClientSettings, Clock, Connection, Data, Error, ErrorKind, EventId, GroupSessions, How, JoinOptions,
    Membership, OpenOptions, Result, Sessions, SystemClock, Tenure, parse_duration,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const USAGE: &str = "usage: chat --store URL --presence DIR [--listen 127.0.0.1:8001] [--group chat] [--node NAME] \
                     [--grace 30s] [--ttl 30s] [--max-ttl 2m]";

/// How long to wait for an unavailable store at the start.
const STORE_WAIT: Duration = Duration::from_secs(60);

/// The command line options.
struct Options {
    store: String,
    presence: PathBuf,
    listen: String,
    group: String,
    node: Option<String>,
    grace: Duration,
    ttl: Duration,
    max_ttl: Duration,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            store: String::new(),
            presence: PathBuf::new(),
            listen: "127.0.0.1:8001".to_owned(),
            group: "chat".to_owned(),
            node: None,
            grace: Duration::from_secs(30),
            ttl: Duration::from_secs(30),
            max_ttl: Duration::from_secs(120),
        };
        while let Some(flag) = args.next() {
            let value = args
                .next()
                .ok_or_else(|| Error::invalid(format!("{flag} needs a value")))?;
            match flag.as_str() {
                "--store" => options.store = value,
                "--presence" => options.presence = value.into(),
                "--listen" => options.listen = value,
                "--group" => options.group = value,
                "--node" => options.node = Some(value),
                "--grace" => options.grace = parse_duration(&value)?,
                "--ttl" => options.ttl = parse_duration(&value)?,
                "--max-ttl" => options.max_ttl = parse_duration(&value)?,
                _ => return Err(Error::invalid(format!("there is no {flag}"))),
            }
        }
        if options.store.is_empty() || options.presence.as_os_str().is_empty() {
            return Err(Error::invalid("--store and --presence are needed"));
        }
        Ok(options)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => run(options).await,
        Err(error) => {
            println!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}", error.chain());
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let mut open = OpenOptions::default();
    open.store.max_ttl = options.max_ttl;
    open.store.sessions.grace = options.grace;
    let tenure = Tenure::connect_with(&options.store, open, ClientSettings::default()).await?;
    let membership = join(&tenure, &options).await?;
    let presence = Arc::new(Presence::open(options.presence).await?);
    let chat = Arc::new(Chat {
        sessions: membership.sessions(),
        grace: options.grace,
        clock: SystemClock::new(),
        presence: Arc::clone(&presence),
        rooms: Mutex::default(),
    });
    let own = membership.member().to_string();
    tokio::spawn(clean_up(membership.sessions().group(), presence, own));

    let listener = TcpListener::bind(&options.listen)
        .await
        .map_err(system("it cannot listen"))?;
    let address = listener.local_addr().map_err(system("it has no address"))?;
    println!("{} listens on {address}", membership.member());
    let mut terminate = signal(SignalKind::terminate()).map_err(system("signals are refused"))?;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(Arc::clone(&chat).serve(stream))),
                Err(error) => println!("a client was not accepted: {error}"),
            },
            _ = terminate.recv() => break,
            // Superseded by a process of the same name, or expelled by an operator.
            reason = membership.ended() => {
                println!("the membership is over: {reason:?}");
                break;
            }
        }
    }
    // The janitor of another process detaches the connections of this one; their sessions can be resumed there.
    membership.leave().await?;
    println!("{} left", membership.member());
    Ok(())
}

async fn join(tenure: &Tenure, options: &Options) -> Result<Membership> {
    let named = match &options.node {
        Some(name) => JoinOptions::named(name)?,
        None => JoinOptions::default(),
    };
    let join = JoinOptions {
        ttl: options.ttl,
        ..named
    };
    // Waits for a store that starts after this program, or restarts.
    tenure.group(&options.group)?.join_within(join, STORE_WAIT).await
}

fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::new(ErrorKind::Misconfigured, what).because(error)
}

/// State shared by all clients of this process.
struct Chat {
    sessions: Sessions,
    grace: Duration,
    clock: SystemClock,
    presence: Arc<Presence>,
    rooms: Mutex<BTreeMap<String, broadcast::Sender<String>>>,
}

type Socket = WebSocketStream<TcpStream>;

impl Chat {
    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
            return;
        };
        match self.talk(&mut socket).await {
            Ok(()) => {}
            Err(error) => {
                let told = json!({ "error": error.to_string() });
                socket.send(Message::text(told.to_string())).await.ok();
            }
        }
        // The peer may have disconnected.
        socket.close(None).await.ok();
    }

    /// Serves one client, from its first message to the end of its socket.
    async fn talk(&self, socket: &mut Socket) -> Result<()> {
        let Some(hello) = next(socket).await else { return Ok(()) };
        let session = hello["session"]
            .as_str()
            .ok_or_else(|| Error::invalid("the first message names the session"))?;
        let mut connection = self.attach(session, hello["room"].as_str()).await?;
        let mut room = self.room_of(&connection, connection.session().data.get("room")).await?;
        let how = match connection.how() {
            How::Created => "created",
            How::Attached => "attached",
            How::Resumed => "resumed",
        };
        answer(socket, &connection, how, &room).await;
        let mut heard = self.channel(&room).subscribe();
        let lost = connection.lost();
        loop {
            tokio::select! {
                message = next(socket) => {
                    let Some(message) = message else { break };
                    if let Some(to) = message["room"].as_str() {
                        connection.patch(&Data::from([("room".to_owned(), to.into())])).await?;
                        room = self.room_of(&connection, Some(&to.into())).await?;
                        heard = self.channel(&room).subscribe();
                        answer(socket, &connection, "moved", &room).await;
                    }
                    if let Some(text) = message["say"].as_str() {
                        let said = json!({ "from": connection.session_id().as_str(), "say": text });
                        // There may be no other listener.
                        self.channel(&room).send(said.to_string()).ok();
                    }
                }
                said = heard.recv() => if let Ok(said) = said {
                    socket.send(Message::text(said)).await.ok();
                },
                // The session was reaped while the store was unreachable, and was created again; restore its data.
                _ = connection.renewed() => {
                    connection.patch(&Data::from([("room".to_owned(), room.clone().into())])).await?;
                    room = self.room_of(&connection, Some(&room.clone().into())).await?;
                }
                () = lost.cancelled() => return Err(Error::unavailable("connect again", tenure::Outcome::Unchanged)),
            }
        }
        // The grace starts now if this was the last socket of the session. Dropping the connection has the same effect,
        // without reporting errors.
        connection.detach().await?;
        Ok(())
    }

    async fn attach(&self, session: &str, room: Option<&str>) -> Result<Connection> {
        // A unique name per socket.
        let socket = format!("{:016x}", self.clock.entropy());
        let attach = self.sessions.attach(session, &socket).grace(self.grace);
        let attach = match room {
            Some(room) => attach.field("room", room),
            None => attach,
        };
        match attach.await? {
            Attach::Attached(connection) => Ok(connection),
            other => Err(Error::invalid(format!("that session cannot be had: {other:?}"))),
        }
    }

    /// Enters a session into the application's list of rooms.
    async fn room_of(&self, connection: &Connection, room: Option<&Value>) -> Result<String> {
        let room = room.and_then(Value::as_str).unwrap_or("lobby").to_owned();
        let epoch = connection.epoch().get();
        self.presence
            .enter(connection.session_id().as_str(), epoch, &room)
            .await?;
        Ok(room)
    }

    fn channel(&self, room: &str) -> broadcast::Sender<String> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms
            .entry(room.to_owned())
            .or_insert_with(|| broadcast::channel(64).0)
            .clone()
    }
}

/// The next JSON message; `None` at the end of the socket.
async fn next(socket: &mut Socket) -> Option<Value> {
    loop {
        if let Message::Text(text) = socket.next().await?.ok()? {
            return serde_json::from_str(&text).ok();
        }
    }
}

async fn answer(socket: &mut Socket, connection: &Connection, how: &str, room: &str) {
    let answer = json!({ "how": how, "room": room, "epoch": connection.epoch().get() });
    // A broken socket shows at the next read.
    socket.send(Message::text(answer.to_string())).await.ok();
}

/// Removes reaped sessions from the application's list. Runs forever.
async fn clean_up(sessions: GroupSessions, presence: Arc<Presence>, own: String) {
    let mut feed = sessions.reaped(presence.position(&own).await);
    loop {
        let done = match feed.next().await {
            Ok(ReapedEvent::Reaped(gone)) => {
                println!("{own} heard that {} was reaped, epoch={}", gone.session, gone.epoch);
                presence.leave(gone.session.as_str(), gone.epoch.get()).await
            }
            // Events were missed: remove the entries without a session.
            Ok(ReapedEvent::Gap) => presence.compare(&sessions).await,
            Err(error) => Err(error),
        };
        match done {
            // Only after the removal: otherwise the feed delivers the event again.
            Ok(()) => presence.keep_position(&own, feed.position()).await,
            Err(error) => println!("{own} could not clean up: {}", error.chain()),
        }
    }
}

/// A directory with one file per session in a room. Stands for a database.
struct Presence {
    directory: PathBuf,
    /// Held while a file is read and changed.
    turn: tokio::sync::Mutex<()>,
}

impl Presence {
    async fn open(directory: PathBuf) -> Result<Self> {
        let made = tokio::fs::create_dir_all(&directory).await;
        made.map_err(system("the directory for presence cannot be made"))?;
        Ok(Self {
            directory,
            turn: tokio::sync::Mutex::default(),
        })
    }

    async fn enter(&self, session: &str, epoch: u64, room: &str) -> Result<()> {
        let _turn = self.turn.lock().await;
        let row = format!("{epoch} {room}");
        let written = tokio::fs::write(self.directory.join(session), row).await;
        written.map_err(system("presence cannot be written"))
    }

    /// Removes a session, unless it is listed with a newer epoch.
    async fn leave(&self, session: &str, epoch: u64) -> Result<()> {
        let _turn = self.turn.lock().await;
        let file = self.directory.join(session);
        let row = tokio::fs::read_to_string(&file).await.unwrap_or_default();
        let there = row.split(' ').next().and_then(|epoch| epoch.parse::<u64>().ok());
        if there.is_some_and(|there| there <= epoch) {
            match tokio::fs::remove_file(&file).await {
                // Another front-end has removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.map_err(system("presence cannot be changed"))?,
            }
        }
        Ok(())
    }

    /// Removes entries without a session.
    async fn compare(&self, sessions: &GroupSessions) -> Result<()> {
        let unreadable = || system("presence cannot be read");
        let mut files = tokio::fs::read_dir(&self.directory).await.map_err(unreadable())?;
        while let Some(file) = files.next_entry().await.map_err(unreadable())? {
            let name = file.file_name();
            let Some(session) = name.to_str().filter(|name| !name.starts_with(".position")) else {
                continue;
            };
            // Read before the session is looked up: a session created in between has a newer epoch.
            let row = tokio::fs::read_to_string(file.path()).await.unwrap_or_default();
            let epoch = row.split(' ').next().and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
            if sessions.look_up(session).await?.is_none() {
                self.leave(session, epoch).await?;
            }
        }
        Ok(())
    }

    async fn position(&self, own: &str) -> Option<EventId> {
        let kept = tokio::fs::read_to_string(self.directory.join(format!(".position-{own}"))).await;
        kept.ok()?.parse().ok().map(EventId)
    }

    async fn keep_position(&self, own: &str, position: Option<EventId>) {
        let Some(position) = position else { return };
        let file = self.directory.join(format!(".position-{own}"));
        if let Err(error) = tokio::fs::write(file, position.to_string()).await {
            println!("{own} cannot keep its position, and will be told some things again: {error}");
        }
    }
}
