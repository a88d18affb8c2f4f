//! A server that may evict keys: the daemon is ready, and says everywhere what can happen.

use serde_json::Value;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::support::{Daemon, SOON, said};

const SAYS: &str = "maxmemory-policy is allkeys-lru";

/// A daemon as a user that may do everything but these commands.
fn daemon_without(server: &Server, denied: &[&str]) -> Daemon {
    let rules = [
        "ACL", "SETUSER", "limited", "reset", "on", ">secret", "~*", "&*", "+@all",
    ];
    server.cli(&[&rules, denied].concat()).unwrap();
    let url = server.url().replacen("://", "://limited:secret@", 1);
    Daemon::start(&["--store", &url])
}

#[test]
fn daemon_warns_of_a_server_that_evicts_keys() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::with(flavour, &["--maxmemory-policy", "allkeys-lru"]) else {
            return;
        };
        for denied in [&[][..], &["-config"], &["-info"]] {
            let daemon = daemon_without(&server, denied);
            said(&daemon.process, SAYS);
            let (status, readiness) = daemon.answered("GET", "/readyz", "");
            let notes = readiness["notes"].to_string();
            assert!(status == 200 && notes.contains(SAYS), "{denied:?}: {readiness}");
            assert!(daemon.run(&["status"]).out.contains(SAYS), "{denied:?}");
            let doctor = daemon.run(&["doctor"]);
            assert!(doctor.out.contains(SAYS), "{denied:?}: {}", doctor.out);
            assert_eq!(daemon.process.log().matches(SAYS).count(), 1, "{denied:?}");
        }
        // What cannot be known is no reason for a warning; the doctor says that it was not checked.
        let daemon = daemon_without(&server, &["-config", "-info"]);
        wait::until("the store was examined", SOON, || {
            let (_, found) = daemon.answered("GET", "/v1/doctor", "");
            found
                .to_string()
                .contains("make sure that maxmemory-policy is noeviction")
        });
        let (_, status) = daemon.answered("GET", "/v1/status", "");
        assert_eq!(status["store"]["warnings"], Value::Null);
        assert!(
            !daemon.process.log().contains("maxmemory-policy"),
            "{}",
            daemon.process.log()
        );
    }
}
