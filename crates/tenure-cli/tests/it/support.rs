//! Running the binary and daemons.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure::{OpenOptions, open_store};
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_testkit::resp::Client;
use tenure_testkit::{Process, wait};

/// The time-out of tests for what should happen immediately. Longer than any ttl here: after a stall of the machine the store
/// restarts every ttl, and grants no lease for one.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The binary, without variables of the machine's environment.
pub(crate) fn tenure() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TENURE_") {
            command.env_remove(name);
        }
    }
    command
}

/// How a command ended and what it printed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Its output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(mut command: Command) -> Ran {
    let done = command
        .stdin(Stdio::null())
        .output()
        .expect("the binary can be started");
    let text = |bytes| String::from_utf8(bytes).expect("the output is text");
    Ran {
        code: done.status.code(),
        out: text(done.stdout),
        err: text(done.stderr),
    }
}

/// `tenure serve` on a free port, killed when dropped.
pub(crate) struct Daemon {
    pub(crate) process: Process,
    pub(crate) addr: SocketAddr,
}

impl Daemon {
    /// On a store in its own directory.
    #[track_caller]
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::with(|command| {
            command.args(args);
        })
    }

    /// Starts a daemon that `set` configures, in a directory of its own. An embedded store in that directory is one that
    /// has been served before, so it grants leases immediately; one in memory is settled.
    #[track_caller]
    pub(crate) fn with(set: impl FnOnce(&mut Command)) -> Self {
        let mut is_open_memory = false;
        let daemon = Self::start_with(|command, dir| {
            set(command);
            if let Some(file) = store_in(command, dir) {
                settled(&file);
            }
            let has = |what: &str| command.get_args().any(|arg| arg.to_string_lossy().starts_with(what));
            is_open_memory = has("memory:") && !has("--tokens") && !has("--tls");
        });
        if is_open_memory {
            assert_eq!(daemon.http("POST", "/v1/settle", "").0, 200);
        }
        daemon
    }

    /// On a store that is really new: it grants no lease for one max ttl.
    #[track_caller]
    pub(crate) fn new(args: &[&str]) -> Self {
        Self::start_with(|command, _| {
            command.args(args);
        })
    }

    #[track_caller]
    fn start_with(set: impl FnOnce(&mut Command, &Path)) -> Self {
        let process = spawn("tenure serve", |command, dir| {
            command.args(["serve", "--listen", "127.0.0.1:0"]);
            set(command, dir);
        });
        let addr = address_in(&process, 0);
        Self { process, addr }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A command that talks to this daemon.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = tenure();
        command.args(args).env("TENURE_STORE", self.url());
        command
    }

    /// Runs a command that talks to this daemon.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        run(self.command(args))
    }

    /// A long-running command that talks to this daemon.
    #[track_caller]
    pub(crate) fn spawn(&self, args: &[&str]) -> Process {
        spawn("tenure", |command, _| {
            command.args(args).env("TENURE_STORE", self.url());
        })
    }

    /// One HTTP request: the status, and the body as JSON when it is that.
    #[track_caller]
    pub(crate) fn http(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, body) = self.text(method, path, body);
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// Sends a request, and leaves the answer unread.
    #[track_caller]
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.addr).expect("the daemon listens");
        stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
        let head = format!(
            "{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .expect("the daemon reads");
        stream
    }

    #[track_caller]
    pub(crate) fn text(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = self.send(method, path, body);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the daemon answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .expect("an answer has a status");
        (status, body.to_owned())
    }

    /// The same, retried on 503: a stall of the machine can exceed the request time-out. For idempotent requests.
    #[track_caller]
    pub(crate) fn answered(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut answer = (0, Value::Null);
        wait::until("the daemon has an answer", SOON, || {
            answer = self.http(method, path, body);
            answer.0 != 503
        });
        answer
    }

    /// Joins over HTTP and answers the tenure.
    #[track_caller]
    pub(crate) fn join(&self, group: &str, member: &str, ttl_ms: u64) -> String {
        let body = format!(r#"{{"member":"{member}","ttl_ms":{ttl_ms}}}"#);
        let (status, joined) = self.answered("POST", &format!("/v1/groups/{group}/members"), &body);
        assert_eq!(status, 201, "{joined}");
        joined["tenure"].as_str().expect("a join answers a tenure").to_owned()
    }

    /// Beats for all of these in one step: from then on each may be silent for this long.
    #[track_caller]
    pub(crate) fn beat(&self, group: &str, tenures: &[impl AsRef<str>], ttl_ms: u64) {
        let beat = |tenure: &str| json!({"tenure": tenure, "ttl_ms": ttl_ms});
        let beats: Vec<_> = tenures.iter().map(|tenure| beat(tenure.as_ref())).collect();
        let body = json!({ "beats": beats }).to_string();
        let (status, answer) = self.answered("POST", &format!("/v1/groups/{group}/beats"), &body);
        assert_eq!(status, 200, "{answer}");
        let results = answer["results"].as_array().expect("results");
        assert!(results.iter().all(|result| result["status"] == "renewed"), "{answer}");
    }

    /// How often the store has noticed a gap, after which every ttl restarts.
    #[track_caller]
    pub(crate) fn silences(&self, group: &str) -> u32 {
        let path = format!("/v1/groups/{group}/events?types=group_unsettled&limit=1000");
        let (status, page) = self.answered("GET", &path, "");
        assert_eq!(status, 200, "{page}");
        let events = page["events"].as_array().expect("events").iter();
        let silent = events.filter(|event| event["reason"] == "silent").count();
        u32::try_from(silent).expect("a few")
    }

    /// Asks for a lease under a tenure.
    #[track_caller]
    pub(crate) fn acquire(&self, group: &str, lease: &str, tenure: &str) -> (u16, Value) {
        let body = json!({ "tenure": tenure }).to_string();
        self.answered("POST", &format!("/v1/groups/{group}/leases/{lease}/acquire"), &body)
    }

    /// Acquires a free lease for the first of these tenures. After a stall of the machine the store grants none for a full
    /// ttl; until then all tenures are kept alive, each for `ttl_ms` more.
    #[track_caller]
    pub(crate) fn granted(&self, group: &str, lease: &str, tenures: &[&str], ttl_ms: u64) -> Value {
        let mut answer = Value::Null;
        wait::until("the lease is granted", SOON, || {
            let (status, said) = self.acquire(group, lease, tenures[0]);
            assert!(status == 200 || said["code"] == "unsettled", "{said}");
            if status != 200 {
                self.beat(group, tenures, ttl_ms);
            }
            answer = said;
            status == 200
        });
        answer
    }

    /// Releases a lease, or hands it off.
    #[track_caller]
    pub(crate) fn release(&self, group: &str, lease: &str, tenure: &str, token: u64, to: Option<&str>) -> (u16, Value) {
        let body = json!({ "tenure": tenure, "token": token, "to": to }).to_string();
        self.http("POST", &format!("/v1/groups/{group}/leases/{lease}/release"), &body)
    }

    /// Claims keys under a tenure.
    #[track_caller]
    pub(crate) fn claim(&self, group: &str, registry: &str, tenure: &str, keys: &[String]) -> (u16, Value) {
        let body = json!({ "tenure": tenure, "keys": keys }).to_string();
        self.answered(
            "POST",
            &format!("/v1/groups/{group}/registries/{registry}/claims"),
            &body,
        )
    }
}

/// The file of the embedded store that a daemon is about to make in its own directory.
fn store_in(command: &Command, dir: &Path) -> Option<PathBuf> {
    let args: Vec<_> = command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let value = |flag: &str| Some(args[args.iter().position(|arg| arg == flag)? + 1].clone());
    let file = match (value("--store"), value("--data-dir")) {
        (Some(url), _) => dir.join(url.strip_prefix("sqlite:")?),
        (None, Some(data)) => dir.join(data).join("tenure.db"),
        (None, None) => dir.join("tenure-data/tenure.db"),
    };
    (!args.iter().any(|arg| arg == "--config") && !file.exists()).then_some(file)
}

/// Makes a store that was begun a day ago, so that its wait for forgotten holders is over.
pub(crate) fn settled(file: &Path) {
    let mut made = std::fs::DirBuilder::new();
    let made = made
        .recursive(true)
        .mode(0o700)
        .create(file.parent().expect("a directory"));
    made.expect("the directory can be made");
    let url = format!("sqlite:{}", file.display());
    let make = move || {
        let wall = tenure_core::Clock::wall_micros(&SystemClock::new());
        let options = OpenOptions {
            clock: Arc::new(ManualClock::new(wall - 86_400_000_000, 1)),
            ..OpenOptions::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            open_store(&url, &options).await.expect("the store opens").close().await;
        });
    };
    // A thread of its own: the test may have a runtime.
    std::thread::spawn(make).join().expect("the store is made");
}

/// A long-running process in a directory of its own.
#[track_caller]
pub(crate) fn spawn(name: &str, set: impl FnOnce(&mut Command, &Path)) -> Process {
    Process::spawn(name, |dir| {
        let mut command = tenure();
        command.current_dir(dir);
        set(&mut command, dir);
        command
    })
    .expect("the binary can be started")
}

/// The address that a daemon prints at its `nth` start.
#[track_caller]
pub(crate) fn address_in(process: &Process, nth: usize) -> SocketAddr {
    let printed = || {
        process
            .log()
            .lines()
            .filter_map(|line| line.strip_prefix("http://")?.parse().ok())
            .nth(nth)
    };
    wait::until("the daemon prints its address", SOON, || {
        assert!(
            process.is_running() || printed().is_some(),
            "the daemon ended: {}",
            process.log_tail()
        );
        printed().is_some()
    });
    printed().expect("just seen")
}

/// Waits until a process has printed something.
#[track_caller]
pub(crate) fn said(process: &Process, what: &str) {
    wait::until(&format!("it says {what:?}"), SOON, || process.log().contains(what));
}

/// Whether a process with this id runs (a zombie does not).
pub(crate) fn exists(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z'))
    })
}

/// How long this machine stalled during a measurement. A thread that should run every few milliseconds adds up its delays. A
/// test that measures a time allows this much more.
pub(crate) struct Lateness(Arc<Mutex<(Instant, Duration)>>);

#[expect(clippy::disallowed_methods, reason = "it is about the time of this machine")]
impl Lateness {
    const STEP: Duration = Duration::from_millis(10);

    pub(crate) fn watch() -> Self {
        Self::with(|| ())
    }

    /// That of a Valkey on this machine as well, which waits for the disk when it syncs each write.
    pub(crate) fn of_store(addr: SocketAddr) -> Self {
        Self::with(move || drop(Client::connect(addr).and_then(|mut client| client.call(&["PING"]))))
    }

    fn with(ask: impl Fn() + Send + 'static) -> Self {
        let shared = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
        let held: Weak<_> = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            while let Some(shared) = held.upgrade() {
                ask();
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                *shared = (Instant::now(), Self::until_now(&shared));
                drop(shared);
                std::thread::sleep(Self::STEP); // tidy: waits on the next look being due
            }
        });
        Self(shared)
    }

    fn until_now((last, late): &(Instant, Duration)) -> Duration {
        *late + last.elapsed().saturating_sub(Self::STEP)
    }

    /// By how much so far.
    pub(crate) fn so_far(&self) -> Duration {
        Self::until_now(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
