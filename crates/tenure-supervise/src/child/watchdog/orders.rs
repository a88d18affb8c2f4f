//! What a supervisor tells its watchdog, one line for each change.

use std::time::Duration;

use rustix::process::Pid;

use crate::terminal::Modes;

/// The orders in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Orders {
    /// The child's process group, once it runs.
    pub(super) group: Option<Pid>,
    /// The deadline on the boot clock. `None`: as long as the supervisor lives.
    pub(super) until: Option<Duration>,
    /// The group that had the terminal before the child, and the modes that it had.
    pub(super) terminal: Option<(Pid, Modes)>,
}

impl Orders {
    /// The lines for a new watchdog. The deadline comes first.
    pub(super) fn to_lines(self) -> String {
        let until = match self.until {
            Some(until) => format!("until {}\n", until.as_nanos()),
            None => "forever\n".to_owned(),
        };
        let terminal = self
            .terminal
            .map(|(own, modes)| format!("terminal {} {}\n", own.as_raw_pid(), modes.to_text()));
        let group = self.group.map(|group| format!("group {}\n", group.as_raw_pid()));
        [Some(until), terminal, group].into_iter().flatten().collect()
    }

    /// Obeys a line; one that is not understood changes nothing.
    pub(super) fn read(&mut self, line: &str) {
        let mut words = line.split(' ');
        let verb = words.next();
        let mut number = || words.next()?.parse::<u64>().ok();
        let pid = |number: Option<u64>| Pid::from_raw(i32::try_from(number?).ok()?);
        match verb {
            Some("forever") => self.until = None,
            Some("until") => self.until = number().map(Duration::from_nanos).or(self.until),
            Some("group") => self.group = pid(number()).or(self.group),
            Some("terminal") => {
                let own = pid(number());
                self.terminal = own.zip(Modes::parse(words)).or(self.terminal);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_pipe() {
        let modes = Modes::parse("1 2 3 4".split(' ')).unwrap();
        let whole = Orders {
            group: Pid::from_raw(7),
            until: Some(Duration::from_nanos(1_500)),
            terminal: Pid::from_raw(8).zip(Some(modes)),
        };
        for orders in [whole, Orders::default()] {
            let mut read = Orders::default();
            orders.to_lines().lines().for_each(|line| read.read(line));
            assert_eq!(read, orders);
        }
    }

    #[test]
    fn unreadable_line_changes_nothing() {
        let orders = Orders {
            until: Some(Duration::from_nanos(5)),
            ..Orders::default()
        };
        for line in [
            "",
            "until",
            "until -1",
            "until x",
            "for ever",
            "group 0",
            "group x",
            "terminal 3 1 2",
        ] {
            let mut read = orders;
            read.read(line);
            assert_eq!(read, orders, "{line}");
        }
        let mut read = orders;
        read.read("forever");
        assert_eq!(read.until, None);
    }
}
