//! `claim`, `acquire`, `release`, `expel` and `groups`: what a person at a terminal does for a member.

use serde_json::{Value, json};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::support::{Daemon, Ran, SOON, run, said, spawn, tenure};

/// A daemon with the living members `a` and `b` of group `g`, and their tenures.
fn with_members() -> (Daemon, [String; 2]) {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let tenures = ["a", "b"].map(|member| daemon.join("g", member, 60_000));
    (daemon, tenures)
}

/// Runs a command in group `g`.
#[track_caller]
fn act(daemon: &Daemon, args: &[&str]) -> Ran {
    daemon.run(&[args, &["--group", "g"]].concat())
}

#[track_caller]
fn rows(ran: &Ran) -> Vec<Vec<&str>> {
    let columns = |line| {
        Vec::from_iter(
            str::split(line, "  ")
                .map(str::trim)
                .filter(|column| !column.is_empty()),
        )
    };
    ran.out.lines().map(columns).collect()
}

mod claim {
    use super::*;

    #[test]
    fn claims_move_to_the_newest_claimant() {
        let (daemon, [a, b]) = with_members();
        let ran = act(&daemon, &["claim", "devices", "cam-1", "cam-2", "--as", "a"]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        assert_eq!(
            rows(&ran),
            [
                ["KEY", "OUTCOME", "OWNER", "TENURE"],
                ["cam-1", "new", "a", &a],
                ["cam-2", "new", "a", &a],
            ]
        );
        let ran = act(&daemon, &["claim", "devices", "cam-1", "--as", &b]);
        assert_eq!(rows(&ran)[1], ["cam-1", &format!("moved from {a}"), "b", &b]);
        let again = act(&daemon, &["claim", "devices", "cam-1", "--as", "b", "--json"]).json();
        assert_eq!(
            again,
            json!({"tenure": b, "results": [{"key": "cam-1", "outcome": "kept"}]})
        );
    }

    #[test]
    fn if_absent_leaves_keys_of_living_owners() {
        let (daemon, [a, _]) = with_members();
        act(&daemon, &["claim", "devices", "cam-1", "--as", "a"]);
        let ran = act(
            &daemon,
            &["claim", "devices", "cam-1", "cam-2", "--as", "b", "--if-absent"],
        );
        assert_eq!(ran.code, Some(1));
        assert_eq!(ran.err, "tenure: not claimed: 1 of 2 keys have a living owner\n");
        assert_eq!(rows(&ran)[1], ["cam-1", "held", "a", &a]);
        assert_eq!(rows(&ran)[2][..3], ["cam-2", "new", "b"]);
    }

    #[test]
    fn a_member_without_a_tenure_is_refused() {
        let (daemon, [a, _]) = with_members();
        daemon.join("g", "gateway-1", 60_000);
        let ran = act(&daemon, &["claim", "devices", "cam-1", "--as", "gateway-2"]);
        assert_eq!(ran.code, Some(1));
        assert_eq!(
            ran.err,
            "tenure: error: member \"gateway-2\" has no tenure in group \"g\"; did you mean \"gateway-1\"? begin one with \
             `tenure join --group g --member gateway-2 -- CMD`\n"
        );
        daemon.http("DELETE", &format!("/v1/groups/g/tenures/{a}"), "");
        let ran = act(&daemon, &["claim", "devices", "cam-1", "--as", &a]);
        assert_eq!(
            (ran.code, ran.err),
            (Some(1), format!("tenure: error: the tenure {a} has left\n"))
        );
        let ran = daemon.run(&["claim", "devices", "cam-1", "--group", "gg", "--as", "a"]);
        assert_eq!(
            (ran.code, ran.err.as_str()),
            (
                Some(1),
                "tenure: error: no group \"gg\"; choose one with --group or TENURE_GROUP: g\n"
            )
        );
        assert_eq!(
            act(&daemon, &["claim", "devices", "cam-1", "--as", "a@x"]).code,
            Some(2)
        );
        assert_eq!(act(&daemon, &["claim", "devices", "--as", "a"]).code, Some(2));
        assert_eq!(act(&daemon, &["claim", "devices", "cam-1"]).code, Some(2));
    }

    #[test]
    fn a_wrapped_command_claims_under_its_own_tenure() {
        let daemon = Daemon::start(&["--store", "memory:"]);
        let script = format!("{} claim devices cam-1; exec sleep 60", env!("CARGO_BIN_EXE_tenure"));
        let join = daemon.spawn(&["join", "--group", "g", "--member", "gw-1", "--", "sh", "-c", &script]);
        said(&join, "cam-1  new      gw-1   gw-1@");
        let claim = daemon.run(&["claims", "cam-1", "--group", "g", "--registry", "devices", "--json"]);
        assert_eq!(claim.json()["owner"], "gw-1");
    }
}

mod lease {
    use super::*;

    #[test]
    fn acquire_prints_token_and_deadline() {
        let (daemon, [a, _]) = with_members();
        let ran = act(&daemon, &["acquire", "report", "--as", "a"]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        let table = rows(&ran);
        assert_eq!(table[0], ["LEASE", "OUTCOME", "HOLDER", "TOKEN", "UNTIL"]);
        assert_eq!(table[1][..3], ["report", "granted", "a"]);
        let kept = act(&daemon, &["acquire", "report", "--as", "a", "--json"]).json();
        assert_eq!(kept["tenure"], Value::from(a.as_str()));
        assert_eq!(kept["results"][0]["outcome"], "kept");
        assert_eq!(kept["results"][0]["token"].to_string(), table[1][3]);
        let until: jiff::Timestamp = table[1][4].parse().unwrap();
        assert!(until > kept["as_of"].as_str().unwrap().parse().unwrap(), "{}", ran.out);
    }

    #[test]
    fn a_held_lease_is_not_acquired() {
        let (daemon, [a, _]) = with_members();
        act(&daemon, &["acquire", "report", "--as", "a"]);
        let ran = act(&daemon, &["acquire", "report", "other", "--as", "b"]);
        assert_eq!(ran.code, Some(1));
        assert_eq!(rows(&ran)[1], ["report", "held", "a", "-", "-"]);
        assert_eq!(rows(&ran)[2][..3], ["other", "granted", "b"]);
        let why = format!(
            "tenure: lease \"report\" not acquired: {a} holds it; without another heartbeat of that tenure it is free in "
        );
        assert!(ran.err.starts_with(&why), "{}", ran.err);
    }

    #[test]
    fn a_new_store_says_when_it_grants_leases() {
        let daemon = Daemon::new(&[]);
        daemon.join("g", "a", 60_000);
        let ran = act(&daemon, &["acquire", "report", "--as", "a"]);
        assert_eq!(
            (ran.code, rows(&ran)[1].as_slice()),
            (Some(1), &["report", "unsettled", "-", "-", "-"][..])
        );
        assert!(
            ran.err.contains("lease \"report\" not acquired: the store is new")
                && ran.err.contains("run `tenure settle`"),
            "{}",
            ran.err
        );
    }

    #[test]
    fn only_the_holder_releases() {
        let (daemon, [a, b]) = with_members();
        act(&daemon, &["acquire", "report", "--as", "a"]);
        let ran = act(&daemon, &["release", "lease", "report", "--as", "b"]);
        assert_eq!(
            (ran.code, rows(&ran)[1].as_slice()),
            (Some(1), &["report", &format!("held by {a}")][..])
        );
        let ran = act(&daemon, &["release", "lease", "report", "--as", "a", "--token", "7"]);
        assert_eq!(
            (ran.code, rows(&ran)[1].as_slice()),
            (Some(1), &["report", &format!("held by {a}")][..])
        );
        let ran = act(&daemon, &["release", "lease", "report", "--as", "a", "--to", "b"]);
        assert_eq!(
            (ran.code, rows(&ran)[1].as_slice()),
            (Some(0), &["report", "reserved for b"][..])
        );
        let ran = act(&daemon, &["acquire", "report", "--as", "a"]);
        assert!(
            ran.err.contains("handed off to b") || ran.out.contains("granted"),
            "{}{}",
            ran.out,
            ran.err
        );
        act(&daemon, &["acquire", "report", "--as", "b"]);
        let free = act(&daemon, &["release", "lease", "report", "--as", "b", "--json"]);
        assert_eq!(
            free.json(),
            json!({"tenure": b, "results": [{"lease": "report", "outcome": "released"}]})
        );
    }
}

mod waiting {
    use super::*;

    /// Waits until a request waits for the lease.
    fn until_waiting(daemon: &Daemon) {
        wait::until("the request waits", SOON, || {
            act(daemon, &["leases", "report", "--json"]).json()["waiting"] == 1
        });
    }

    #[test]
    fn acquire_waits_for_its_turn() {
        let (daemon, [_, b]) = with_members();
        let token =
            act(&daemon, &["acquire", "report", "--as", "a", "--json"]).json()["results"][0]["token"].to_string();
        let waiter = daemon.spawn(&["acquire", "report", "--as", "b", "--wait", "60s", "--group", "g"]);
        until_waiting(&daemon);
        let why = act(&daemon, &["why", "lease:report"]);
        assert!(why.out.contains("1 request waits"), "{}", why.out);
        let listed = act(&daemon, &["leases"]);
        assert_eq!(rows(&listed)[1][..4], ["report", "0 of 1", "1", "a"], "{}", listed.out);
        act(&daemon, &["release", "lease", "report", "--as", "a", "--token", &token]);
        said(&waiter, "granted");
        let held = act(&daemon, &["leases", "report", "--json"]).json();
        assert_eq!(held["tenure"], Value::from(b.as_str()));
    }

    #[test]
    fn wait_that_is_over_fails() {
        let (daemon, [a, _]) = with_members();
        act(&daemon, &["acquire", "report", "--as", "a"]);
        let ran = act(&daemon, &["acquire", "report", "--as", "b", "--wait", "200ms"]);
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.contains(&format!("not acquired: {a} holds it")), "{}", ran.err);
    }

    #[test]
    fn wait_is_for_one_lease() {
        let (daemon, _) = with_members();
        let ran = act(&daemon, &["acquire", "one", "two", "--as", "a", "--wait", "1s"]);
        assert_eq!(ran.code, Some(2));
        assert!(ran.err.contains("--wait is for one lease"), "{}", ran.err);
    }

    #[test]
    fn holders_share_a_lease() {
        let (daemon, _) = with_members();
        for (place, member) in ["a", "b"].into_iter().enumerate() {
            let ran = act(
                &daemon,
                &["acquire", "slots", "--as", member, "--holders", "2", "--json"],
            );
            assert_eq!(ran.json()["results"][0]["place"], Value::from(place), "{}", ran.out);
        }
        let listed = act(&daemon, &["leases", "slots"]);
        let places: Vec<_> = rows(&listed)[1..].iter().map(|row| (row[1], row[3])).collect();
        assert_eq!(places, [("0 of 2", "a"), ("1 of 2", "b")], "{}", listed.out);
        let ran = act(&daemon, &["acquire", "slots", "--as", "a", "--holders", "0"]);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
    }

    #[test]
    fn operator_releases_a_lease() {
        let (daemon, [a, _]) = with_members();
        let token = act(&daemon, &["acquire", "report", "--as", "a", "--json"]).json()["results"][0]["token"].clone();
        let ran = act(&daemon, &["leases", "release", "report", "--json"]);
        let released = ran.json();
        assert_eq!(
            (&released["tenure"], &released["token"]),
            (&Value::from(a.as_str()), &token)
        );
        assert_eq!(released["free_when"], "tenure_ends", "{released}");
        assert!(ran.err.contains("its holder cannot notice"), "{}", ran.err);
        let why = act(&daemon, &["why", "lease:report"]);
        assert!(why.out.contains("an operator released the lease report"), "{}", why.out);
        for (args, must_say) in [
            (["--holder", "b"], "does not hold lease"),
            (["--token", "7"], "is not held by"),
        ] {
            let ran = act(&daemon, &[&["leases", "release", "report"], &args[..]].concat());
            assert_eq!(ran.code, Some(1));
            assert!(ran.err.contains(must_say), "{}", ran.err);
        }
        let ran = act(&daemon, &["leases", "release", "other"]);
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.contains("lease \"other\" is not held"), "{}", ran.err);
    }
}

#[test]
fn released_keys_are_free_and_keys_of_others_stay() {
    let (daemon, _) = with_members();
    act(&daemon, &["claim", "devices", "cam-1", "--as", "a"]);
    act(&daemon, &["claim", "devices", "cam-2", "--as", "b"]);
    let ran = act(
        &daemon,
        &["release", "claim", "devices", "cam-1", "cam-2", "cam-3", "--as", "a"],
    );
    assert_eq!(ran.code, Some(1));
    assert_eq!(
        rows(&ran)[1..],
        [["cam-1", "released"], ["cam-2", "not owner"], ["cam-3", "released"]]
    );
    assert!(
        ran.err.contains("not released: ") && ran.err.contains("cam-2"),
        "{}",
        ran.err
    );
    let left = act(&daemon, &["claims", "--registry", "devices", "--json"]).json();
    assert_eq!(left["claims"].as_array().unwrap().len(), 1, "{left}");
}

mod labels {
    use super::*;

    #[test]
    fn labels_are_replaced_while_the_tenure_stays() {
        let (daemon, [a, b]) = with_members();
        let ran = act(&daemon, &["labels", "zone=b", "version=2", "--as", "a"]);
        assert_eq!(
            (ran.code, ran.err),
            (Some(0), format!("tenure: labels of {a}: version=2,zone=b\n"))
        );
        let seen = act(&daemon, &["members", "a", "--json"]).json();
        assert_eq!(
            (&seen["labels"], &seen["tenure"]),
            (&json!({"zone": "b", "version": "2"}), &json!(a))
        );
        let ran = act(&daemon, &["labels", "--none", "--as", &a, "--json"]);
        assert_eq!(ran.json(), json!({"tenure": a, "labels": {}}));
        let why = act(&daemon, &["why", "a"]).out;
        assert_eq!(
            why.matches(&format!("the labels of {a} were changed")).count(),
            2,
            "{why}"
        );
        daemon.http("DELETE", &format!("/v1/groups/g/tenures/{b}"), "");
        let ran = act(&daemon, &["labels", "zone=b", "--as", &b]);
        assert_eq!(
            (ran.code, ran.err),
            (Some(1), format!("tenure: error: the tenure {b} has left\n"))
        );
        for wrong in [&["zone"][..], &[], &["a=1", "a=2"], &["a=1", "--none"]] {
            let ran = act(&daemon, &[&["labels", "--as", "a"], wrong].concat());
            assert_eq!(ran.code, Some(2), "{wrong:?} {}", ran.err);
        }
    }
}

mod expel {
    use super::*;

    #[test]
    fn an_expelled_member_loses_what_it_holds() {
        let (daemon, [a, _]) = with_members();
        act(&daemon, &["claim", "devices", "cam-1", "--as", "a"]);
        act(&daemon, &["acquire", "report", "--as", "a"]);
        let ran = act(&daemon, &["expel", "a", "--yes"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        for line in [
            &format!("tenure: {a} ends now and never comes back\n"),
            "tenure: 1 claim removed within about a second\n",
            "tenure: 1 lease held until ",
            &format!("tenure: expelled {a}\n"),
        ] {
            assert!(ran.err.contains(line), "{line}: {}", ran.err);
        }
        wait::until("the claim is evicted", SOON, || {
            act(&daemon, &["claims", "cam-1", "--registry", "devices"]).code == Some(1)
        });
        let again = act(&daemon, &["expel", &a, "--yes", "--json"]);
        assert_eq!(again.json(), json!({"tenure": a, "reason": "expelled"}));
        let ran = act(&daemon, &["expel", "a", "--yes"]);
        assert_eq!(ran.code, Some(1));
        assert!(
            ran.err.contains("member \"a\" has no tenure in group \"g\""),
            "{}",
            ran.err
        );
    }

    #[test]
    fn without_a_terminal_it_must_be_confirmed() {
        let (daemon, [a, _]) = with_members();
        let ran = act(&daemon, &["expel", "a"]);
        assert_eq!(ran.code, Some(2));
        assert!(
            ran.err
                .ends_with("tenure: error: no terminal to ask on; confirm with --yes\n"),
            "{}",
            ran.err
        );
        assert_eq!(
            act(&daemon, &["members", "a", "--json"]).json()["tenure"],
            Value::from(a)
        );
    }
}

#[test]
fn groups_are_listed_with_their_state() {
    let (daemon, _) = with_members();
    daemon.join("other", "c", 60_000);
    let ran = daemon.run(&["groups"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(
        rows(&ran),
        [
            ["GROUP", "MEMBERS", "LEASES", "SESSIONS", "STATE", "BRAKE"],
            ["g", "2", "0", "0", "settled", "-"],
            ["other", "1", "0", "0", "settled", "-"],
        ]
    );
    let first = daemon.run(&["groups", "--limit", "1", "--json"]).json();
    assert_eq!(
        (&first["groups"][0]["group"], &first["next"]),
        (&json!("g"), &json!("g"))
    );
    let rest = daemon.run(&["groups", "--after", "g", "--json"]).json();
    assert_eq!(
        (&rest["groups"][0]["group"], &rest["next"]),
        (&json!("other"), &Value::Null)
    );
    let one = daemon.run(&["groups", "other", "--json"]).json();
    assert_eq!((&one["members"], &one["settled"]), (&json!(1), &json!(true)));
    let none = daemon.run(&["groups", "othr"]);
    assert_eq!(
        (none.code, none.err.as_str()),
        (
            Some(1),
            "tenure: error: no group \"othr\"; did you mean \"other\"? groups: g, other\n"
        )
    );
}

#[test]
fn commands_act_on_a_store_without_a_daemon() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let store = format!("valkey://{}", server.addr());
    let command = |args: &[&str]| {
        let mut command = tenure();
        command.args(args).env("TENURE_STORE", &store);
        run(command)
    };
    let _join = spawn("tenure join", |command, _| {
        command.args([
            "join", "--group", "g", "--member", "a", "--store", &store, "--", "sleep", "60",
        ]);
    });
    wait::until("the member is there", SOON, || {
        command(&["members", "a", "--group", "g"]).code == Some(0)
    });
    let ran = command(&["claim", "devices", "cam-1", "--group", "g", "--as", "a"]);
    assert_eq!(
        (ran.code, rows(&ran)[1][..3].to_vec()),
        (Some(0), vec!["cam-1", "new", "a"]),
        "{}",
        ran.err
    );
    let unknown = command(&["members", "--group", "h"]);
    assert_eq!(
        (unknown.code, unknown.err.as_str()),
        (
            Some(1),
            "tenure: error: no group \"h\"; choose one with --group or TENURE_GROUP: g\n"
        )
    );
    let groups = command(&["groups", "--json"]).json();
    assert_eq!(groups["groups"][0]["members"], 1, "{groups}");
    let ran = command(&["release", "claim", "devices", "cam-1", "--group", "g", "--as", "a"]);
    assert_eq!(
        (ran.code, rows(&ran)[1].as_slice()),
        (Some(0), &["cam-1", "released"][..])
    );
    assert_eq!(command(&["expel", "a", "--group", "g", "--yes"]).code, Some(0));
}
