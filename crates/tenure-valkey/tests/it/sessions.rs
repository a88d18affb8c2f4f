//! Sessions on real servers: what a life leaves behind, what a server refuses, and data that somebody has corrupted by hand.

mod drift;
mod fault;
mod life;
mod random;
mod set_up;
