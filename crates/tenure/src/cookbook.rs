//! Small pieces to copy; each compiles and runs as a test.
//!
#![doc = include_str!("../../../docs/cookbook.md")]
