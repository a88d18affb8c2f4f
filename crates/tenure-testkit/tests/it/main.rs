//! The servers of the kit, with every operation on them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may, and so may what its tests share"
)]

mod peers;
mod postgres;
mod valkey;
