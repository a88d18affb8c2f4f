//! Sessions on real servers: what a life leaves behind, what a server refuses, and data that somebody has corrupted by hand.

mod drift;
mod fault;
mod life;
mod random;
pub(crate) mod set_up;
