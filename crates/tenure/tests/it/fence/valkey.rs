//! The script in Valkey and Redis.

use std::process::{Command, Output};

use tenure::fence::VALKEY;
use tenure_testkit::resp::Reply;
use tenure_testkit::valkey::{Flavour, Server};

const MARK: &str = "{device-7}:fence";
const DATA: &str = "{device-7}:state";

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

/// Calls the script with a token and a command, without the command's key.
fn fenced(server: &Server, token: &str, command: &[&str]) -> Reply {
    let head = ["EVAL", VALKEY, "2", MARK, DATA, token];
    server.cli(&[&head, command].concat()).unwrap()
}

fn get(server: &Server, key: &str) -> String {
    server.cli(&["GET", key]).unwrap().text()
}

fn on_both(test: impl Fn(&Server)) {
    for flavour in Flavour::ALL {
        if let Some(server) = Server::start(flavour) {
            test(&server);
        }
    }
}

#[test]
fn equal_or_higher_tokens_are_admitted() {
    on_both(|server| {
        // Adjacent numbers up to the last exact integer, and of different lengths.
        for (token, is_admitted) in [
            ("5", true),
            ("5", true),
            ("4", false),
            ("10", true),
            ("9", false),
            ("1763676800000001", true),
            ("1763676800000000", false),
            ("1763676800000001", true),
            ("9007199254740990", true),
            ("9007199254740991", true),
            ("9007199254740990", false),
        ] {
            let before = get(server, DATA);
            let reply = fenced(server, token, &["SET", token]);
            if is_admitted {
                assert_eq!(reply, ok(), "{token}");
                assert_eq!(
                    (get(server, DATA), get(server, MARK)),
                    (token.to_owned(), token.to_owned())
                );
            } else {
                assert!(reply.text().starts_with("FENCED "), "{token}: {reply:?}");
                assert_eq!(get(server, DATA), before);
            }
        }
    });
}

#[test]
fn rejection_names_the_seen_token() {
    on_both(|server| {
        fenced(server, "43", &["SET", "x"]);
        let refusal = Reply::Error("FENCED {device-7}:fence has seen the token 43, and 42 is older".to_owned());
        assert_eq!(fenced(server, "42", &["SET", "x"]), refusal);
    });
}

#[test]
fn any_single_key_command_can_be_fenced() {
    on_both(|server| {
        assert_eq!(
            fenced(server, "1", &["HSET", "level", "21", "at", "noon"]).int(),
            Some(2)
        );
        assert_eq!(fenced(server, "1", &["HGET", "level"]).text(), "21");
        assert_eq!(fenced(server, "1", &["HGETALL"]).items().len(), 4);
        assert_eq!(fenced(server, "1", &["DEL"]).int(), Some(1));
        assert_eq!(fenced(server, "1", &["RPUSH", "", "a b", "\r\n"]).int(), Some(3));
        assert_eq!(fenced(server, "2", &["LRANGE", "0", "-1"]).texts(), ["", "a b", "\r\n"]);
        // Reads are fenced like writes.
        assert!(fenced(server, "1", &["LRANGE", "0", "-1"]).text().starts_with("FENCED"));
    });
}

#[test]
fn invalid_token_is_rejected_and_changes_nothing() {
    on_both(|server| {
        for token in [
            "",
            "0",
            "-1",
            "+1",
            "1.0",
            "1e3",
            "0x10",
            " 5",
            "5 ",
            "007",
            "nan",
            "5\0",
            "5\r\n",
            "9007199254740992",
            "9007199254740993",
            "90071992547409910",
            "१",
        ] {
            let reply = fenced(server, token, &["SET", "x"]);
            assert!(
                reply.text().starts_with("ERR fence: a token is"),
                "{token:?}: {reply:?}"
            );
        }
        assert_eq!(server.cli(&["DBSIZE"]).unwrap().int(), Some(0));
    });
}

#[test]
fn invalid_mark_is_an_error() {
    on_both(|server| {
        for mark in ["", "soon", "1e3", "-1", "9007199254740992"] {
            server.cli(&["SET", MARK, mark]).unwrap();
            let reply = fenced(server, "5", &["SET", "x"]).text();
            assert!(
                reply.starts_with("ERR fence: {device-7}:fence does not hold a mark"),
                "{mark:?}: {reply}"
            );
        }
        server.cli(&["DEL", MARK]).unwrap();
        server.cli(&["RPUSH", MARK, "x"]).unwrap();
        assert!(fenced(server, "5", &["SET", "x"]).text().starts_with("WRONGTYPE"));
        assert_eq!(server.cli(&["EXISTS", DATA]).unwrap().int(), Some(0));
    });
}

#[test]
fn call_without_keys_or_command_is_rejected() {
    on_both(|server| {
        for call in [
            &["1", MARK, "5", "SET", "x"][..],
            &["2", MARK, MARK, "5", "SET", "x"],
            &["3", MARK, DATA, "c", "5", "SET", "x"],
            &["2", MARK, DATA, "5"],
            &["2", MARK, DATA],
            &["0"],
        ] {
            let reply = server.cli(&[&["EVAL", VALKEY], call].concat()).unwrap();
            assert!(
                reply.text().starts_with("ERR fence: give the keys"),
                "{call:?}: {reply:?}"
            );
        }
        assert_eq!(server.cli(&["DBSIZE"]).unwrap().int(), Some(0));
    });
}

#[test]
fn failed_command_still_raises_the_mark() {
    on_both(|server| {
        fenced(server, "1", &["SET", "text"]);
        assert!(matches!(fenced(server, "2", &["RPUSH", "x"]), Reply::Error(_)));
        assert!(matches!(fenced(server, "2", &["NONSENSE"]), Reply::Error(_)));
        assert!(fenced(server, "1", &["SET", "old"]).text().starts_with("FENCED"));
        assert_eq!(get(server, DATA), "text");
        // Out of memory rejects the call before the mark rises or after it, never between mark and data.
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        for token in ["2", "3"] {
            assert!(fenced(server, token, &["SET", "y"]).text().contains("OOM"));
        }
        server.cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        assert!(fenced(server, "1", &["SET", "old"]).text().starts_with("FENCED"));
        assert_eq!(get(server, DATA), "text");
    });
}

#[test]
fn equal_token_writes_no_mark_and_mark_has_no_expiry() {
    on_both(|server| {
        server.cli(&["SET", MARK, "1", "EX", "1000"]).unwrap();
        fenced(server, "2", &["SET", "x"]);
        assert_eq!(server.cli(&["TTL", MARK]).unwrap().int(), Some(-1));
        let changes = || {
            let info = server.cli(&["INFO", "persistence"]).unwrap().text();
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
            line.unwrap().parse::<u64>().unwrap()
        };
        let before = changes();
        fenced(server, "2", &["SET", "x"]);
        assert_eq!(changes() - before, 1);
    });
}

/// The server's command-line client.
fn client(server: &Server, args: &[&str]) -> Option<Output> {
    let name = match server.flavour() {
        Flavour::Valkey => "valkey-cli",
        Flavour::Redis => "redis-cli",
    };
    let program = tenure_testkit::have(name).or_skip()?;
    let port = server.port().to_string();
    Some(Command::new(program).args(["-p", &port]).args(args).output().unwrap())
}

#[test]
fn command_line_client_can_call_the_script() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fence/valkey.lua");
    on_both(|server| {
        let call = |token| {
            let call = ["--eval", file, MARK, DATA, ",", token, "HSET", "level", token];
            let output = client(server, &call)?;
            Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
        };
        let Some(first) = call("42") else { return };
        assert_eq!(first, "1");
        assert!(call("41").unwrap().contains("FENCED"));
        let sha = client(server, &["SCRIPT", "LOAD", VALKEY]).unwrap();
        let sha = String::from_utf8(sha.stdout).unwrap();
        let by_name = ["EVALSHA", sha.trim(), "2", MARK, DATA, "43", "HGET", "level"];
        assert_eq!(server.cli(&by_name).unwrap().text(), "42");
    });
}
