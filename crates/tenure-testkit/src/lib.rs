//! Real servers and real faults for Tenure's own tests and benchmarks.
//!
//! Each server runs on a free loopback port with its own data directory. It is killed when its handle is dropped, and
//! also when the test process is killed. The kit uses no system service. It waits by polling a condition until a
//! deadline, never by a fixed sleep.
//!
//! If a server is not installed, the test prints a message and is skipped; with `CI=true` or `TENURE_REQUIRE_SERVERS=1`
//! it fails:
//!
//! ```no_run
//! use tenure_testkit::valkey::{Flavour, Server};
//!
//! let Some(server) = Server::start(Flavour::Valkey) else { return };
//! server.cli(&["SET", "key", "value"]).expect("the server answers");
//! server.restart_empty();
//! ```
//!
//! Handles work in plain and in async tests (all methods take `&self` and need no runtime). The methods panic with the
//! end of the server's log if the server fails, so that tests need not unwrap.
//!
//! This crate may read clocks, sleep and print, so nothing that is shipped may depend on it.
#![allow(
    clippy::disallowed_methods,
    reason = "it waits on other processes, which do not use a test clock"
)]
#![allow(
    clippy::print_stderr,
    reason = "a skipped test and the end of a server's log must be visible"
)]

pub mod certs;
pub mod consul;
pub mod disk;
pub mod etcd;
pub mod http;
pub mod port;
pub mod postgres;
pub mod program;
pub mod proxy;
pub mod resp;
pub mod server;
pub mod spec;
pub mod valkey;
pub mod wait;

pub use program::{Availability, have, own_test};
pub use proxy::{Mode, Proxy};
pub use server::Process;
