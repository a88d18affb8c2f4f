//! Sessions on real servers: leftovers of a full lifecycle, refusals, and corrupted data.

mod drift;
mod fault;
mod lifecycle;
mod random;
pub(crate) mod set_up;
