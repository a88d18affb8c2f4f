//! `tenure run` as it is used: the built binary with real agents of Consul, real stores, real mounts and namespaces.
#![cfg(target_os = "linux")]

mod beats;
mod claimed;
mod ends;
mod found;
mod guard;
mod killed;
mod lease;
mod litefs;
#[path = "../../../tenure-supervise/tests/it/litefs/mount.rs"]
#[allow(dead_code, reason = "the tests of the supervisor use more of it")]
mod mount;
mod node;
mod outage;
mod primary;
mod process_1;
mod recipes;
#[path = "../../../tenure-supervise/tests/it/litefs/events.rs"]
#[allow(dead_code, reason = "the tests of the supervisor use more of it")]
mod stream;
mod told;

use std::time::Duration;

/// How long a test waits for what comes in a few seconds on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(60);
