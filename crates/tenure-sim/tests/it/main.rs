//! Seeded simulations: no rule is broken, broken rules are detected, and the same seed gives the same history.

mod broken;
mod determinism;
mod seeds;
