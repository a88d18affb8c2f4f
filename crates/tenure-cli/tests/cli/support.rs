//! Running the binary, and a daemon of one's own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tenure_testkit::{Process, wait};

/// What a test waits for at most, where it waits for something that should come at once.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// The binary, without whatever the machine's environment has to say to it.
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

    /// With whatever `set` sets; it is started in a directory of its own.
    #[track_caller]
    pub(crate) fn with(set: impl FnOnce(&mut Command)) -> Self {
        let process = spawn("tenure serve", |command, _| {
            command.args(["serve", "--listen", "127.0.0.1:0"]);
            set(command);
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

    #[track_caller]
    pub(crate) fn text(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.addr).expect("the daemon listens");
        stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
        let head = format!(
            "{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .expect("the daemon reads");
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

    /// Joins over HTTP and answers the tenure.
    #[track_caller]
    pub(crate) fn join(&self, group: &str, member: &str, ttl_ms: u64) -> String {
        let body = format!(r#"{{"member":"{member}","ttl_ms":{ttl_ms}}}"#);
        let (status, joined) = self.http("POST", &format!("/v1/groups/{group}/members"), &body);
        assert_eq!(status, 201, "{joined}");
        joined["tenure"].as_str().expect("a join answers a tenure").to_owned()
    }

    /// Asks for a lease under a tenure.
    #[track_caller]
    pub(crate) fn acquire(&self, group: &str, lease: &str, tenure: &str) -> (u16, Value) {
        let body = serde_json::json!({ "tenure": tenure }).to_string();
        self.http("POST", &format!("/v1/groups/{group}/leases/{lease}/acquire"), &body)
    }

    /// Gives a lease up, for somebody or nobody.
    #[track_caller]
    pub(crate) fn release(&self, group: &str, lease: &str, tenure: &str, token: u64, to: Option<&str>) -> (u16, Value) {
        let body = serde_json::json!({ "tenure": tenure, "token": token, "to": to }).to_string();
        self.http("POST", &format!("/v1/groups/{group}/leases/{lease}/release"), &body)
    }

    /// Claims keys under a tenure.
    #[track_caller]
    pub(crate) fn claim(&self, group: &str, registry: &str, tenure: &str, keys: &[String]) -> (u16, Value) {
        let body = serde_json::json!({ "tenure": tenure, "keys": keys }).to_string();
        self.http(
            "POST",
            &format!("/v1/groups/{group}/registries/{registry}/claims"),
            &body,
        )
    }
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
