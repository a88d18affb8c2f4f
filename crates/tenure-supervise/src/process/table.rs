//! Reads the process table.

use std::fs;

use rustix::process::Pid;

/// The living children of a process, without zombies. Empty without `/proc`.
///
/// `O(processes of the machine)`: `/proc/PID/task/TID/children` would be shorter, but many kernels lack it, and it
/// skips children while others end.
pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    let is_one = |stat: &Stat| stat.parent == parent.as_raw_pid();
    living(is_one).filter_map(Pid::from_raw).collect()
}

/// Whether a group has a member that is not a zombie. `None` without `/proc`.
///
/// A zombie keeps its group in existence for as long as its parent does not reap it, and does no work.
///
/// `O(processes of the machine)`.
pub(crate) fn has_living(group: Pid) -> Option<bool> {
    let is_there = living(|stat| stat.group == group.as_raw_pid()).next().is_some();
    (is_there || all().next().is_some()).then_some(is_there)
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

/// The living processes for which `is_one` holds. One that ends during the scan may be missed.
fn living(is_one: impl Fn(&Stat) -> bool) -> impl Iterator<Item = i32> {
    all().filter(move |pid| {
        let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        Stat::parse(&String::from_utf8_lossy(&stat)).is_some_and(|stat| stat.is_alive && is_one(&stat))
    })
}

/// A line of `/proc/PID/stat`.
struct Stat {
    is_alive: bool,
    parent: i32,
    group: i32,
}

impl Stat {
    /// Parses `PID (NAME) STATE PARENT GROUP …`. The name may contain any character, also `)`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
        Some(Self {
            is_alive: !matches!(fields.next()?, "Z" | "X" | "x"),
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_parses_with_parentheses_in_the_name() {
        let parse = |line| Stat::parse(line).map(|stat| (stat.is_alive, stat.parent, stat.group));
        assert_eq!(parse("17 (a) Z 1 (b) S 42 16 17 0"), Some((true, 42, 16)));
        assert_eq!(parse("17 (sh) R 42 17 17 0"), Some((true, 42, 17)));
        assert_eq!(parse("17 (sh) Z 42 17 17 0"), Some((false, 42, 17)));
        for short in ["", "17 (sh)", "17 (sh) S 42"] {
            assert_eq!(parse(short), None, "{short}");
        }
    }
}
