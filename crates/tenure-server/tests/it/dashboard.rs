//! The dashboard in a real browser: a headless Chromium, driven over the DevTools protocol.

mod acts;
mod address;
mod browser;
mod files;
pub mod fixture;
mod keys;
mod large;
mod life;
mod looks;
mod outage;
mod overview;
mod page;
mod parts;
mod search;
mod size;
mod token;
mod trouble;
mod urgent;
