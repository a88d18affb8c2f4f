//! The dashboard in a real browser: a headless Chromium, driven over the DevTools protocol.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test that asked")]
#![allow(unreachable_pub, reason = "nobody uses a test binary")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait on a server and a browser that know nothing of a test clock"
)]

mod address;
mod browser;
#[path = "../http/common/mod.rs"]
mod common;
mod files;
mod house;
mod keys;
mod large;
mod life;
mod looks;
mod page;
mod parts;
mod search;
mod size;
mod token;
mod trouble;
