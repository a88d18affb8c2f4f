//! Recipes to copy. Each compiles and runs as a test.
//!
#![doc = include_str!("../cookbook.md")]
