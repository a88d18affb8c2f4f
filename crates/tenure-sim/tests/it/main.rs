//! Seeded worlds: no rule is broken, broken rules are noticed, and the same seed gives the same history.

mod broken;
mod determinism;
mod seeds;
