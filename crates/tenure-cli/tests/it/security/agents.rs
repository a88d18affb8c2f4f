//! The token for agents of Consul reaches no other program that a session names.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;
use tenure_testkit::wait;

use crate::support::{Daemon, SOON, said};

const TOKEN: &str = "7d1cd1cc-the-token-of-the-agents";

/// A program that answers every request with 404, and remembers all that it was sent.
struct Listener {
    port: u16,
    heard: Arc<Mutex<String>>,
}

impl Listener {
    fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(String::new()));
        let hears = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in socket.incoming().flatten() {
                let (mut stream, mut head) = (stream, [0; 4096]);
                let length = stream.read(&mut head).unwrap_or(0);
                let text = format!("connected\n{}", String::from_utf8_lossy(&head[..length]));
                hears.lock().unwrap().push_str(&text);
                // The caller may be gone.
                let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        });
        Self { port, heard }
    }

    fn heard(&self) -> String {
        self.heard.lock().unwrap().clone()
    }
}

fn daemon(agents: &str) -> Daemon {
    Daemon::with(|command| {
        command.args(["--store", "memory:", "--registrations-groups", "g"]);
        command.args(["--registrations-agents", agents]);
        command.env("TENURE_REGISTRATIONS_TOKEN", TOKEN);
    })
}

/// Leaves an order to clear something away at an address, as anyone can who may join.
fn order(daemon: &Daemon, address: &str) {
    let tenure = daemon.join("g", "m", 60_000);
    let path = format!("/v1/groups/g/sessions/consul:x:{address}:web");
    let body = json!({"tenure": tenure, "connection": "c"}).to_string();
    let (status, answer) = daemon.answered("PUT", &path, &body);
    assert!(matches!(status, 200 | 201), "{answer}");
    let path = format!("{path}/connections/c?tenure={tenure}");
    assert_eq!(daemon.answered("DELETE", &path, "").0, 204);
}

#[test]
fn token_is_not_sent_to_a_port_that_is_not_listed() {
    for agents in ["loopback", "127.0.0.1", "127.0.0.0/8"] {
        let (daemon, listener) = (daemon(agents), Listener::start());
        order(&daemon, &format!("127.0.0.1:{}", listener.port));
        said(&daemon.process, "not on the list");
        assert_eq!(listener.heard(), "", "{agents}");
    }
}

#[test]
fn token_is_not_sent_in_clear_to_an_agent_in_a_range() {
    let listener = Listener::start();
    // Not a loopback address, but it connects to this machine.
    let daemon = daemon(&format!("0.0.0.0/8:{}", listener.port));
    order(&daemon, &format!("0.0.0.0:{}", listener.port));
    said(&daemon.process, "the token is not sent to it");
    assert_eq!(listener.heard(), "");
}

#[test]
fn token_is_sent_to_an_agent_that_is_listed() {
    let listener = Listener::start();
    let daemon = daemon(&format!("loopback:{}", listener.port));
    order(&daemon, &format!("127.0.0.1:{}", listener.port));
    wait::until("the listener is asked", SOON, || listener.heard().contains(TOKEN));
}
