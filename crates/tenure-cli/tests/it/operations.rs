//! The commands for operators: the bench, the demo, the doctor, the settings, manual pages and completions, as the built
//! binary has them.

mod bench;
mod config;
mod demo;
mod doctor;
mod eviction;
mod shell;
