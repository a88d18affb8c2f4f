//! Others may find the child when it is ready, and not before.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_testkit::port::Port;

use crate::processes::support::{dies, supervise};

/// What the supervisor has said until it wanted the service to be found.
fn before_it_is_found(settings: &[&str], script: &str, make_ready: impl FnOnce(&std::path::Path)) {
    let mut supervisor = supervise(settings, script);
    supervisor.say("primary");
    supervisor.hear("\"state\":\"starting\"");
    supervisor.file("tried");
    assert_eq!(supervisor.wants(), [""; 0]);
    make_ready(supervisor.dir.path());
    supervisor.hear("want true");
    supervisor.running();
}

#[test]
fn a_command_tells() {
    let probe = "echo tried > tried; test -e ready";
    before_it_is_found(&["--probe", probe], "sleep 1000", |dir| {
        std::fs::write(dir.join("ready"), "").unwrap()
    });
}

#[test]
fn a_probe_that_hangs_is_killed_and_tried_again() {
    let probe = "test -e tried && exit 0; echo tried > tried; sleep 1000";
    before_it_is_found(&["--probe", probe], "sleep 1000", |_| ());
}

#[test]
fn what_a_probe_has_left_in_the_background_is_killed() {
    let mut supervisor = supervise(&["--probe", "sleep 1000 & echo $! > left; exit 0"], "sleep 1000");
    supervisor.say("primary");
    supervisor.running();
    dies("what it has left", supervisor.pid_in("left"));
}

#[test]
fn a_connection_tells() {
    let port = Port::reserve();
    let address = port.addr().to_string();
    let mut listener = None;
    before_it_is_found(&["--tcp", &address], "echo tried > tried; sleep 1000", |_| {
        listener = Some(TcpListener::bind(&address).unwrap());
    });
}

#[test]
fn an_answer_over_http_tells() {
    let port = Port::reserve();
    let address = port.addr().to_string();
    let url = format!("http://{address}/health");
    let asked = Arc::new(AtomicUsize::new(0));
    before_it_is_found(&["--http", &url], "echo tried > tried; sleep 1000", |_| {
        let listener = TcpListener::bind(&address).unwrap();
        let asked = Arc::clone(&asked);
        std::thread::spawn(move || {
            let bad = ["500 Internal Server Error", "404 Not Found"];
            // A try that has had its time is made again.
            let answers = bad.into_iter().chain(std::iter::repeat("200 OK"));
            for (stream, answer) in listener.incoming().zip(answers) {
                let mut stream = stream.unwrap();
                asked.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 1_024];
                let _ = std::io::Read::read(&mut stream, &mut request);
                let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = std::io::Write::write_all(&mut stream, answer.as_bytes());
            }
        });
    });
    assert!(
        asked.load(Ordering::SeqCst) >= 3,
        "the other answers say that it is not"
    );
}

#[test]
fn time_tells() {
    before_it_is_found(&["--delay", "300ms"], "echo tried > tried; sleep 1000", |_| ());
}
