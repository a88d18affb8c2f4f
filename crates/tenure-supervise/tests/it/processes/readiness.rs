//! The service is registered once the child is ready, and not before.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_testkit::port::Port;

use crate::processes::support::{dies, supervise};

/// The output until the service is wanted in the catalog.
fn output_before_registration(settings: &[&str], script: &str, make_ready: impl FnOnce(&std::path::Path)) {
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
fn command_probe_reports_readiness() {
    let probe = "echo tried > tried; test -e ready";
    output_before_registration(&["--probe", probe], "sleep 1000", |dir| {
        std::fs::write(dir.join("ready"), "").unwrap()
    });
}

#[test]
fn hung_probe_is_killed_and_retried() {
    let probe = "test -e tried && exit 0; echo tried > tried; sleep 1000";
    output_before_registration(&["--probe", probe], "sleep 1000", |_| ());
}

#[test]
fn background_processes_of_a_probe_are_killed() {
    let mut supervisor = supervise(&["--probe", "sleep 1000 & echo $! > left; exit 0"], "sleep 1000");
    supervisor.say("primary");
    supervisor.running();
    dies("the background process", supervisor.pid_in("left"));
}

#[test]
fn tcp_probe_reports_readiness() {
    let port = Port::reserve();
    let address = port.addr().to_string();
    let mut listener = None;
    output_before_registration(&["--tcp", &address], "echo tried > tried; sleep 1000", |_| {
        listener = Some(TcpListener::bind(&address).unwrap());
    });
}

#[test]
fn http_probe_reports_readiness() {
    let port = Port::reserve();
    let address = port.addr().to_string();
    let url = format!("http://{address}/health");
    let asked = Arc::new(AtomicUsize::new(0));
    output_before_registration(&["--http", &url], "echo tried > tried; sleep 1000", |_| {
        let listener = TcpListener::bind(&address).unwrap();
        let asked = Arc::clone(&asked);
        std::thread::spawn(move || {
            let bad = ["500 Internal Server Error", "404 Not Found"];
            // A timed-out attempt is retried.
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
    assert!(asked.load(Ordering::SeqCst) >= 3, "the other responses are not ready");
}

#[test]
fn delay_probe_reports_readiness() {
    output_before_registration(&["--delay", "300ms"], "echo tried > tried; sleep 1000", |_| ());
}
