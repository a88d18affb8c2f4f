//! The servers of the kit, through everything that a test may do to them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may, and so may what its tests share"
)]

mod peers;
mod postgres;
mod valkey;
