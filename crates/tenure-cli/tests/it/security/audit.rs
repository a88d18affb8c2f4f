//! The log of what operators do.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use tenure_testkit::wait;

use crate::security::tokens::{Tokens, with_token};
use crate::support::{Daemon, SOON};

fn lines(daemon: &Daemon) -> Vec<Value> {
    let log = daemon.process.log();
    let json = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    json.filter(|line| line["message"] == "operated").collect()
}

#[test]
fn operator_acts_and_refusals_are_audited() {
    let tokens = Tokens::none();
    let operator = tokens.new_token("alice", &["--scope", "operate,read"]);
    let member = tokens.new_token("node-7", &["--scope", "beat"]);
    let daemon = Daemon::with(|command| {
        command
            .args(["--log", "warn,tenure::audit=info", "--log-format", "json", "--tokens"])
            .arg(tokens.file());
    });
    let secrets = [&operator, &member].map(|file| std::fs::read_to_string(file).unwrap().trim().to_owned());
    // A group begins with its first member.
    assert_eq!(with_token(&daemon, &member, &["join", "--", "true"]).code, Some(0));
    assert_eq!(with_token(&daemon, &operator, &["sweep", "--force"]).code, Some(0));
    assert_eq!(with_token(&daemon, &member, &["sweep"]).code, Some(1));
    assert_eq!(daemon.http("POST", "/v1/groups/g/sweep", "").0, 401);
    let expel = |token: &str| {
        let addr = daemon.addr;
        let shown = format!("Bearer {token}");
        let headers = [("authorization", shown.as_str())];
        let path = "/v1/groups/g/tenures/a@1?expel=true";
        tenure_testkit::http::request_with(addr, "DELETE", path, &headers, "")
            .unwrap()
            .0
    };
    assert_eq!((expel(&secrets[0]), expel(&secrets[1])), (204, 403));
    wait::until("five lines", SOON, || lines(&daemon).len() >= 5);
    let told: Vec<_> = lines(&daemon)
        .into_iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            assert!(text("from").starts_with("127.0.0.1:"), "{line}");
            (
                text("who"),
                text("path"),
                text("details"),
                text("outcome"),
                line["status"].as_u64().unwrap(),
            )
        })
        .collect();
    let line = |who: &str, path: &str, details: &str, outcome: &str, status| {
        (
            who.to_owned(),
            path.to_owned(),
            details.to_owned(),
            outcome.to_owned(),
            status,
        )
    };
    let (sweep, tenure) = ("/v1/groups/default/sweep", "/v1/groups/g/tenures/a@1");
    assert_eq!(
        told,
        [
            line("alice", sweep, "force", "done", 200),
            line("node-7", sweep, "", "refused", 403),
            line("-", "/v1/groups/g/sweep", "", "refused", 401),
            line("alice", tenure, "expel", "done", 204),
            line("node-7", tenure, "expel", "refused", 403),
        ]
    );
    for secret in secrets {
        assert!(!daemon.process.log().contains(&secret[4..]), "a token is in the log");
    }
}

#[test]
fn a_slow_body_keeps_no_operator_out() {
    let tokens = Tokens::none();
    let operator = tokens.new_token("alice", &["--scope", "operate"]);
    let member = tokens.new_token("node-7", &["--scope", "beat"]);
    let daemon = Daemon::with(|command| {
        command
            .args(["--log", "warn,tenure::audit=info", "--log-format", "json"])
            .args(["--limits-requests", "1", "--tokens"])
            .arg(tokens.file());
    });
    let [operator, member] = [operator, member].map(|file| std::fs::read_to_string(file).unwrap().trim().to_owned());
    // The daemon asks for the body once it waits for it.
    let mut slow = TcpStream::connect(daemon.addr).unwrap();
    let head = format!(
        "POST /v1/groups/g/members HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {member}\r\nContent-Type: \
         application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    );
    slow.write_all(head.as_bytes()).unwrap();
    let mut asked = [0; 12];
    slow.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100");
    let shown = format!("Bearer {operator}");
    let headers = [("authorization", shown.as_str())];
    let path = "/v1/groups/g/tenures/a@1";
    let expel = format!("{path}?expel=true");
    let answer = tenure_testkit::http::request_with(daemon.addr, "DELETE", &expel, &headers, "").unwrap();
    assert_eq!(answer.0, 204, "{}", answer.1);
    wait::until("the line", SOON, || !lines(&daemon).is_empty());
    let [line] = &lines(&daemon)[..] else {
        panic!("{}", daemon.process.log());
    };
    for (field, value) in [
        ("who", "alice"),
        ("path", path),
        ("details", "expel"),
        ("outcome", "done"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
}
