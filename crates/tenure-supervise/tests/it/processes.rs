//! A supervisor and its child as real processes: signals, exit codes, groups, orphans, and process 1 of a pid
//! namespace.

mod ends;
mod orphans;
mod readiness;
mod support;
mod tied;
