//! Names that are mistyped are noticed, and a user with the rights of the guide is enough.

use std::process::Command;

use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Process, wait};

use super::{PATIENCE, ago, has_run_for_a_while, json, keys, output, run, session, tenure};
use crate::docs::text;

const REAP: [&str; 5] = ["--reap", "--max-age", "1s", "--alias", "alias:{field:broadcaster_id}"];

/// An orphan with a count of 0 and an alias, and one that is referred to.
fn counted(server: &Server) {
    for (id, refs) in [("orphan", "0"), ("counted", "1")] {
        session(server, id, &ago(3_600));
        let (key, alias) = (format!("session:{id}"), format!("alias:b-{id}"));
        server
            .cli(&["HSET", &key, "broadcaster_id", &format!("b-{id}")])
            .unwrap();
        server.cli(&["SET", &format!("{key}:refs"), refs]).unwrap();
        server.cli(&["SET", &alias, id]).unwrap();
    }
    assert_eq!(run(server, &[]).0, 0);
    has_run_for_a_while(server);
}

#[test]
fn a_dry_run_names_the_keys_that_would_go() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        counted(&server);
        let dry = [&REAP[..], &["--refs", "session:{id}:refs", "--dry-run"]].concat();
        let (code, stdout, stderr) = run(&server, &dry);
        let first = "SESSION  GOES WITH IT\norphan   session:orphan:refs  alias:b-orphan\n";
        assert!(code == 0 && stdout.starts_with(first), "{stdout}{stderr}");
        assert!(!stderr.contains("is --refs right?"), "{stderr}");
        let (_, told) = json(&server, &dry);
        assert_eq!(told["doomed"][0]["session"], "orphan", "{told}");
        assert_eq!(told["doomed"][0]["keys"][1], "alias:b-orphan", "{told}");
        assert_eq!((&told["reaped"], &told["uncounted"]), (&1.into(), &0.into()), "{told}");
        assert_eq!(keys(&server, "*:reaper:*"), 0);
    }
}

#[test]
fn mistyped_refs_are_noticed_before_and_while_they_reap() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    counted(&server);
    let wrong = [&REAP[..], &["--refs", "session:{id}:refz"]].concat();
    let (code, stdout, stderr) = run(&server, &[&wrong[..], &["--dry-run"]].concat());
    assert!(code == 0 && stderr.contains("is --refs right?"), "{stdout}{stderr}");
    assert!(stdout.contains("orphan   alias:b-orphan\n"), "{stdout}");
    let (_, told) = json(&server, &[&wrong[..], &["--dry-run"]].concat());
    assert_eq!((&told["reaped"], &told["uncounted"]), (&2.into(), &2.into()), "{told}");
    let args = [&wrong[..], &["--interval", "1s", "--verbose"]].concat();
    let daemon = Process::spawn("adopt-sessions", |_| tenure(&server, &args)).unwrap();
    wait::until("it has reaped them", PATIENCE, || daemon.log().contains("reaped=2"));
    assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("is --refs right?"), "{log}");
    // And, since it is verbose, which sessions.
    for id in ["orphan", "counted"] {
        let named = format!("session=\"{id}\"");
        assert!(
            log.lines().any(|line| line.contains("reaped") && line.contains(&named)),
            "{log}"
        );
    }
}

#[test]
fn a_pattern_that_matches_nothing_is_noticed() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    for args in [&[][..], &["--dry-run"], &["--compare"]] {
        let (code, _, stderr) = run(&server, args);
        assert!(
            code == 1 && stderr.contains("is --pattern right?"),
            "{args:?}: {code} {stderr}"
        );
        let (code, _, stderr) = run(&server, &[args, &["--allow-empty"]].concat());
        assert_eq!(code, 0, "{args:?}: {stderr}");
    }
    let daemon = Process::spawn("adopt-sessions", |_| tenure(&server, &["--interval", "1s"])).unwrap();
    wait::until("it warns", PATIENCE, || daemon.log().contains("is --pattern right?"));
    assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
}

/// The rights of the user in a guide.
fn rights(guide: &str, user: &str) -> Vec<String> {
    let guide = text(&format!("docs/guides/{guide}"));
    let from = guide.split(&format!("ACL SETUSER {user} ")).nth(1).unwrap();
    let words = from.split("```").next().unwrap().split_whitespace();
    words.map(str::to_owned).collect()
}

#[test]
fn a_user_with_the_rights_of_the_guide_is_enough() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let rights = rights("adopt.md", "adopter");
        let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
        server
            .cli(&[&["ACL", "SETUSER", "adopter"][..], &rights, &["~theirs"]].concat())
            .unwrap();
        let url = server.url().replace("://", "://adopter:secret@");
        let as_user = |url: &str, args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
            command.args(["adopt", "sessions", "--pattern", "session:*", "--store", url]);
            output(command.args(["--disconnected-field", "last_disconnect"]).args(args))
        };
        counted(&server);
        server.cli(&["ZADD", "theirs", "inf", "orphan"]).unwrap();
        let all: [&[&str]; 7] = [
            &[],
            &["--dry-run"],
            &["--compare"],
            &["--index", "theirs", "--repair"],
            &[&REAP[..], &["--refs", "session:{id}:refs", "--dry-run"]].concat(),
            &[&REAP[..], &["--refs", "session:{id}:refs"]].concat(),
            &["--undo"],
        ];
        for args in all {
            let (code, _, stderr) = as_user(&url, args);
            assert!(code == 0 && !stderr.contains("denies"), "{args:?}: {stderr}");
        }
        assert_eq!(keys(&server, "session:orphan"), 0);
        // Another database than the first one is selected.
        let (code, _, stderr) = as_user(&format!("{url}/1"), &["--allow-empty"]);
        assert_eq!(code, 0, "{stderr}");
    }
}
