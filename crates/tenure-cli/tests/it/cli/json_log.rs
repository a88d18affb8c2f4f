//! Logs as JSON: each line is one object, and no key is in an object twice.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Process, wait};

use crate::support::{Daemon, SOON, address_in, settled, spawn, tenure};

/// Any JSON without a key that an object has twice. `serde_json::Value` takes the last one.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format!("the key {key} is there twice")));
            }
            keys.insert(key);
            map.next_value::<Self>()?;
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}

#[test]
fn a_key_that_is_there_twice_is_found_at_every_level() {
    let parse = serde_json::from_str::<Unique>;
    assert!(parse(r#"{"a":1,"b":[{"a":null},{"a":-1.5}]}"#).is_ok());
    assert!(parse(r#"{"a":1,"a":1}"#).is_err() && parse(r#"[{"b":{"a":"","a":true}}]"#).is_err());
    assert!(serde_json::from_str::<IgnoredAny>(r#"{"a":1,"a":1}"#).is_ok());
}

/// A process that logs everything as JSON, into a file of its own.
fn logging(args: &[&str]) -> Process {
    spawn(args[0], |command, dir| {
        let binary = tenure();
        *command = Command::new("sh");
        command
            .args(["-c", r#"exec "$0" "$@" 2>stderr"#])
            .arg(binary.get_program());
        command.args(args).current_dir(dir);
        command.envs([("TENURE_LOG", "trace"), ("TENURE_LOG_FORMAT", "json")]);
    })
}

fn lines(process: &Process) -> Vec<String> {
    // The shell may not have created it yet.
    let text = std::fs::read_to_string(process.dir().join("stderr")).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(str::to_owned)
        .collect()
}

fn says(process: &Process, what: &str) {
    wait::until(&format!("it logs {what:?}"), SOON, || {
        lines(process).iter().any(|line| line.contains(what))
    });
}

/// Every change that a daemon logs.
fn lively(daemon: &Daemon) {
    let of_group = |method: &str, path: &str, body: Value| {
        let answer = daemon.answered(method, &format!("/v1/groups/g/{path}"), &body.to_string());
        assert!(answer.0 < 500, "{method} {path}: {answer:?}");
        answer.1
    };
    let a = daemon.join("g", "a", 60_000);
    let b = daemon.join("g", "b", 60_000);
    of_group("PUT", "targets/t", json!({"weight": 2}));
    of_group("DELETE", "targets/t", Value::Null);
    daemon.claim("g", "r", &a, &["k".to_owned()]);
    daemon.claim("g", "r", &b, &["k".to_owned()]);
    let token = |answer: Value| answer["token"].as_u64().unwrap();
    let held = token(daemon.granted("g", "l", &[&a, &b], 60_000));
    daemon.release("g", "l", &a, held, Some("b"));
    let held = token(daemon.granted("g", "l", &[&b, &a], 60_000));
    daemon.release("g", "l", &b, held, None);
    daemon.granted("g", "l", &[&a, &b], 60_000);
    of_group("DELETE", "leases/l", Value::Null);
    of_group("PUT", "sessions/s", json!({"tenure": a, "connection": "c"}));
    of_group("DELETE", &format!("sessions/s/connections/c?tenure={a}"), Value::Null);
    of_group("DELETE", "sessions/s", Value::Null);
    of_group("DELETE", &format!("tenures/{a}?expel=true"), Value::Null);
    of_group("POST", "sweep", json!({}));
    of_group("POST", "settle", json!({}));
    daemon.join("g", "b", 60_000);
    // Its lease is taken over from a tenure that has ended.
    let short = daemon.join("g", "short", 1_000);
    daemon.granted("g", "left", &[&short], 1_000);
    wait::until("it has lapsed", SOON, || {
        let (_, page) = daemon.answered("GET", "/v1/groups/g/events?types=lapsed", "");
        !page["events"].as_array().unwrap().is_empty()
    });
    assert!((400..500).contains(&daemon.http("POST", "/v1/groups/g/members", "{").0));
}

fn check(process: &Process) -> usize {
    process.signal(Signal::TERM).unwrap();
    process.wait(SOON).unwrap();
    let lines = lines(process);
    for line in &lines {
        let parsed = serde_json::from_str::<Unique>(line);
        parsed.map(drop).unwrap_or_else(|error| panic!("{error}: {line}"));
        let message = &serde_json::from_str::<Value>(line).unwrap()["message"];
        assert!(message.is_string() || !line.contains("\"level\":\"INFO\""), "{line}");
    }
    lines.len()
}

fn daemon_on(store: &str) -> Daemon {
    let process = logging(&["serve", "--listen", "127.0.0.1:0", "--store", store]);
    let addr = address_in(&process, 0);
    Daemon { process, addr }
}

fn adopt(url: &str) -> Process {
    let args = [
        "adopt",
        "registry",
        "--hash",
        "h",
        "--heartbeat",
        "beat:{id}",
        "--settle",
        "0s",
    ];
    logging(&[&args[..], &["--interval", "1s", "--store", url]].concat())
}

#[test]
fn every_line_is_json_and_no_key_is_there_twice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenure.db");
    settled(Path::new(&file));
    let valkey = Server::start(Flavour::Valkey);
    let stores = [
        Some(format!("sqlite:{}", file.display())),
        valkey.as_ref().map(Server::url),
    ];
    for store in stores.into_iter().flatten() {
        let daemon = daemon_on(&store);
        assert_eq!(daemon.http("POST", "/v1/settle", "").0, 200);
        lively(&daemon);
        let (url, command) = (daemon.url(), ["--", "sleep", "1000"]);
        for (wrapper, held) in [
            (&["join", "--group", "w"][..], "joined"),
            (&["lock", "q", "--group", "w"], "q"),
            (&["run", "--leader", "lease:p", "--group", "w"], "p"),
        ] {
            let args = [wrapper, &["--store", &url], &command].concat();
            let process = logging(&args);
            if wrapper[0] != "join" {
                let path = format!("/v1/groups/w/leases/{held}");
                wait::until("the lease is held", SOON, || {
                    daemon.http("GET", &path, "").1["alive"] == json!(true)
                });
            } else {
                wait::until("it has joined", SOON, || {
                    daemon.answered("GET", "/v1/groups/w/events?types=joined", "").1["events"] != json!([])
                });
            }
            check(&process);
        }
        if let Some(valkey) = valkey.as_ref().filter(|valkey| valkey.url() == store) {
            valkey.cli(&["HSET", "h", "device-1", "dead"]).unwrap();
            let adopts = adopt(&store);
            says(&adopts, "dead");
            assert!(check(&adopts) > 0);
        }
        for what in [
            "lease acquired",
            "lease handed off",
            "lease released",
            "lease revoked",
            "session created",
            "operated",
        ] {
            says(&daemon.process, what);
        }
        assert!(check(&daemon.process) > 20);
    }
}
