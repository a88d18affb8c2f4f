//! The proof of the engine: random histories on a disk that fails, judged by the model.
//!
//! The real engine runs on a virtual clock, its writer is turned by hand, and calls are polled one at a time, so a seed gives
//! one history. It stands beside the engine and not in `tenure-sim`, because it needs the two halves of the writer's turn and
//! the model itself, which stay private to this crate.
//!
//! | file | what it holds |
//! |---|---|
//! | `disk` | a disk in memory that fails on request |
//! | `world` | the engine, the clock, calls that are under way |
//! | `judge`, `check` | what was applied, and what a model says that has only what is durable; answers against that |
//! | `draw`, `draw_session`, `draw_roster`, `known` | random calls |
//! | `watch` | what clients may conclude from their answers |
//! | `observe` | the disk against the model |
//! | `faults` | random histories on a disk that fails, with crashes |
//! | `points` | what makes it safe, point by point |
//! | `gate` | commits are held: nothing is let out that is not durable |

mod check;
mod disk;
mod draw;
mod draw_roster;
mod draw_session;
mod faults;
mod gate;
mod judge;
mod known;
mod observe;
mod points;
mod watch;
mod world;
