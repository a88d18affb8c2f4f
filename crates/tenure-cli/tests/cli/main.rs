//! The built binary, as people and programs use it: real processes, real signals, real files.

mod join;
mod killed;
mod looking;
mod serve;
mod support;
mod usage;
