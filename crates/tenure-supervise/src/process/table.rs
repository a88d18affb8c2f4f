//! Reads the process table.

use std::fs;

use rustix::process::Pid;

/// The living children of a process, without zombies. Empty without `/proc`.
///
/// `O(processes of the machine)`: `/proc/PID/task/TID/children` would be shorter, but many kernels lack it, and it
/// skips children while others end.
pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    // A process that ends during the scan may be missed.
    let is_one = |pid: &i32| {
        let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        is_alive_child(&String::from_utf8_lossy(&stat), parent.as_raw_pid())
    };
    all().filter(is_one).filter_map(Pid::from_raw).collect()
}

/// Whether a living process has `NAME=VALUE` in its initial environment, as far as this process may read it. Hangs
/// while the kernel keeps the memory of that process locked.
pub(crate) fn has_variable(pid: i32, variable: &str) -> bool {
    // A dead process has no environment.
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|entry| entry == variable.as_bytes())
}

/// All process ids, in ascending order.
pub(crate) fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Parses `PID (NAME) STATE PARENT …`. The name may contain any character, also `)`.
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
    fn stat_line_parses_with_parentheses_in_the_name() {
        assert!(is_alive_child("17 (a) Z 1 (b) S 42 17 17 0", 42));
        assert!(is_alive_child("17 (sh) R 42 17 17 0", 42));
        assert!(!is_alive_child("17 (sh) Z 42 17 17 0", 42));
        assert!(!is_alive_child("17 (sh) S 4 17 17 0", 42));
        assert!(!is_alive_child("", 42));
        assert!(!is_alive_child("17 (sh)", 42));
    }
}
