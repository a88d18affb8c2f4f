//! Each mode, as seen by a client and a server on its two sides.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener as Listener, TcpStream as Stream};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// A server that echoes every byte and stores what it receives.
struct Echo {
    addr: SocketAddr,
    seen: Arc<std::sync::Mutex<Vec<u8>>>,
}

impl Echo {
    fn start() -> Echo {
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::default();
        let echo = Echo {
            addr,
            seen: Arc::clone(&seen),
        };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, seen) = (stream.unwrap(), Arc::clone(&seen));
                thread::spawn(move || {
                    let mut buffer = [0; 64];
                    while let Ok(size @ 1..) = stream.read(&mut buffer) {
                        seen.lock().unwrap().extend_from_slice(&buffer[..size]);
                        let _ = stream.write_all(&buffer[..size]);
                    }
                });
            }
        });
        echo
    }

    fn seen(&self) -> String {
        String::from_utf8(self.seen.lock().unwrap().clone()).unwrap()
    }
}

fn connect(proxy: &Proxy) -> Stream {
    let stream = Stream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(stream: &mut Stream, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    answer(stream, request.len())
}

fn answer(stream: &mut Stream, size: usize) -> std::io::Result<String> {
    let mut reply = vec![0; size];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8(reply).unwrap())
}

/// Asserts that nothing arrives for a while. Only a test for the absence of an event needs a fixed wait.
fn assert_silent(stream: &mut Stream) {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let error = answer(stream, 1).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

fn assert_reset(stream: &mut Stream) {
    let error = answer(stream, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

#[test]
fn redirect_resets_connections_to_the_old_server() {
    let (primary, replica) = (Echo::start(), Echo::start());
    let proxy = Proxy::start(primary.addr);
    let mut before = connect(&proxy);
    assert_eq!(ask(&mut before, "to the primary").unwrap(), "to the primary");
    proxy.redirect_to(replica.addr);
    assert_reset(&mut before);
    assert_eq!(ask(&mut connect(&proxy), "to the replica").unwrap(), "to the replica");
    assert_eq!(
        (primary.seen(), replica.seen()),
        ("to the primary".to_owned(), "to the replica".to_owned())
    );
}

#[test]
fn passes_and_counts() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    let mut client = connect(&proxy);
    assert_eq!(ask(&mut client, "hello").unwrap(), "hello");
    let counts = proxy.counts();
    assert_eq!(
        (
            counts.accepted,
            counts.open,
            counts.requests,
            counts.replies,
            counts.held
        ),
        (1, 1, 5, 5, 0)
    );
    // The end of a stream is forwarded as well, in both directions.
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    proxy.wait("the connection ends", |counts| counts.open == 0 && counts.reset == 0);
}

#[test]
fn delays_each_direction_separately() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    let mut client = connect(&proxy);
    let long = Duration::from_millis(60);
    proxy.set(Mode::Delay {
        requests: Duration::ZERO,
        replies: long,
    });
    let start = Instant::now();
    assert_eq!(ask(&mut client, "a").unwrap(), "a");
    assert!(start.elapsed() >= long);
    proxy.set(Mode::Delay {
        requests: long,
        replies: Duration::ZERO,
    });
    let start = Instant::now();
    client.write_all(b"b").unwrap();
    proxy.wait("the request has arrived", |counts| counts.requests == 2);
    assert!(start.elapsed() >= long);
}

#[test]
fn a_black_hole_is_silent_until_the_mode_changes() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    let mut old = connect(&proxy);
    let mut idle = connect(&proxy);
    ask(&mut old, "x").unwrap();
    ask(&mut idle, "x").unwrap();
    proxy.set(Mode::BlackHole);
    let mut new = connect(&proxy);
    old.write_all(b"old").unwrap();
    new.write_all(b"new").unwrap();
    proxy.wait("both are swallowed", |counts| counts.swallowed == 6);
    assert_silent(&mut old);
    assert_silent(&mut new);
    assert_eq!(echo.seen(), "xx");
    proxy.set(Mode::Pass);
    assert_reset(&mut old);
    assert_reset(&mut new);
    assert_eq!(ask(&mut idle, "alive").unwrap(), "alive");
}

#[test]
fn a_black_hole_hides_a_stopped_server() {
    let unused = Port::reserve();
    let proxy = Proxy::start(unused.addr());
    let mut client = connect(&proxy);
    assert_reset(&mut client);
    proxy.set(Mode::BlackHole);
    let mut client = connect(&proxy);
    client.write_all(b"anybody?").unwrap();
    assert_silent(&mut client);
}

#[test]
fn a_request_acts_although_its_reply_is_dropped() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    let mut client = connect(&proxy);
    proxy.set(Mode::DropReplies);
    client.write_all(b"act").unwrap();
    proxy.wait("the reply is swallowed", |counts| counts.swallowed == 3);
    assert_eq!(echo.seen(), "act");
    assert_silent(&mut client);
    // The next reply must not be taken for the lost one.
    proxy.set(Mode::Pass);
    assert_reset(&mut client);
}

#[test]
fn held_requests_arrive_late_and_in_order() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    let mut late = connect(&proxy);
    proxy.set(Mode::HoldRequests);
    late.write_all(b"1").unwrap();
    proxy.wait("the first is held", |counts| counts.held == 1);
    proxy.set(Mode::Pass);
    late.write_all(b"2").unwrap();
    proxy.wait("the second waits behind it", |counts| counts.held == 2);
    // A new connection is not held.
    assert_eq!(ask(&mut connect(&proxy), "0").unwrap(), "0");
    assert_eq!(echo.seen(), "0");
    proxy.release();
    assert_eq!(answer(&mut late, 2).unwrap(), "12");
    assert_eq!(echo.seen(), "012");
    assert_eq!(ask(&mut late, "3").unwrap(), "3");
}

#[test]
fn held_requests_arrive_after_their_client_is_gone() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    proxy.set(Mode::HoldRequests);
    connect(&proxy).write_all(b"too late").unwrap();
    proxy.wait("the request is held", |counts| counts.held == 8);
    proxy.release();
    crate::wait::until("the request has acted", PATIENCE, || echo.seen() == "too late");
    proxy.wait("the connection ends", |counts| counts.open == 0);
}

#[test]
fn a_partition_heals_with_nothing_lost() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    let mut client = connect(&proxy);
    proxy.set(Mode::HoldAll);
    client.write_all(b"patience").unwrap();
    assert_silent(&mut client);
    proxy.release();
    assert_eq!(answer(&mut client, 8).unwrap(), "patience");
}

#[test]
fn reset_cuts_old_and_new_connections() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    let mut old = connect(&proxy);
    ask(&mut old, "x").unwrap();
    proxy.set(Mode::Reset);
    assert_reset(&mut old);
    assert_reset(&mut connect(&proxy));
    assert_eq!(proxy.counts().accepted, 2);
    proxy.set(Mode::Pass);
    assert_eq!(ask(&mut connect(&proxy), "y").unwrap(), "y");
}

#[test]
fn refuse_closes_the_port_and_opens_it_again() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    let mut old = connect(&proxy);
    ask(&mut old, "x").unwrap();
    for _ in 0..20 {
        // The mode may have changed before a connection's task reads it.
        proxy.set(Mode::Refuse);
        assert_eq!(
            Stream::connect(proxy.addr()).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        proxy.set(Mode::Pass);
        assert_eq!(ask(&mut connect(&proxy), "y").unwrap(), "y");
    }
    assert_reset(&mut old);
}

#[test]
fn a_stopped_server_ends_its_connections() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap());
    let mut client = connect(&proxy);
    client.write_all(b"x").unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.read_exact(&mut [0; 1]).unwrap();
    drop(server);
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

#[tokio::test]
async fn works_in_async_tests_on_one_thread() {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.addr);
    proxy.set(Mode::HoldRequests);
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    proxy.wait_async("the request is held", |counts| counts.held == 1).await;
    proxy.release();
    assert_eq!(client.read_u8().await.unwrap(), b'x');
}
