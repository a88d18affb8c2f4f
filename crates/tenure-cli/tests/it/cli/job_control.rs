//! A wrapped command at a terminal behaves as one that is not wrapped.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use tenure_testkit::{have, wait};

use crate::support::{Daemon, SOON};

/// The wrappers, with a lease where they have one.
const WRAPPERS: [&str; 3] = ["join", "lock q", "run --leader lease:q"];

/// A program on a terminal of its own. Killed when dropped.
struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    seen: usize,
    child: Child,
}

impl Terminal {
    /// `None`, with a message, without `setsid`.
    fn start(daemon: &Daemon, program: &[&str]) -> Option<Self> {
        let setsid = have("setsid").or_skip()?;
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let size = Winsize {
            ws_row: 40,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let mut command = Command::new(setsid);
        command.args(["--ctty", "--wait"]).args(program);
        command
            .env("TENURE_STORE", daemon.url())
            .env("TENURE_LOG", "off")
            .env("TERM", "dumb");
        command.env("T", env!("CARGO_BIN_EXE_tenure")).env("PS1", "> ");
        command
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave);
        let child = command.spawn().unwrap();
        let (screen, master) = (Arc::<Mutex<String>>::default(), File::from(master));
        let (shown, mut output) = (Arc::clone(&screen), master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // An error: the terminal is closed.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                shown
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Some(Self {
            keyboard: master,
            screen,
            seen: 0,
            child,
        })
    }

    /// An interactive shell that shows at once what becomes of its jobs.
    fn shell(daemon: &Daemon) -> Option<Self> {
        let mut shell = Self::start(daemon, &["bash", "--norc", "--noediting", "-i"])?;
        shell.shows("> ");
        shell.enters("set -b");
        Some(shell)
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn enters(&mut self, line: &str) {
        self.types(&format!("{line}\n"));
        // The echo of the terminal.
        if !line.is_empty() {
            self.shows(line);
        }
    }

    /// Waits for this text after what was waited for before.
    #[track_caller]
    fn shows(&mut self, text: &str) {
        let new = || self.screen.lock().unwrap()[self.seen..].to_owned();
        wait::until(&format!("the terminal shows {text:?}: {:?}", new()), SOON, || {
            new().contains(text)
        });
        self.seen += new().find(text).unwrap() + text.len();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the terminal shows {:?}", self.screen.lock().unwrap());
        }
    }
}

fn is_free(daemon: &Daemon) -> bool {
    let (status, lease) = daemon.http("GET", "/v1/groups/default/leases/q", "");
    status == 404 || lease["alive"] == Value::Bool(false)
}

#[test]
fn question_is_answered_and_ctrl_c_ends_the_command() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let Some(mut shell) = Terminal::shell(&daemon) else {
        return;
    };
    for wrapper in WRAPPERS {
        shell.enters(&format!(
            "$T {wrapper} -- sh -c 'printf \"A value? \"; read x; echo \"got <$x>\"; stty size; exit 3'; echo \"code <$?>\""
        ));
        shell.shows("A value? ");
        shell.types("yes\n");
        shell.shows("got <yes>");
        shell.shows("40 100");
        shell.shows("code <3>");
        assert!(is_free(&daemon), "{wrapper}");
        // A shell may lose a Ctrl-C while it starts a program, and a program may read once more before it dies of it.
        shell.enters(&format!("$T {wrapper} -- cat"));
        shell.types("ping\n");
        shell.shows("ping\r\nping");
        shell.types("\x03");
        shell.shows("> ");
        shell.enters("echo \"code <$?>\"");
        shell.shows("code <130>");
        assert!(is_free(&daemon), "{wrapper}");
    }
}

#[test]
fn stopped_command_goes_on_in_the_foreground() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let Some(mut shell) = Terminal::shell(&daemon) else {
        return;
    };
    for wrapper in WRAPPERS {
        shell.enters(&format!(
            "$T {wrapper} -- sh -c 'echo rea\"\"dy; read x; echo \"got <$x>\"'"
        ));
        shell.shows("ready");
        shell.types("\x1a");
        shell.shows("Stopped");
        shell.shows("> ");
        shell.enters("echo \"still <$((20 + 3))>\"");
        shell.shows("still <23>");
        shell.enters("fg");
        shell.types("hello\n");
        shell.shows("got <hello>");
        shell.shows("> ");
        // One that reads in the background is stopped, too.
        shell.enters(&format!("$T {wrapper} -- sh -c 'read x; echo \"got <$x>\"' &"));
        shell.shows("Stopped");
        shell.enters("fg");
        shell.types("again\n");
        shell.shows("got <again>");
        shell.shows("> ");
        assert!(is_free(&daemon), "{wrapper}");
    }
}

/// A script without job control, so that only the wrapper and its watchdog restore anything. Kills the wrapper, the command
/// itself, or takes the lock away, at a prompt that has switched the echo off.
#[test]
fn terminal_is_restored_after_a_password_prompt_is_killed() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let release = "$T leases release q2 --holder m2";
    for (case, kill) in ["kill -KILL $PPID", "kill -KILL $$", release].into_iter().enumerate() {
        let prompt = format!("stty -echo; printf Password:; ({kill}) >/dev/null & read x; echo no");
        let script = format!(
            "$T lock q{case} --member m{case} --ttl 2s -- sh -c '{prompt}'
            until stty -a | grep -q ' echo '; do sleep 0.05; done; echo restored; read x; echo \"got <$x>\""
        );
        let Some(mut terminal) = Terminal::start(&daemon, &["sh", "-c", &script]) else {
            return;
        };
        terminal.shows("Password:");
        terminal.shows("restored");
        terminal.types("hello\n");
        terminal.shows("got <hello>");
    }
}

#[test]
fn ctrl_c_ends_the_script_around_a_wrapper() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    for wrapper in WRAPPERS {
        let script = format!("for i in 1 2; do echo round $i; $T {wrapper} -- cat; done; echo end");
        let Some(mut terminal) = Terminal::start(&daemon, &["bash", "-c", &script]) else {
            return;
        };
        terminal.shows("round 1");
        terminal.types("ping\n");
        terminal.shows("ping\r\nping");
        terminal.types("\x03");
        wait::until("the script has ended", SOON, || {
            terminal.child.try_wait().unwrap().is_some()
        });
        let screen = terminal.screen.lock().unwrap().clone();
        assert!(!screen.contains("round 2") && !screen.contains("end"), "{screen:?}");
        assert!(is_free(&daemon), "{wrapper}");
    }
}
