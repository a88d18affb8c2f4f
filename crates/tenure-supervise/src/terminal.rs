//! The controlling terminal, which is handed to the child and taken back as a shell does.
//!
//! The child is in a process group of its own. The kernel stops a process that reads a terminal while another group is in
//! the foreground, and sends Ctrl-C, Ctrl-Z and changes of the window size to the foreground group only. So if this
//! program is in the foreground, the child's group takes its place until the child ends.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgid, getpgrp, getppid, kill_process_group, test_kill_process_group};
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, Termios, tcgetattr, tcgetpgrp, tcsetattr,
    tcsetpgrp,
};

use crate::signals::code_of;

/// The controlling terminal of this process.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    /// The group that was in the foreground before the child's.
    own: Pid,
    /// The modes before the child could change them.
    modes: Option<Modes>,
}

/// What programs change at a terminal: echo, line input, translation of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modes([u32; 4]);

impl Terminal {
    /// `None` without a controlling terminal.
    pub(crate) fn open() -> Option<Self> {
        let flags = i32::try_from(OFlags::NOCTTY.bits()).ok()?;
        let tty = File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open("/dev/tty");
        Some(Self {
            tty: tty.ok()?,
            own: getpgrp(),
            modes: None,
        })
    }

    /// The terminal as another process found it, which named its group and the modes.
    pub(crate) fn of(own: Pid, modes: Modes) -> Option<Self> {
        let modes = Some(modes);
        Some(Self {
            own,
            modes,
            ..Self::open()?
        })
    }

    /// Whether this program is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(self.own)
    }

    /// Moves the group into the foreground, if this program is there. Returns whether it was.
    pub(crate) fn give_to(&mut self, group: Pid) -> bool {
        let is_ours = self.is_ours();
        if is_ours {
            self.modes = self
                .modes
                .or_else(|| tcgetattr(&self.tty).ok().map(|now| Modes::of(&now)));
            self.put(group);
        }
        is_ours
    }

    /// Moves this program into the foreground in place of the child's group, or of one that no longer exists. Returns
    /// whether it did.
    pub(crate) fn take_from(&self, group: Pid) -> bool {
        let is_the_childs = tcgetpgrp(&self.tty)
            .is_ok_and(|now| now == group || (now != self.own && test_kill_process_group(now) == Err(Errno::SRCH)));
        if is_the_childs {
            self.put(self.own);
        }
        is_the_childs
    }

    /// Restores the modes from before the child: a program that is killed at a password prompt leaves the echo off.
    pub(crate) fn restore(&self) {
        if let (Some(modes), Ok(mut now)) = (self.modes, tcgetattr(&self.tty)) {
            allow_output_in_background();
            modes.put_into(&mut now);
            let _ = tcsetattr(&self.tty, OptionalActions::Now, &now);
        }
    }

    /// The group and the modes, once they are known.
    pub(crate) fn before(&self) -> Option<(Pid, Modes)> {
        self.modes.map(|modes| (self.own, modes))
    }

    fn put(&self, group: Pid) {
        allow_output_in_background();
        // The group may have ended.
        let _ = tcsetpgrp(&self.tty, group);
    }
}

impl Modes {
    fn of(now: &Termios) -> Self {
        Self([
            now.input_modes.bits(),
            now.output_modes.bits(),
            now.control_modes.bits(),
            now.local_modes.bits(),
        ])
    }

    fn put_into(self, now: &mut Termios) {
        let Self([input, output, control, local]) = self;
        now.input_modes = InputModes::from_bits_retain(input);
        now.output_modes = OutputModes::from_bits_retain(output);
        now.control_modes = ControlModes::from_bits_retain(control);
        now.local_modes = LocalModes::from_bits_retain(local);
    }

    /// Four numbers, separated by blanks.
    pub(crate) fn to_text(self) -> String {
        self.0.map(|bits| bits.to_string()).join(" ")
    }

    pub(crate) fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut next = || words.next()?.parse().ok();
        Some(Self([next()?, next()?, next()?, next()?]))
    }
}

/// Lets the calling thread, and threads that it starts later, write to the terminal and change it from the background.
/// Without this the kernel stops the process.
pub fn allow_output_in_background() {
    let mut signals = SigSet::empty();
    signals.add(NixSignal::SIGTTOU);
    // Fails only for an invalid request.
    let _ = signals.thread_block();
}

/// The signal that the terminal sent to the last child, which ended of it.
static INTERRUPT: AtomicI32 = AtomicI32::new(0);

/// Notes that the child had the terminal and ended with this code.
pub(crate) fn note_end(code: u8) {
    let ended = [Signal::INT, Signal::QUIT]
        .into_iter()
        .find(|signal| code_of(*signal) == code);
    INTERRUPT.store(ended.map_or(0, Signal::as_raw), Ordering::Relaxed);
}

/// Call it last, with the exit code. If Ctrl-C or Ctrl-\ ended the child, this sends the same signal to the processes that
/// would have received it from the terminal without a supervisor: those of this process's group, as the script that runs
/// it. Such a script looks at how its command ended, so this process then ends by the signal itself.
pub fn pass_interrupt_on(code: u8) {
    let signal = Signal::from_named_raw(INTERRUPT.load(Ordering::Relaxed));
    let Some(signal) = signal.filter(|signal| code_of(*signal) == code) else {
        return;
    };
    let _ = kill_process_group(getpgrp(), signal);
    if getpgid(getppid()) == Ok(getpgrp()) {
        // A new program has no handlers. It is this process all the same.
        let command = format!("kill -{} $$", signal.as_raw());
        let _ = Command::new("sh").args(["-c", &command]).exec();
    }
}
