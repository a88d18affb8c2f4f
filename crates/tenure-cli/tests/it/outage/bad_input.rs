//! What the network may bring besides requests: the daemon answers it with a word, or hangs up, and nothing changes.
//!
//! What is wrong with a well-formed request is tried in the tests of `tenure-server`; here are the bytes below that,
//! on the sockets of a real process.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::Value;

use crate::outage::fleet::GROUP;
use crate::outage::witness::{claims, events, members};
use crate::support::{Daemon, SOON};

/// What comes back.
enum Wanted {
    /// A status, and a problem with this code.
    Problem(u16, &'static str),
    /// A status with an empty body: it is the parser below that refuses.
    Status(u16),
    /// Nothing: the connection is closed.
    Nothing,
}
use Wanted::{Nothing, Problem, Status};

struct Case {
    what: &'static str,
    bytes: Vec<u8>,
    /// Whether the sender closes its side after these bytes.
    ends: bool,
    wanted: Wanted,
}

fn case(what: &'static str, bytes: impl Into<Vec<u8>>, wanted: Wanted) -> Case {
    Case {
        what,
        bytes: bytes.into(),
        ends: false,
        wanted,
    }
}

/// The same, from a sender that goes away.
fn broken_off(what: &'static str, bytes: impl Into<Vec<u8>>, wanted: Wanted) -> Case {
    Case {
        ends: true,
        ..case(what, bytes, wanted)
    }
}

const JOIN: &str = "POST /v1/groups/ingest/members HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";

/// A join with this body, whatever it is.
fn join(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "{JOIN}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn not_http() -> Vec<Case> {
    vec![
        broken_off("nothing at all", "", Nothing),
        case(
            "noise",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
            Status(400),
        ),
        case("another protocol", "*1\r\n$8\r\nFLUSHALL\r\n", Status(400)),
        case("a version of the future", "GET /livez HTTP/9.9\r\n\r\n", Status(400)),
        broken_off("half a head", "GET /livez HTTP/1.1\r\nHo", Nothing),
        case(
            "a header without a colon",
            "GET /livez HTTP/1.1\r\nbroken\r\n\r\n",
            Status(400),
        ),
        case(
            "a head of a megabyte",
            format!("GET /livez HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)),
            Status(431),
        ),
        case(
            "a thousand headers",
            format!("GET /livez HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(1_000)),
            Status(431),
        ),
        case(
            "two lengths",
            format!("{JOIN}Content-Length: 5\r\nContent-Length: 6\r\n\r\n{{}}"),
            Status(400),
        ),
        case(
            "a negative length",
            format!("{JOIN}Content-Length: -1\r\n\r\n"),
            Status(400),
        ),
        case(
            "bytes that are no text in the path",
            b"GET /v1/groups/\xff\xfe/members HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".as_slice(),
            Status(400),
        ),
    ]
}

fn not_json() -> Vec<Case> {
    let kind = "Content-Type: application/json\r\n";
    vec![
        broken_off(
            "a body that breaks off",
            format!("{JOIN}{kind}Content-Length: 100\r\n\r\n{{"),
            Problem(400, "bad_request"),
        ),
        case(
            "chunks that are none",
            format!("{JOIN}{kind}Transfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n"),
            Problem(400, "bad_request"),
        ),
        case(
            "bytes that are no text",
            join(b"{\"member\":\"\xff\xfe\"}"),
            Problem(422, "invalid"),
        ),
        case(
            "a text that ends too early",
            join("{\"member\":\"a"),
            Problem(400, "malformed_json"),
        ),
        case(
            "two documents",
            join("{\"member\":\"a\"}{\"member\":\"b\"}"),
            Problem(400, "malformed_json"),
        ),
        case(
            "a hundred thousand brackets",
            join("[".repeat(100_000)),
            Problem(400, "malformed_json"),
        ),
        case(
            "a number beyond all",
            join("{\"member\":\"a\",\"ttl_ms\":1e999}"),
            Problem(422, "invalid"),
        ),
        case(
            "a NUL in a name",
            join("{\"member\":\"a\\u0000b\"}"),
            Problem(422, "invalid"),
        ),
        case(
            "half a surrogate in a name",
            join("{\"member\":\"\\ud800\"}"),
            Problem(422, "invalid"),
        ),
        case(
            "a body of two megabytes",
            join(format!("{{\"member\":\"{}\"}}", "a".repeat(2 << 20))),
            Problem(413, "body_too_large"),
        ),
        case(
            "a length of many terabytes",
            format!("{JOIN}{kind}Content-Length: 99999999999999\r\n\r\n"),
            Problem(413, "body_too_large"),
        ),
    ]
}

/// Sends the bytes and returns the whole answer. The daemon may disconnect before it has read everything, which gives an
/// empty answer.
fn send(daemon: &Daemon, bytes: &[u8], ends: bool) -> String {
    let mut stream = TcpStream::connect(daemon.addr).expect("the daemon listens");
    stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
    let mut reader = stream.try_clone().expect("a socket can be cloned");
    let answer = std::thread::spawn(move || {
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    });
    if stream.write_all(bytes).is_ok() && ends {
        let _ = stream.shutdown(Shutdown::Write);
    }
    answer.join().expect("the reader does not panic")
}

/// What is wrong with an answer, if anything.
fn judge(answer: &str, wanted: &Wanted) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status: Option<u16> = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let fine = match wanted {
        Nothing => answer.is_empty(),
        Status(code) => status == Some(*code),
        Problem(wanted, code) => {
            let problem: Value = serde_json::from_str(body).unwrap_or_default();
            let is_problem = head.to_lowercase().contains("content-type: application/problem+json");
            let says_why = problem["detail"].as_str().is_some_and(|detail| !detail.is_empty());
            status == Some(*wanted) && is_problem && says_why && problem["code"] == *code
        }
    };
    (!fine).then(|| answer.chars().take(600).collect())
}

#[test]
fn malformed_input_changes_nothing_and_stops_nothing() {
    let daemon = Daemon::start(&[]);
    let tenure = daemon.join(GROUP, "keeper", 60_000);
    daemon.claim(GROUP, "devices", &tenure, &["kept".to_owned()]);
    let seen = || {
        let groups = daemon.answered("GET", "/v1/groups", "");
        // A stall of the machine makes events about the group.
        let mut events = events(&daemon, "");
        events.retain(|event| !event["type"].as_str().is_some_and(|kind| kind.starts_with("group_")));
        (members(&daemon), claims(&daemon), events, groups)
    };
    let (before, pid) = (seen(), daemon.process.pid());

    let mut wrong = Vec::new();
    for Case {
        what,
        bytes,
        ends,
        wanted,
    } in not_http().into_iter().chain(not_json())
    {
        if let Some(answer) = judge(&send(&daemon, &bytes, ends), &wanted) {
            wrong.push(format!("{what}: {answer:?}"));
        }
        assert_eq!(daemon.http("GET", "/livez", "").0, 200, "after {what}");
    }
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(seen(), before, "nothing has changed");
    assert_eq!(daemon.process.pid(), pid, "it is the same process");
    let log = daemon.process.log();
    assert!(!log.contains("panicked"), "{log}");
}
