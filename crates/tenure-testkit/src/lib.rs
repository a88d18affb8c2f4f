//! Real servers and real faults for Tenure's own tests and benchmarks.
//!
//! Every server runs on a free loopback port with a data directory of its own and is killed when its handle is
//! dropped, also when the test process itself is killed. Nothing here talks to a system service, and nothing sleeps a
//! guess: readiness is a condition that is polled until a deadline.
//!
//! A server that isn't installed makes a test skip loudly; with `CI=true` or `TENURE_REQUIRE_SERVERS=1` it fails:
//!
//! ```no_run
//! use tenure_testkit::valkey::{Flavour, Server};
//!
//! let Some(server) = Server::start(Flavour::Valkey) else { return };
//! server.cli(&["SET", "key", "value"]).expect("the server answers");
//! server.restart_empty();
//! ```
//!
//! Handles are usable from plain and from async tests (all methods take `&self` and no method needs a runtime). A
//! server that doesn't do what it is told fails the test on the spot: the methods of the handles panic, with the last
//! lines of the server's log, rather than make every test unwrap.
//!
//! What this crate refuses: to be a dependency of anything that is shipped. It may read clocks, sleep and print.
#![allow(
    clippy::disallowed_methods,
    reason = "it waits on other processes, which know nothing of a test clock"
)]
#![allow(
    clippy::print_stderr,
    reason = "a skipped test and a server's last words have to be seen"
)]

pub mod certs;
pub mod consul;
pub mod etcd;
pub mod http;
pub mod port;
pub mod postgres;
pub mod program;
pub mod proxy;
pub mod resp;
pub mod server;
pub mod valkey;
pub mod wait;

pub use program::{Availability, have, own_test};
pub use proxy::{Mode, Proxy};
pub use server::Process;
