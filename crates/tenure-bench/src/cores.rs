//! A core for the server that is measured, and another for whoever asks how it feels.
//!
//! Woken by an answer over loopback, a thread is put on the core that sent it, and waits there until the server has used
//! up its time slice, which is longer than any of its steps. A server on a machine of its own shows nothing of that, so
//! the two are kept apart, for ours and for what it is compared with alike.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps a server's main thread on the first core, if there is another one for the rest.
pub fn for_server(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let mut first = CpuSet::new();
    first.set(0);
    if let Some(pid) = pid.filter(|_| cores() > 1) {
        // Where it is not allowed the figures are those of a server that shares its core.
        sched_setaffinity(Some(pid), &first).ok();
    }
}

/// Keeps the calling thread off the first core, if there is another one.
pub fn for_probe() {
    let mut others = CpuSet::new();
    (1..cores()).for_each(|core| others.set(core));
    if cores() > 1 {
        sched_setaffinity(None, &others).ok();
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
