//! Rosters on real servers: leftovers of a full lifecycle, refusals, rows in any order, and corrupted data.

mod drift;
mod fault;
mod lifecycle;
mod random;
mod set_up;
