//! One address that opens as many connections as it can, against a daemon with few file descriptors.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{Daemon, Lateness};

const DESCRIPTORS: u64 = 1_024;
const SLOW: usize = 1_200;
const SILENT: usize = 1_500;
/// How many of each are opened again at a time, and how often: all of them about once a second. A faster flood fills the kernel's
/// queue, and then every client retries a second later, whatever the daemon does.
const RENEWED: usize = 100;
const RENEWED_EVERY: Duration = Duration::from_millis(75);
const TTL_MS: u64 = 5_000;
const BEATS: u32 = 50;
const BETWEEN_BEATS: Duration = Duration::from_millis(200);

/// Runs the command with so few descriptors; `ulimit -n` without more takes the right to raise them.
fn limited(command: &mut Command, limit: &str) {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        shell.current_dir(directory);
    }
    *command = shell;
}

/// This process has the other end of every connection.
fn widen() {
    let hard = getrlimit(Resource::Nofile).maximum;
    assert!(
        hard.is_none_or(|hard| hard >= 4_096),
        "the hard limit of open files is {hard:?}; at least 4096 are needed"
    );
    let wide = Rlimit {
        current: hard.map_or(Some(8_192), Some),
        maximum: hard,
    };
    setrlimit(Resource::Nofile, wide).expect("the limit can be raised");
}

fn silent(addr: SocketAddr) -> Option<TcpStream> {
    TcpStream::connect_timeout(&addr, Duration::from_secs(1)).ok()
}

/// Announces a body, and sends its first byte.
fn slow(addr: SocketAddr) -> Option<TcpStream> {
    let mut socket = silent(addr)?;
    let head = "POST /v1/groups/other/members HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 100\r\n\r\n{";
    socket.write_all(head.as_bytes()).ok()?;
    Some(socket)
}

/// Opens them all, and renews some again and again until it is stopped.
fn crowd(addr: SocketAddr, size: usize, open: fn(SocketAddr) -> Option<TcpStream>, flags: &Flags) {
    let mut sockets: Vec<_> = (0..size).map(|_| open(addr)).collect();
    flags.there.store(true, Ordering::Release);
    while !flags.stop.load(Ordering::Acquire) {
        sockets.rotate_left(RENEWED);
        for socket in sockets.iter_mut().rev().take(RENEWED) {
            *socket = open(addr);
        }
        thread::sleep(RENEWED_EVERY); // tidy: waits on the next renewal being due
    }
}

#[derive(Default)]
struct Flags {
    there: AtomicBool,
    stop: AtomicBool,
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how soon it answers is what is promised")]
fn slow_bodies_and_silent_sockets_end_no_member() {
    widen();
    let daemon = Daemon::with(|command| limited(command, &format!("ulimit -n {DESCRIPTORS}")));
    let kept = daemon.spawn(&[
        "join", "--group", "g", "--member", "kept", "--ttl", "5s", "--", "sleep", "600",
    ]);
    let tenure = daemon.join("g", "fresh", TTL_MS);
    let path = format!("/v1/groups/g/tenures/{tenure}/beat");
    let flags = [SLOW, SILENT].map(|_| Arc::new(Flags::default()));
    let crowds: Vec<_> = [(SLOW, slow as fn(_) -> _), (SILENT, silent)]
        .into_iter()
        .zip(flags.clone())
        .map(|((size, open), flags)| {
            thread::spawn({
                let addr = daemon.addr;
                move || crowd(addr, size, open, &flags)
            })
        })
        .collect();
    let (mut refused, mut beats, mut slowest) = (0, 0, Duration::ZERO);
    while beats < BEATS || !flags.iter().all(|flags| flags.there.load(Ordering::Acquire)) {
        let (begun, late) = (Instant::now(), Lateness::watch());
        let status = tenure_testkit::http::request(daemon.addr, "GET", "/livez", "")
            .expect("it is answered")
            .0;
        assert_eq!(status, 200);
        slowest = slowest.max(begun.elapsed().saturating_sub(late.so_far()));
        let answer = tenure_testkit::http::request(daemon.addr, "PUT", &path, "");
        refused += u32::from(!answer.is_ok_and(|(status, _)| status == 200));
        beats += 1;
        thread::sleep(BETWEEN_BEATS); // tidy: waits on the next beat being due
    }
    for flags in &flags {
        flags.stop.store(true, Ordering::Release);
    }
    for crowd in crowds {
        crowd.join().unwrap();
    }
    println!("{refused} of {beats} beats were refused; the slowest /livez took {slowest:?}");
    assert!(refused * 10 <= beats, "{refused} of {beats} beats");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let lapsed = daemon.http("GET", "/v1/groups/g/events?types=lapsed", "").1;
    assert_eq!(lapsed["events"], serde_json::json!([]), "{lapsed}");
    assert!(kept.is_running(), "{}", kept.log());
    let complaints = daemon.process.log().matches("cannot accept").count();
    assert!(
        complaints <= 30,
        "{complaints} lines about connections that cannot be accepted"
    );
    assert!(
        daemon.process.log().contains("limits.connections is 10000"),
        "{}",
        daemon.process.log()
    );
}

#[test]
fn a_low_soft_limit_is_raised_to_the_hard_one() {
    let daemon = Daemon::with(|command| limited(command, "ulimit -S -n 256"));
    let pid = daemon.process.pid().expect("it runs");
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<_> = files.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{files}");
    assert_ne!(words[3], "256", "{files}");
}
