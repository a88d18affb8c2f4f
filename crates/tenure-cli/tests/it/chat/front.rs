//! Front-end processes of the example, their clients, and a look at the store beside them.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tenure::{ClientSettings, Event, EventKind, EventQuery, GroupHandle, OpenOptions, SessionStats, Tenure};
use tenure_testkit::{Process, wait};
use tokio::runtime::Runtime;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use crate::chat::{GRACE, PATIENCE, TTL};
use crate::support::SOON;

const GROUP: &str = "chat";

/// One process of the example.
pub(crate) struct FrontEnd {
    pub(crate) process: Process,
    addr: SocketAddr,
}

impl FrontEnd {
    #[track_caller]
    pub(crate) fn start(name: &str, store: &str, presence: &Path) -> Self {
        let in_ms = |time: std::time::Duration| format!("{}ms", time.as_millis());
        let process = Process::spawn(name, |_| {
            let mut command = Command::new(example());
            command.args([
                "--store",
                store,
                "--group",
                GROUP,
                "--node",
                name,
                "--listen",
                "127.0.0.1:0",
            ]);
            command.args(["--ttl", &in_ms(TTL), "--grace", &in_ms(GRACE)]);
            command.arg("--presence").arg(presence);
            command
        });
        let process = process.expect("the example can be started");
        let mut addr = None;
        wait::until("the front-end listens", SOON, || {
            assert!(process.is_running(), "{name} ended: {}", process.log_tail());
            let log = process.log();
            let told = log.lines().find_map(|line| line.split_once(" listens on "));
            addr = told.and_then(|(_, addr)| addr.trim().parse().ok());
            addr.is_some()
        });
        let addr = addr.expect("it listens");
        Self { process, addr }
    }
}

/// A websocket, and what its front-end said of its session.
pub(crate) struct Client {
    socket: WebSocket<TcpStream>,
    session: String,
    pub(crate) how: String,
    pub(crate) room: String,
    pub(crate) epoch: u64,
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(front: &FrontEnd, session: &str, room: Option<&str>) -> Self {
        let stream = TcpStream::connect(front.addr).expect("the front-end listens");
        stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
        let (socket, _) = tungstenite::client(format!("ws://{}/", front.addr), stream).expect("a websocket");
        let mut client = Self {
            socket,
            session: session.to_owned(),
            how: String::new(),
            room: String::new(),
            epoch: 0,
        };
        client.send(&json!({ "session": session, "room": room }));
        client.is_told();
        client
    }

    #[track_caller]
    pub(crate) fn move_to(&mut self, room: &str) {
        self.send(&json!({ "room": room }));
        self.is_told();
        assert_eq!((self.how.as_str(), self.room.as_str()), ("moved", room));
    }

    /// It says something, and hears it: it is served.
    #[track_caller]
    pub(crate) fn is_heard(&mut self) {
        self.send(&json!({ "say": "hello" }));
        let own = json!({ "from": self.session, "say": "hello" });
        while self.read() != own {}
    }

    #[track_caller]
    fn is_told(&mut self) {
        let told = self.read();
        let text = |name: &str| told[name].as_str().unwrap_or_else(|| panic!("{told}")).to_owned();
        self.how = text("how");
        self.room = text("room");
        self.epoch = told["epoch"].as_u64().expect("an epoch");
    }

    #[track_caller]
    fn send(&mut self, message: &Value) {
        self.socket
            .send(Message::text(message.to_string()))
            .expect("the front-end reads");
    }

    #[track_caller]
    fn read(&mut self) -> Value {
        let message = self.socket.read().expect("the front-end answers");
        let text = message.to_text().expect("an answer is text");
        serde_json::from_str(text).expect("an answer is JSON")
    }
}

/// A read-only view of the group.
pub(crate) struct Group {
    runtime: Runtime,
    group: GroupHandle,
}

impl Group {
    pub(crate) fn open(store: &str) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let settings = ClientSettings {
            sweeper: None,
            ..ClientSettings::default()
        };
        let connect = Tenure::connect_with(store, OpenOptions::default(), settings);
        let tenure = runtime.block_on(connect).expect("the store is there");
        let group = tenure.group(GROUP).expect("a name");
        Self { runtime, group }
    }

    /// Waits until there are so many sessions, and no orphan.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, active: usize, disconnected: usize) {
        let expected = SessionStats {
            active: active as u64,
            disconnected: disconnected as u64,
            orphans: 0,
        };
        let mut last = None;
        wait::until(what, PATIENCE, || {
            // A busy machine may not answer in time; then it is asked again.
            let seen = self.runtime.block_on(self.group.sessions().stats()).ok();
            if seen != last {
                eprintln!("{what}: {seen:?}");
                last = seen;
            }
            seen == Some(expected)
        });
    }

    /// All events of a kind.
    #[track_caller]
    pub(crate) fn told(&self, kind: EventKind) -> Vec<Event> {
        let mut events = Vec::new();
        let mut query = EventQuery {
            after: None,
            limit: 1_000,
            kinds: vec![kind],
            ..EventQuery::default()
        };
        loop {
            let mut page = None;
            wait::until("the store tells its events", PATIENCE, || {
                page = self.runtime.block_on(self.group.events(&query)).ok();
                page.is_some()
            });
            let page = page.expect("it was told");
            assert!(!page.missed);
            events.extend(page.events);
            if query.after.replace(page.last) == Some(page.last) {
                return events;
            }
        }
    }
}

/// Who is in a room, by the application's own list.
pub(crate) fn listed(presence: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(presence).expect("the directory is there");
    let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// The example, built once.
fn example() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| crate::example::example("chat"))
}
