//! Valkey and Redis, with every operation on them.

use tenure_testkit::Availability;
use tenure_testkit::proxy::{Mode, Proxy};
use tenure_testkit::resp::{Client, Reply};
use tenure_testkit::valkey::{DURABLE, Flavour, Server};

fn set(server: &Server, key: &str, value: &str) {
    assert_eq!(server.cli(&["SET", key, value]).unwrap(), Reply::Simple("OK".into()));
}

fn get(server: &Server, key: &str) -> Reply {
    server.cli(&["GET", key]).unwrap()
}

#[test]
fn starts_empty_on_a_port_of_its_own() {
    for flavour in Flavour::ALL {
        let (Some(one), Some(other)) = (Server::start(flavour), Server::start(flavour)) else {
            return;
        };
        assert_ne!(one.port(), other.port());
        assert!(one.url().ends_with(&format!("://127.0.0.1:{}", one.port())));
        set(&one, "key", "value");
        assert_eq!(get(&one, "key").text(), "value");
        assert_eq!(get(&other, "key"), Reply::Nil);
        let info = one.cli(&["INFO", "server"]).unwrap().text();
        assert_eq!(info.contains("valkey_version"), flavour == Flavour::Valkey);
        assert!(info.contains(&format!("process_id:{}", one.pid())));
    }
}

#[test]
fn kill_and_drop_end_it() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else {
            return;
        };
        server.kill();
        assert!(server.cli(&["PING"]).is_err());
        server.restart_empty();
        let addr = server.addr();
        let dir = server.process().dir().to_owned();
        drop(server);
        assert!(Client::connect(addr).is_err());
        assert!(!dir.exists());
    }
}

#[test]
fn restarts_on_its_port_with_or_without_its_data() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::with(flavour, DURABLE) else {
            return;
        };
        let port = server.port();
        set(&server, "key", "value");
        server.kill();
        server.restart_with_data();
        assert_eq!((server.port(), get(&server, "key").text()), (port, "value".to_owned()));
        server.restart_empty();
        assert_eq!((server.port(), get(&server, "key")), (port, Reply::Nil));
        set(&server, "key", "again");
        server.terminate();
        server.restart_with_data();
        assert_eq!(get(&server, "key").text(), "again");
    }
}

#[test]
fn answers_after_a_pause() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else {
            return;
        };
        let mut client = server.client().unwrap();
        server.pause();
        client.send(&["INCR", "n"]).unwrap();
        server.resume();
        assert_eq!(client.receive().unwrap().int(), Some(1));
        server.pause(); // dropped while it is paused
    }
}

#[test]
fn a_replica_follows_and_can_be_promoted() {
    for flavour in Flavour::ALL {
        let (Some(primary), Some(replica)) = (Server::start(flavour), Server::start(flavour)) else {
            return;
        };
        set(&primary, "key", "value");
        replica.replica_of(&primary);
        assert_eq!(get(&replica, "key").text(), "value");
        assert!(
            replica
                .cli(&["SET", "key", "mine"])
                .unwrap()
                .text()
                .starts_with("READONLY")
        );
        set(&primary, "key", "newer");
        replica.catch_up_with(&primary);
        assert_eq!(get(&replica, "key").text(), "newer");
        primary.kill();
        replica.promote();
        set(&replica, "key", "mine");
    }
}

#[test]
fn its_settings_are_those_of_its_command_line() {
    let Some(server) = Server::with(
        Flavour::Valkey,
        &["--maxmemory", "5mb", "--maxmemory-policy", "allkeys-lru"],
    ) else {
        return;
    };
    let config = server.cli(&["CONFIG", "GET", "maxmemory*"]).unwrap().texts();
    assert!(config.contains(&"allkeys-lru".to_owned()), "{config:?}");
}

#[test]
fn a_lost_reply_does_not_undo_the_command() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    let proxy = Proxy::start(server.addr());
    proxy.set(Mode::DropReplies);
    let mut client = Client::connect(proxy.addr()).unwrap();
    client.send(&["INCR", "n"]).unwrap();
    proxy.wait("the reply is swallowed", |counts| counts.swallowed > 0);
    assert_eq!(get(&server, "n").text(), "1");
    proxy.set(Mode::Pass);
    assert!(client.receive().is_err());
}

#[test]
fn it_starts_where_it_is_installed() {
    let found = ["valkey-server", "redis-server"].map(tenure_testkit::have);
    let started = Flavour::ALL.map(|flavour| Server::start(flavour).is_some());
    assert_eq!(found.map(|found| matches!(found, Availability::Found(_))), started);
}
