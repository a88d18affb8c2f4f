//! Looking into the table of processes.

use std::fs;

use rustix::process::Pid;

/// The living children of a process, its zombies left out. Empty where there is no `/proc`.
///
/// `O(processes of the machine)`: the short way, `/proc/PID/task/TID/children`, is missing on many kernels and leaves
/// children out while others end.
pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    // One that ends while we look is no loss.
    let is_one = |pid: &i32| {
        let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        is_alive_child(&String::from_utf8_lossy(&stat), parent.as_raw_pid())
    };
    all().filter(is_one).filter_map(Pid::from_raw).collect()
}

/// Whether a living process was started with `NAME=VALUE` in its environment, as far as this process may know. Hangs for
/// as long as the kernel keeps the memory of that process locked.
pub(crate) fn has_variable(pid: i32, variable: &str) -> bool {
    // The dead have none.
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|entry| entry == variable.as_bytes())
}

/// Every process there is, in the order of their ids.
pub(crate) fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Reads `PID (NAME) STATE PARENT …`; the name may contain anything, also `)`.
fn is_alive_child(stat: &str, parent: i32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return false;
    };
    let mut fields = rest.split_ascii_whitespace();
    let is_dead = fields.next().is_none_or(|state| matches!(state, "Z" | "X" | "x"));
    !is_dead && fields.next().and_then(|field| field.parse().ok()) == Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_traps_is_read_past() {
        assert!(is_alive_child("17 (a) Z 1 (b) S 42 17 17 0", 42));
        assert!(is_alive_child("17 (sh) R 42 17 17 0", 42));
        assert!(!is_alive_child("17 (sh) Z 42 17 17 0", 42));
        assert!(!is_alive_child("17 (sh) S 4 17 17 0", 42));
        assert!(!is_alive_child("", 42));
        assert!(!is_alive_child("17 (sh)", 42));
    }
}
