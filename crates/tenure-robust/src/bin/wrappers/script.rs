//! The command line of a cell: the wrapper's arguments, and the command as a shell script.

use std::path::Path;

use crate::cell::{Cell, End, Shape, Surrounding, Wrapper};
use crate::expect::{BUDGET, GRACE, TTL, main_stops};

/// The variable that marks every process of a cell.
pub(crate) const CELL: &str = "WRAPPERS_CELL";
/// The variable that marks the processes of a command.
pub(crate) const COMMAND: &str = "WRAPPERS_COMMAND";
/// What the main process of a command sleeps. Its children sleep another time.
pub(crate) const MAIN: &str = "1001";
/// The lease, and the member of the wrapper.
pub(crate) const LEASE: &str = "job";
pub(crate) const MEMBER: &str = "wrapped";

/// The arguments of the wrapper, with its command.
pub(crate) fn arguments(cell: &Cell, group: &str, store: &str, dir: &Path) -> Vec<String> {
    let ms = |time: std::time::Duration| format!("{}ms", time.as_millis());
    let leader = format!("lease:{LEASE}");
    let own: Vec<String> = match cell.wrapper {
        Wrapper::Join => vec!["join".to_owned()],
        Wrapper::Lock => vec!["lock".to_owned(), LEASE.to_owned()],
        Wrapper::Run => [
            "run",
            "--leader",
            &leader,
            "--drain",
            "0s",
            "--stop-budget",
            &ms(BUDGET),
        ]
        .map(ToOwned::to_owned)
        .to_vec(),
        Wrapper::Flock => vec![dir.join(LEASE).display().to_string()],
        Wrapper::ConsulLock => ["lock", "-child-exit-code", "-http-addr", store, group]
            .map(ToOwned::to_owned)
            .to_vec(),
    };
    let shared = match cell.wrapper {
        Wrapper::Flock => Vec::new(),
        Wrapper::ConsulLock => vec!["-shell=false".to_owned()],
        _ => [
            "--group",
            group,
            "--member",
            MEMBER,
            "--ttl",
            &ms(TTL),
            "--grace",
            &ms(GRACE),
            "--store",
            store,
            "--",
        ]
        .map(ToOwned::to_owned)
        .to_vec(),
    };
    let mark = format!("{COMMAND}=1");
    let command = ["env", &mark, "sh", "-c", &script(cell), &dir.display().to_string()].map(ToOwned::to_owned);
    let shared = if cell.wrapper == Wrapper::ConsulLock {
        // Its flags come before the prefix.
        let mut all = own;
        all.insert(1, shared[0].clone());
        return [all, command.to_vec()].concat();
    } else {
        shared
    };
    [own, shared, command.to_vec()].concat()
}

/// The command. It creates `ready` in its folder when all its processes run.
pub(crate) fn script(cell: &Cell) -> String {
    let mut lines = vec!["ulimit -c 0"];
    lines.extend(shape(cell));
    lines.push(r#": > "$0/ready""#);
    if main_stops(cell) {
        lines.push("kill -STOP $$");
    }
    let exit;
    match cell.end {
        End::Exit(code) => {
            exit = format!("exit {code}");
            lines.extend([r#"read -r x < "$0/go""#, &exit]);
        }
        End::Dies => lines.extend([r#"read -r x < "$0/go""#, "kill -USR1 $$", "exec sleep 1001"]),
        _ => lines.push("exec sleep 1001"),
    }
    lines.join("\n")
}

fn shape(cell: &Cell) -> Vec<&'static str> {
    match cell.shape {
        Shape::Plain => Vec::new(),
        Shape::Background => vec!["sleep 1000 &"],
        Shape::Setsid => vec!["setsid sleep 1000 &"],
        Shape::DoubleFork => vec!["setsid sh -c 'sleep 1000 &'"],
        Shape::Ignores => vec!["trap '' TERM INT HUP QUIT", "sleep 1000 &"],
        // They wait for the writer of one pipe.
        Shape::Storm => vec![r#"i=0; while [ $i -lt 20 ]; do (read -r x < "$0/storm" &); i=$((i + 1)); done"#],
        Shape::Stopped => vec!["sh -c 'kill -STOP $$; exec sleep 1000' &"],
        Shape::Asks => {
            let mut lines = vec![
                r#"printf 'Go on? '; : > "$0/asking"; read -r answer"#,
                r#"[ "$answer" = yes ] || exit 99"#,
            ];
            if !cell.end.is_own() {
                // As a password prompt that is never answered.
                lines.push("stty -echo");
            }
            lines
        }
    }
}

/// The command line that surrounds a wrapper. `own` is the program of this harness.
pub(crate) fn surround(cell: &Cell, own: &Path, wrapper: &Path, arguments: &[String], dir: &Path) -> Vec<String> {
    let (own, dir) = (own.display().to_string(), dir.display().to_string());
    let namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let around: Vec<&str> = match cell.surrounding {
        Surrounding::Plain => Vec::new(),
        Surrounding::Nohup => vec!["nohup"],
        Surrounding::First => [&namespace[..], &[&own, "stage", "first"]].concat(),
        Surrounding::Unreaped => [&namespace[..], &[&own, "stage", "init", "idle", &dir]].concat(),
        Surrounding::Reaped => [&namespace[..], &[&own, "stage", "init", "reap", &dir]].concat(),
        Surrounding::Terminal => vec![&own, "stage", "terminal", &dir],
        Surrounding::ReadOnly => vec!["unshare", "--mount", "sh", "-c", READ_ONLY, &dir],
    };
    // A signal that the harness was started to ignore is not ignored in a cell.
    let mut line: Vec<String> = ["env", "--default-signal"]
        .iter()
        .chain(&around)
        .map(|part| (*part).to_owned())
        .collect();
    line.push(wrapper.display().to_string());
    line.extend(arguments.iter().cloned());
    line
}

/// Makes all but the cell's folder read-only for the program that follows.
const READ_ONLY: &str = "mount --bind \"$0\" \"$0\" && mount -t tmpfs -o ro none /tmp && mount -t tmpfs -o ro none /var/tmp \
                         && mount -o remount,bind,ro / && cd / && exec \"$@\"";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Matrix;

    fn cell(name: &str) -> Cell {
        let matrix = Matrix::of(&Wrapper::OURS);
        *matrix.cells.iter().find(|cell| cell.to_string() == name).unwrap()
    }

    #[test]
    fn a_command_says_that_it_is_ready_before_its_end() {
        let script = script(&cell("lock/plain/background/exit-5"));
        let order: Vec<_> = ["sleep 1000 &", "/ready", "/go", "exit 5"]
            .map(|part| script.find(part).unwrap())
            .into();
        assert!(order.is_sorted(), "{script}");
    }

    #[test]
    fn a_prompt_leaves_the_echo_off_unless_it_ends_by_exit() {
        assert!(script(&cell("lock/terminal/asks/ctrl-c")).contains("stty -echo"));
        assert!(!script(&cell("lock/terminal/asks/exit-0")).contains("stty -echo"));
    }

    #[test]
    fn a_surrounding_ends_with_the_wrapper_and_its_command() {
        for name in [
            "run/process-1/plain/term",
            "run/terminal/plain/term",
            "run/read-only/plain/term",
        ] {
            let cell = cell(name);
            let arguments = arguments(&cell, "g", "http://h:1", Path::new("/d"));
            let line = surround(
                &cell,
                Path::new("/own"),
                Path::new("/tenure"),
                &arguments,
                Path::new("/d"),
            );
            let at = line.iter().position(|part| part == "/tenure").unwrap();
            assert_eq!(line[at + 1..], arguments, "{line:?}");
        }
    }
}
