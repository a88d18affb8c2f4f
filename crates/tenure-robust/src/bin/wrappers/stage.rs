//! The small programs that surround a wrapper: `wrappers stage …`. Each is this program again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, ioctl_tiocsctty, kill_process_group, setsid, wait, waitpid,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::census;

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How long a job waits to be in the foreground.
const FOREGROUND: Duration = Duration::from_secs(20);

/// Runs a stage. Returns only if it fails, or for the guard.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let parts: Vec<&str> = args.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["first", command @ ..] => {
            // As the process 1 of a container.
            setsid()?;
            Err(become_program(command))
        }
        ["init", reaps, dir, command @ ..] => init(*reaps == "reap", Path::new(dir), command),
        ["terminal", dir, command @ ..] => terminal(Path::new(dir), command),
        ["session", pts, dir, command @ ..] => session(Path::new(pts), Path::new(dir), command),
        ["job", command @ ..] => job(command),
        ["guard", run] => guard(run),
        _ => bail!("unknown stage: {args:?}"),
    }
}

fn program(command: &[&str]) -> Command {
    let mut program = Command::new(command.first().unwrap_or(&"false"));
    program.args(command.get(1..).unwrap_or_default());
    program
}

fn become_program(command: &[&str]) -> anyhow::Error {
    anyhow::Error::new(program(command).exec()).context(format!("cannot run {command:?}"))
}

/// Starts the command in a process group of its own.
fn start(command: &mut Command) -> Result<Pid> {
    let child = command
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    // It is waited for by its number.
    Ok(Pid::from_child(&child))
}

/// A process 1 that runs on after its child has ended, and reaps other processes or does not.
fn init(reaps: bool, dir: &Path, command: &[&str]) -> Result<()> {
    let child = start(&mut program(command))?;
    loop {
        let ended = if reaps {
            wait(WaitOptions::empty())
        } else {
            waitpid(Some(child), WaitOptions::empty())
        };
        match ended {
            Ok(Some((pid, status))) if pid == child => say_code(dir, status)?,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => sleep(LOOK),
        }
    }
}

/// Writes the exit code for the harness to read.
fn say_code(dir: &Path, status: WaitStatus) -> Result<()> {
    let code = status
        .exit_status()
        .or(status.terminating_signal().map(|signal| 128 + signal));
    let (new, whole) = (dir.join("code.new"), dir.join("code"));
    fs::write(&new, code.unwrap_or(-1).to_string())?;
    Ok(fs::rename(new, whole)?)
}

/// Opens a terminal, copies its output to the log, and types what arrives in the pipe `keys`.
fn terminal(dir: &Path, command: &[&str]) -> Result<()> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?.into_string()?;
    let mut master = File::from(master);
    let own = own_program()?;
    let dir_name = dir.display().to_string();
    // A shell ignores TTOU, so that it can take its terminal back.
    let shell = [
        "env",
        "--ignore-signal=TTOU",
        &own,
        "stage",
        "session",
        &name,
        &dir_name,
    ];
    let mut session = program(&[&shell[..], command].concat());
    session.stdin(Stdio::null()).spawn().context("start the session")?;
    let mut output = master.try_clone()?;
    let mut log = File::options().append(true).create(true).open(dir.join("log"))?;
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            match output.read(&mut bytes) {
                Ok(count) if count > 0 => drop(log.write_all(&bytes[..count])),
                // No process has it open.
                _ => sleep(LOOK),
            }
        }
    });
    // Open for reading and writing: it never ends.
    let mut keys = File::options().read(true).write(true).open(dir.join("keys"))?;
    let mut byte = [0];
    while keys.read(&mut byte)? > 0 {
        master.write_all(&byte)?;
    }
    Ok(())
}

fn own_program() -> Result<String> {
    Ok(std::env::current_exe()?.display().to_string())
}

/// The shell of the terminal: runs the command as its foreground job, and brings it back when it is asked to by a file.
fn session(pts: &Path, dir: &Path, command: &[&str]) -> Result<()> {
    setsid()?;
    let tty = File::options().read(true).write(true).open(pts)?;
    // To open it was enough, unless the system wants to be asked.
    let _ = ioctl_tiocsctty(&tty);
    let own = own_program()?;
    let start_job = ["env", "--default-signal=TTOU", &own, "stage", "job"];
    let mut job = program(&[&start_job[..], command].concat());
    job.stdin(tty.try_clone()?)
        .stdout(tty.try_clone()?)
        .stderr(tty.try_clone()?);
    let job = start(&mut job)?;
    tcsetpgrp(&tty, job)?;
    // As a shell does, it has its own modes while the job is suspended, and gives the job's back.
    let (own_modes, mut of_job) = (tcgetattr(&tty)?, tcgetattr(&tty)?);
    loop {
        match waitpid(Some(job), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => {
                tcsetpgrp(&tty, getpgrp())?;
                of_job = tcgetattr(&tty)?;
                tcsetattr(&tty, OptionalActions::Drain, &own_modes)?;
                fs::write(dir.join("suspended"), "")?;
            }
            Ok(Some((_, status))) if !status.continued() => {
                fs::write(dir.join("terminal"), state_of(&tty, job).join("\n"))?;
                say_code(dir, status)?;
            }
            _ => {}
        }
        if fs::remove_file(dir.join("fg")).is_ok() {
            tcsetattr(&tty, OptionalActions::Drain, &of_job)?;
            tcsetpgrp(&tty, job)?;
            let _ = kill_process_group(job, Signal::CONT);
        }
        sleep(LOOK);
    }
}

/// What differs from the terminal that the job was given.
fn state_of(tty: &File, job: Pid) -> Vec<String> {
    let mut wrong = Vec::new();
    match tcgetpgrp(tty) {
        Ok(group) if group == job || group == getpgrp() => {}
        other => wrong.push(format!("the foreground process group is {other:?}")),
    }
    match tcgetattr(tty) {
        Ok(modes) => {
            for (mode, name) in [(LocalModes::ECHO, "echo"), (LocalModes::ICANON, "canonical mode")] {
                if !modes.local_modes.contains(mode) {
                    wrong.push(format!("{name} is off"));
                }
            }
        }
        Err(error) => wrong.push(format!("its modes cannot be read: {error}")),
    }
    wrong
}

/// Becomes the command once its process group is in the foreground, as a job of a shell does.
fn job(command: &[&str]) -> Result<()> {
    let begin = Instant::now();
    while tcgetpgrp(std::io::stdin())? != getpgrp() {
        if begin.elapsed() > FOREGROUND {
            bail!("the job was not put into the foreground");
        }
        sleep(Duration::from_millis(1));
    }
    Err(become_program(command))
}

/// Kills every process of a run when the harness is gone.
fn guard(run: &str) -> Result<()> {
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for _ in 0..20 {
        if census::kill_run(run) == 0 {
            break;
        }
        sleep(10 * LOOK);
    }
    Ok(())
}

/// A named pipe.
///
/// # Errors
/// Those of the system.
pub(crate) fn make_pipe(path: &PathBuf) -> Result<()> {
    let (kind, mode) = (
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    );
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).with_context(|| format!("make {}", path.display()))
}
