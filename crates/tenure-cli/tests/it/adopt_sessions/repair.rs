//! An index of other programs that is wrong: it is noticed, and can be repaired.

use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Process, http, wait};

use super::{PATIENCE, ago, has_run_for_a_while, json, keys, run, session, tenure};

const SHARED: [&str; 2] = ["--index", "theirs"];
const REAP: [&str; 5] = ["--index", "theirs", "--reap", "--max-age", "1s"];

fn score(server: &Server, id: &str) -> Option<String> {
    let reply = server.cli(&["ZSCORE", "theirs", id]).unwrap();
    (!matches!(reply, tenure_testkit::resp::Reply::Nil)).then(|| reply.text())
}

/// Sessions with wrong entries, as a program with a mistake leaves them.
fn wrong(server: &Server, since: &str) {
    for id in ["endless", "in-ms", "later", "right", "odd"] {
        session(server, id, since);
    }
    session(server, "active", "0");
    session(server, "odd", "yesterday");
    let ms = format!("{since}000");
    let later = ago(60);
    for (score, id) in [
        ("inf", "endless"),
        (ms.as_str(), "in-ms"),
        (later.as_str(), "later"),
        (since, "right"),
        (ms.as_str(), "active"),
        ("inf", "gone"),
        ("inf", "odd"),
    ] {
        server.cli(&["ZADD", "theirs", score, id]).unwrap();
    }
}

#[test]
fn wrong_entries_of_others_are_repaired_and_reaped() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        let since = ago(3_600);
        wrong(&server, &since);
        has_run_for_a_while(&server);
        let (code, told) = json(&server, &[&REAP[..], &["--dry-run"]].concat());
        assert_eq!((code, &told["never_due"]), (0, &5.into()), "{told}");
        let before = server.cli(&["DUMP", "theirs"]).unwrap();
        let (code, told) = json(&server, &[&SHARED[..], &["--repair", "--dry-run"]].concat());
        assert_eq!((code, &told["repaired"]), (0, &5.into()), "{told}");
        assert_eq!(server.cli(&["DUMP", "theirs"]).unwrap(), before);

        let (code, told) = json(&server, &[&SHARED[..], &["--repair"]].concat());
        assert_eq!(
            (code, &told["repaired"], &told["added"]),
            (0, &5.into(), &0.into()),
            "{told}"
        );
        for id in ["endless", "in-ms", "later", "right"] {
            assert_eq!(score(&server, id).as_deref(), Some(since.as_str()), "{id}");
        }
        assert_eq!((score(&server, "active"), score(&server, "gone")), (None, None));
        assert_eq!(
            score(&server, "odd").as_deref(),
            Some("inf"),
            "not understood, so left alone"
        );
        // They stay theirs.
        let (_, undone) = json(&server, &[&SHARED[..], &["--undo"]].concat());
        assert_eq!(
            (&undone["removed"], &undone["not_ours"]),
            (&0.into(), &0.into()),
            "{undone}"
        );
        let (code, told) = json(&server, &REAP);
        assert_eq!(
            (code, &told["reaped"], &told["never_due"]),
            (0, &4.into(), &1.into()),
            "{told}"
        );
        assert_eq!(keys(&server, "session:*"), 2);
    }
}

#[test]
fn entries_that_are_never_due_show_in_the_log_and_the_metrics() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    session(&server, "endless", &ago(3_600));
    server.cli(&["ZADD", "theirs", "inf", "endless"]).unwrap();
    let (_, _, stderr) = run(&server, &REAP);
    assert!(
        stderr.contains("1 entry whose time is more than a day ahead"),
        "{stderr}"
    );
    let args = [&REAP[..], &["--interval", "1s", "--metrics-listen", "127.0.0.1:0"]].concat();
    let daemon = Process::spawn("adopt-sessions", |_| tenure(&server, &args)).unwrap();
    wait::until("it warns", PATIENCE, || daemon.log().contains("--repair corrects them"));
    let log = daemon.log();
    let url = log.lines().find_map(|line| line.strip_prefix("http://")).unwrap();
    let address = url.trim_end_matches("/metrics").parse().unwrap();
    wait::until("the gauge tells", PATIENCE, || {
        let body = http::get(address, "/metrics").unwrap().1;
        body.contains("tenure_adopt_sessions_index_never_due{sessions=\"session:*\"} 1\n")
    });
    assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
}
