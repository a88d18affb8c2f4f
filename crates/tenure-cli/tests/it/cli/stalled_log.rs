//! A daemon whose stderr is not read. It serves as before, and reports the lines that it lost.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::Value;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Process, wait};

use crate::support::{Daemon, Lateness, SOON, address_in, settled, spawn, tenure};

const TTL: Duration = Duration::from_secs(2);

/// A full pipe.
struct Stuck(File);

impl Stuck {
    /// Makes it at this path. It stays open for reading, so a write to it blocks.
    fn at(path: &Path) -> Self {
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let open = File::options()
            .read(true)
            .write(true)
            .custom_flags(nonblocking)
            .open(path);
        let mut pipe = open.unwrap();
        // Blank lines: what follows is read as whole lines.
        for chunk in [4096, 1] {
            while pipe.write(&vec![b'\n'; chunk]).is_ok() {}
        }
        Self(pipe)
    }

    /// Reads until a line contains `what`, and returns it. `more` makes the daemon log lines.
    fn read_until(&mut self, what: &str, mut more: impl FnMut()) -> String {
        let (mut text, mut found) = (String::new(), None);
        wait::until("the lines are read", SOON, || {
            more();
            let mut chunk = [0; 65_536];
            match self.0.read(&mut chunk) {
                Ok(read) => text.push_str(&String::from_utf8_lossy(&chunk[..read])),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            found = lines.find(|line| line.contains(what)).map(str::to_owned);
            text = text
                .rsplit_once('\n')
                .map_or(text.as_str(), |(_, rest)| rest)
                .to_owned();
            found.is_some()
        });
        found.unwrap()
    }
}

/// A daemon that logs everything, as JSON, to a full pipe.
fn start(store: Option<&str>) -> (Daemon, Stuck) {
    let mut stuck = None;
    let process = spawn("tenure serve", |command, dir| {
        let pipe = dir.join("stderr");
        stuck = Some(Stuck::at(&pipe));
        let binary = tenure();
        let mut shell = Command::new("sh");
        shell
            .args(["-c", r#"exec "$0" "$@" 2>stderr"#])
            .arg(binary.get_program());
        shell.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(dir);
        match store {
            Some(url) => _ = shell.args(["--store", url]),
            None => settled(&dir.join("tenure-data/tenure.db")),
        }
        *command = shell;
        command.envs([("TENURE_LOG", "trace"), ("TENURE_LOG_FORMAT", "json")]);
    });
    // The line on stdout is there although none on stderr can be written.
    let addr = address_in(&process, 0);
    (Daemon { process, addr }, stuck.unwrap())
}

/// A member that beats by itself, and holds a lease.
fn holder(daemon: &Daemon) -> (Process, Value) {
    let args = ["lock", "held", "--ttl", "2s", "--", "sleep", "1000"];
    let process = daemon.spawn(&args);
    let mut held = Value::Null;
    wait::until("the lease is held", SOON, || {
        held = daemon.http("GET", "/v1/groups/default/leases/held", "").1;
        held["alive"] == Value::Bool(true)
    });
    (process, held)
}

/// A member that acquires and releases a lease. Each line about it is long.
struct Busy<'d> {
    daemon: &'d Daemon,
    tenure: String,
    lease: String,
}

impl<'d> Busy<'d> {
    fn join(daemon: &'d Daemon) -> Self {
        let (tenure, lease) = (daemon.join("default", "busy", 60_000), "often".repeat(30));
        Self { daemon, tenure, lease }
    }

    fn work(&self) {
        let granted = self.daemon.granted("default", &self.lease, &[&self.tenure], 60_000);
        let token = granted["token"].as_u64().unwrap();
        self.daemon.release("default", &self.lease, &self.tenure, token, None);
    }

    /// Works until more has been logged than fits into the buffer, and for some ttls at least. Returns how long each beat in
    /// between took.
    fn flood(&self) -> Vec<Duration> {
        let (began, mut took) = (Instant::now(), Vec::new());
        while took.len() < 2_000 || began.elapsed() < TTL * 4 {
            self.work();
            assert_eq!(self.daemon.http("GET", "/livez", "").0, 200);
            let asked = Instant::now();
            self.daemon.beat("default", &[&self.tenure], 60_000);
            took.push(asked.elapsed());
        }
        took
    }
}

fn serves_as_before(daemon: &Daemon, stuck: &mut Stuck, other: &Daemon) {
    assert_eq!(daemon.http("POST", "/v1/settle", "").0, 200);
    let (_process, before) = holder(daemon);
    let lateness = Lateness::watch();
    let busy = Busy::join(daemon);
    let mut took = busy.flood();
    took.sort();
    let p99 = took[took.len() * 99 / 100];
    eprintln!("MEASURED p99 of {} beats: {p99:?}", took.len());
    assert!(p99 < Duration::from_millis(100) + lateness.so_far(), "{p99:?}");
    let (status, page) = other.answered("GET", "/v1/groups/default/events?types=lapsed", "");
    assert_eq!((status, page["events"].as_array().unwrap().len()), (200, 0), "{page}");
    let (_, held) = other.answered("GET", "/v1/groups/default/leases/held", "");
    assert_eq!((&held["tenure"], &held["token"]), (&before["tenure"], &before["token"]));

    // The note comes before the first line that fits again.
    let note = stuck.read_until("log lines lost", || busy.work());
    let note: Value = serde_json::from_str(&note).unwrap_or_else(|error| panic!("{error}: {note}"));
    assert!(note["lines"].as_u64().unwrap() > 0, "{note}");
}

#[test]
fn an_embedded_daemon_serves_while_its_log_is_stuck() {
    let (daemon, mut stuck) = start(None);
    serves_as_before(&daemon, &mut stuck, &daemon);
}

#[test]
fn no_member_lapses_at_a_daemon_whose_log_is_stuck() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let (daemon, mut stuck) = start(Some(&server.url()));
    // This one would end the members whose beats do not arrive.
    let other = Daemon::start(&["--store", &server.url()]);
    serves_as_before(&daemon, &mut stuck, &other);
}
