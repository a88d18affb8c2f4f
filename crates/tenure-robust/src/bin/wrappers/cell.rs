//! A cell of the matrix: a wrapper, the shape of its command, what surrounds it, and how it ends. The cells are the product of
//! the four, without those that a named rule excludes.

use std::collections::BTreeMap;
use std::fmt;

use rustix::process::Signal;
use tenure_robust::random::Random;

/// The program that is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrapper {
    Join,
    Lock,
    Run,
    /// For comparison: `flock` of util-linux.
    Flock,
    /// For comparison: `consul lock`.
    ConsulLock,
}

/// Which process a signal is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Wrapper,
    Group,
}

/// A key that sends a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    CtrlC,
    CtrlBackslash,
    CtrlZ,
}

/// How the cell ends, or what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The command exits with this code.
    Exit(i32),
    /// The command dies of a signal.
    Dies,
    /// A signal from outside.
    Signal(Signal, To),
    /// TERM to every process, as a service manager sends it.
    TermAll,
    KillWrapper,
    KillWatchdog,
    FreezeWrapper,
    FreezeWatchdog,
    /// The store cannot be reached any longer.
    StoreAway,
    /// An operator releases the lease.
    Release,
    /// An operator expels the member.
    Expel,
    /// A key is typed on the terminal.
    Key(Key),
    /// The terminal and its shell are gone.
    Hangup,
}

/// The processes of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    /// One process.
    Plain,
    /// A child in the same process group.
    Background,
    /// A child in a session of its own.
    Setsid,
    /// A daemon: an orphan in another session.
    DoubleFork,
    /// It and its child ignore TERM, INT, HUP and QUIT.
    Ignores,
    /// Twenty orphans that exit at the same time.
    Storm,
    /// A process that stops itself.
    Stopped,
    /// It asks a question on its terminal, and then switches the echo off.
    Asks,
}

/// What surrounds the wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Surrounding {
    Plain,
    /// Process 1 of a namespace.
    First,
    /// Below a process 1 that reaps only its own child.
    Unreaped,
    /// Below a process 1 that reaps all.
    Reaped,
    /// A job of a shell on a terminal.
    Terminal,
    /// Started by nohup.
    Nohup,
    /// A read-only root file system and a read-only /tmp.
    ReadOnly,
}

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) wrapper: Wrapper,
    pub(crate) surrounding: Surrounding,
    pub(crate) shape: Shape,
    pub(crate) end: End,
}

/// A rule that excludes cells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
    excludes: fn(&Cell) -> bool,
}

/// Why cells of the product are not run. The first rule that matches counts.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "join-has-no-lease",
        reason: "an operator cannot release the lease of a join",
        excludes: |cell| cell.wrapper == Wrapper::Join && cell.end == End::Release,
    },
    Rule {
        name: "keys-need-a-terminal",
        reason: "nothing can be typed, and nothing hangs up, without a terminal",
        excludes: |cell| cell.surrounding != Surrounding::Terminal && matches!(cell.end, End::Key(_) | End::Hangup),
    },
    Rule {
        name: "questions-need-a-terminal",
        reason: "a command can only ask on a terminal",
        excludes: |cell| cell.surrounding != Surrounding::Terminal && cell.shape == Shape::Asks,
    },
    Rule {
        name: "kill-of-process-1",
        reason: "the kernel ends the whole namespace with its process 1",
        excludes: |cell| cell.surrounding == Surrounding::First && cell.end == End::KillWrapper,
    },
    Rule {
        name: "hangup-is-ignored",
        reason: "a command that ignores HUP outlives its terminal, also without a wrapper",
        excludes: |cell| cell.shape == Shape::Ignores && cell.end == End::Hangup,
    },
];

/// The ends that need Tenure; other wrappers are not compared in them.
fn is_of_tenure(end: End) -> bool {
    matches!(
        end,
        End::KillWatchdog | End::FreezeWatchdog | End::StoreAway | End::Release | End::Expel
    )
}

const SIGNALS: [Signal; 5] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::TSTP];

impl Wrapper {
    pub(crate) const OURS: [Self; 3] = [Self::Join, Self::Lock, Self::Run];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Lock => "lock",
            Self::Run => "run",
            Self::Flock => "flock",
            Self::ConsulLock => "consul-lock",
        }
    }

    /// Whether it holds something that another process can be granted.
    pub(crate) const fn has_lease(self) -> bool {
        !matches!(self, Self::Join)
    }
}

impl End {
    pub(crate) fn all() -> Vec<Self> {
        let signals = SIGNALS
            .iter()
            .flat_map(|signal| [To::Wrapper, To::Group].map(|to| Self::Signal(*signal, to)));
        let mut all = vec![Self::Exit(0), Self::Exit(5), Self::Dies];
        all.extend(signals);
        all.extend([Self::TermAll, Self::KillWrapper, Self::KillWatchdog]);
        all.extend([Self::FreezeWrapper, Self::FreezeWatchdog, Self::StoreAway]);
        all.extend([Self::Release, Self::Expel, Self::Hangup]);
        all.extend([Key::CtrlC, Key::CtrlBackslash, Key::CtrlZ].map(Self::Key));
        all
    }

    /// Whether the command ends without being asked to.
    pub(crate) const fn is_own(self) -> bool {
        matches!(self, Self::Exit(_) | Self::Dies)
    }
}

impl Shape {
    const ALL: [Self; 8] = [
        Self::Plain,
        Self::Background,
        Self::Setsid,
        Self::DoubleFork,
        Self::Ignores,
        Self::Storm,
        Self::Stopped,
        Self::Asks,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Background => "background",
            Self::Setsid => "setsid",
            Self::DoubleFork => "double-fork",
            Self::Ignores => "ignores",
            Self::Storm => "storm",
            Self::Stopped => "stopped",
            Self::Asks => "asks",
        }
    }
}

impl Surrounding {
    pub(crate) const ALL: [Self; 7] = [
        Self::Plain,
        Self::First,
        Self::Unreaped,
        Self::Reaped,
        Self::Terminal,
        Self::Nohup,
        Self::ReadOnly,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::First => "process-1",
            Self::Unreaped => "unreaped",
            Self::Reaped => "reaped",
            Self::Terminal => "terminal",
            Self::Nohup => "nohup",
            Self::ReadOnly => "read-only",
        }
    }

    /// Whether it takes a namespace, and so root.
    pub(crate) const fn is_namespace(self) -> bool {
        matches!(self, Self::First | Self::Unreaped | Self::Reaped | Self::ReadOnly)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Exit(code) => return write!(f, "exit-{code}"),
            Self::Signal(signal, to) => {
                let to = if *to == To::Group { "-group" } else { "" };
                return write!(f, "{}{to}", name_of(*signal));
            }
            Self::Dies => "dies",
            Self::TermAll => "term-all",
            Self::KillWrapper => "kill",
            Self::KillWatchdog => "kill-watchdog",
            Self::FreezeWrapper => "freeze",
            Self::FreezeWatchdog => "freeze-watchdog",
            Self::StoreAway => "store-away",
            Self::Release => "release",
            Self::Expel => "expel",
            Self::Hangup => "hangup",
            Self::Key(Key::CtrlC) => "ctrl-c",
            Self::Key(Key::CtrlBackslash) => "ctrl-backslash",
            Self::Key(Key::CtrlZ) => "ctrl-z",
        };
        f.write_str(name)
    }
}

fn name_of(signal: Signal) -> &'static str {
    match signal {
        Signal::TERM => "term",
        Signal::INT => "int",
        Signal::HUP => "hup",
        Signal::QUIT => "quit",
        _ => "tstp",
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wrapper, surrounding) = (self.wrapper.name(), self.surrounding.name());
        write!(f, "{wrapper}/{surrounding}/{}/{}", self.shape.name(), self.end)
    }
}

impl Cell {
    /// Whether all parts of a filter match. A part is a whole name at its place (`lock/terminal//term`), or a part of the
    /// cell's name without a slash.
    pub(crate) fn matches(&self, filter: &str) -> bool {
        let name = self.to_string();
        if !filter.contains('/') {
            return name.split('/').any(|part| part == filter);
        }
        let mut parts = name.split('/');
        filter
            .split('/')
            .all(|wanted| parts.next().is_some_and(|part| wanted.is_empty() || part == wanted))
    }
}

/// The cells to run, and the number of those that each rule excludes.
#[derive(Debug, Default)]
pub(crate) struct Matrix {
    pub(crate) cells: Vec<Cell>,
    pub(crate) excluded: BTreeMap<&'static str, (usize, &'static str)>,
}

impl Matrix {
    /// The whole product for these wrappers.
    pub(crate) fn of(wrappers: &[Wrapper]) -> Self {
        let mut matrix = Self::default();
        for wrapper in wrappers {
            for surrounding in Surrounding::ALL {
                for shape in Shape::ALL {
                    for end in End::all() {
                        matrix.add(Cell {
                            wrapper: *wrapper,
                            surrounding,
                            shape,
                            end,
                        });
                    }
                }
            }
        }
        matrix
    }

    fn add(&mut self, cell: Cell) {
        let is_foreign = !Wrapper::OURS.contains(&cell.wrapper);
        match RULES.iter().find(|rule| (rule.excludes)(&cell)) {
            Some(rule) => self.count(rule.name, rule.reason, 1),
            None if is_foreign && is_of_tenure(cell.end) => {
                self.count("other-wrappers", "they have no watchdog and no member of a group", 1);
            }
            None => self.cells.push(cell),
        }
    }

    fn count(&mut self, name: &'static str, reason: &'static str, number: usize) {
        self.excluded.entry(name).or_insert((0, reason)).0 += number;
    }

    /// Drops cells for a reason that this machine has.
    pub(crate) fn exclude(
        &mut self,
        name: &'static str,
        reason: &'static str,
        mut excludes: impl FnMut(&Cell) -> bool,
    ) {
        let before = self.cells.len();
        self.cells.retain(|cell| !excludes(cell));
        if self.cells.len() < before {
            self.count(name, reason, before - self.cells.len());
        }
    }

    /// Puts the cells into an order drawn from the seed. Every beginning of it is a fair sample, and slow cells are spread.
    pub(crate) fn shuffle(&mut self, seed: u64) {
        let mut random = Random::new(seed, 1);
        for last in (1..self.cells.len()).rev() {
            let other = random.below(last as u64 + 1);
            self.cells.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_cell_of_the_product_is_run_or_counted() {
        let matrix = Matrix::of(&Wrapper::OURS);
        let product = Wrapper::OURS.len() * Surrounding::ALL.len() * Shape::ALL.len() * End::all().len();
        let excluded: usize = matrix.excluded.values().map(|(count, _)| count).sum();
        assert_eq!(matrix.cells.len() + excluded, product);
        assert!(matrix.cells.len() > 3_000, "{}", matrix.cells.len());
        let used: Vec<_> = RULES
            .iter()
            .filter(|rule| matrix.excluded.contains_key(rule.name))
            .collect();
        assert_eq!(used.len(), RULES.len());
    }

    #[test]
    fn every_dimension_is_in_the_matrix() {
        let matrix = Matrix::of(&Wrapper::OURS);
        let parts: HashSet<String> = matrix
            .cells
            .iter()
            .flat_map(|cell| cell.to_string().split('/').map(ToOwned::to_owned).collect::<Vec<_>>())
            .collect();
        for part in [
            "join",
            "process-1",
            "read-only",
            "double-fork",
            "asks",
            "tstp-group",
            "hangup",
            "release",
        ] {
            assert!(parts.contains(part), "{part}");
        }
    }

    #[test]
    fn a_cells_name_is_a_filter_for_it_alone() {
        let matrix = Matrix::of(&Wrapper::OURS);
        let name = "lock/terminal/asks/ctrl-c";
        let found: Vec<_> = matrix.cells.iter().filter(|cell| cell.matches(name)).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), name);
        let loose = |filter: &str| matrix.cells.iter().filter(|cell| cell.matches(filter)).count();
        assert!(loose("term") > loose("lock/plain") / 40 && loose("//plain/exit-0") == 21);
    }

    #[test]
    fn a_seed_gives_one_order() {
        let order = |seed| {
            let mut matrix = Matrix::of(&[Wrapper::Lock]);
            matrix.shuffle(seed);
            matrix.cells
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_eq!(order(1).len(), order(2).len());
    }
}
