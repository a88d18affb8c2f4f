//! The built binary, as people and programs use it: real processes, real signals, real files.

mod acts;
mod alerts;
mod crowd;
mod data_loss;
mod job_control;
mod join;
mod json_log;
mod killed;
mod leases;
mod lock;
mod looking;
mod progress;
mod serve;
mod sessions;
mod stalled_log;
mod targets;
mod terminal;
mod usage;
mod waiters;
mod wrapped;
