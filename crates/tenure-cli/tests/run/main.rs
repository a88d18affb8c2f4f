//! `tenure run` as it is used: the built binary with real agents of Consul, real stores, real mounts and namespaces.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]
#![allow(
    clippy::disallowed_methods,
    reason = "it is about other processes, which know nothing of a test clock"
)]
#![allow(
    clippy::print_stderr,
    reason = "what was measured, and what was skipped, is to be seen"
)]

mod beats;
mod claimed;
mod ends;
mod found;
mod guard;
mod killed;
mod lease;
mod litefs;
#[path = "../../../tenure-supervise/tests/litefs/mount.rs"]
mod mount;
mod node;
mod outage;
mod primary;
mod process_1;
mod recipes;
#[path = "../../../tenure-supervise/tests/litefs/events.rs"]
#[allow(dead_code, reason = "shared with the tests of the library, which say more")]
mod stream;
#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the other commands")]
mod support;
mod told;

use std::time::Duration;

/// How long a test waits for what comes in a few seconds on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(60);
