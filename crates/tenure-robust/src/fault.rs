//! Faults: drawn from the seed before a round begins, and done while it runs.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tenure_testkit::proxy::Mode;
use tokio::time::sleep;

use crate::history::{Micros, Recorder};
use crate::random::Random;
use crate::world::{Kind, World};

/// A fault; the number is that of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL, and a start after a while.
    KillDaemon(usize),
    /// SIGSTOP, and SIGCONT after a while.
    FreezeDaemon(usize),
    /// Clients lose the way to a daemon: connections are reset, or nothing arrives.
    CutClients(usize, bool),
    /// Answers of a daemon are lost.
    LoseAnswers(usize),
    /// Everything between clients and a daemon takes longer.
    SlowClients(usize),
    /// Connections that send half a request and wait.
    IdleSockets(usize),
    /// A daemon loses the way to the store.
    CutStore(usize, bool),
    /// Everything between a daemon and the store takes longer.
    SlowStore(usize),
    /// SIGKILL for the store, and a start with its data.
    KillStore,
    /// SIGSTOP for the store, and SIGCONT after a while.
    FreezeStore,
    /// The list of groups is gone.
    LoseList,
    /// The store starts without its data.
    EmptyStore,
    /// The file of the store is replaced by an older copy.
    OlderFile,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::KillDaemon(_) => "daemon killed",
            Fault::FreezeDaemon(_) => "daemon frozen",
            Fault::CutClients(..) => "clients cut",
            Fault::LoseAnswers(_) => "answers lost",
            Fault::SlowClients(_) => "clients slow",
            Fault::IdleSockets(_) => "idle sockets",
            Fault::CutStore(..) => "store cut",
            Fault::SlowStore(_) => "store slow",
            Fault::KillStore => "store killed",
            Fault::FreezeStore => "store frozen",
            Fault::LoseList => "list lost",
            Fault::EmptyStore => "store emptied",
            Fault::OlderFile => "older file",
        }
    }

    fn draw(kind: Kind, random: &mut Random) -> Self {
        let (at, hard) = (usize::try_from(random.below(3)).unwrap_or(0), random.below(2) == 0);
        match kind {
            Kind::Sqlite => match random.below(100) {
                0..26 => Fault::KillDaemon(0),
                26..50 => Fault::FreezeDaemon(0),
                50..60 => Fault::CutClients(0, hard),
                60..70 => Fault::LoseAnswers(0),
                70..78 => Fault::SlowClients(0),
                78..86 => Fault::IdleSockets(0),
                _ => Fault::OlderFile,
            },
            Kind::Valkey => match random.below(100) {
                0..12 => Fault::KillDaemon(at),
                12..22 => Fault::FreezeDaemon(at),
                22..30 => Fault::CutClients(at, hard),
                30..38 => Fault::LoseAnswers(at),
                38..43 => Fault::SlowClients(at),
                43..48 => Fault::IdleSockets(at),
                48..58 => Fault::CutStore(at, hard),
                58..64 => Fault::SlowStore(at),
                64..76 => Fault::KillStore,
                76..90 => Fault::FreezeStore,
                90..96 => Fault::LoseList,
                _ => Fault::EmptyStore,
            },
        }
    }
}

/// A fault with the calm before it and how long it lasts.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// The calm before it.
    pub after: Duration,
    /// What happens.
    pub fault: Fault,
    /// For how long.
    pub lasts: Duration,
}

/// The faults of one round.
#[must_use]
pub fn plan(kind: Kind, length: Duration, seed: u64) -> Vec<Planned> {
    let mut random = Random::new(seed, 1);
    let (mut faults, mut total) = (Vec::new(), Duration::ZERO);
    while total < length {
        let after = Duration::from_millis(random.between(300, 2_500));
        let fault = Fault::draw(kind, &mut random);
        // Half of them are shorter than a ttl, a quarter nearly nothing.
        let longest = random.one_of(&[300, 1_500, 1_500, 4_000]);
        let lasts = Duration::from_millis(random.between(50, longest));
        total += after + lasts;
        faults.push(Planned { after, fault, lasts });
    }
    faults
}

/// When a fault began and ended.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// What happened.
    pub fault: Fault,
    /// Before it began.
    pub begin: Micros,
    /// Before anything of it was undone.
    pub resumed: Micros,
    /// After it ended.
    pub end: Micros,
}

impl Window {
    /// Whether nothing served while it lasted.
    #[must_use]
    pub fn stops_all(&self, kind: Kind) -> bool {
        match self.fault {
            Fault::KillDaemon(_) | Fault::FreezeDaemon(_) | Fault::OlderFile => kind == Kind::Sqlite,
            Fault::KillStore | Fault::FreezeStore | Fault::EmptyStore => true,
            _ => false,
        }
    }

    /// Whether data was lost.
    #[must_use]
    pub fn loses_data(&self) -> bool {
        matches!(self.fault, Fault::EmptyStore | Fault::OlderFile)
    }
}

/// How often each kind happened.
#[must_use]
pub fn counts(windows: &[Window]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for window in windows {
        *counts.entry(window.fault.name()).or_default() += 1;
    }
    counts
}

/// Does the faults of a plan, one after the other; nothing is broken when it returns.
///
/// # Errors
/// If a process does not come back.
pub async fn run(world: &World, plan: &[Planned], recorder: &Recorder) -> Result<Vec<Window>> {
    let mut windows = Vec::new();
    let mut copy = None;
    for planned in plan {
        sleep(planned.after).await;
        let begin = recorder.clock.now();
        tokio::task::block_in_place(|| begin_fault(world, planned.fault, &mut copy))
            .with_context(|| format!("begin {:?}", planned.fault))?;
        let sockets = match planned.fault {
            Fault::IdleSockets(at) => idle_sockets(world, at),
            _ => Vec::new(),
        };
        sleep(planned.lasts).await;
        drop(sockets);
        let resumed = recorder.clock.now();
        tokio::task::block_in_place(|| end_fault(world, planned.fault))
            .with_context(|| format!("end {:?}", planned.fault))?;
        let fault = planned.fault;
        windows.push(Window {
            fault,
            begin,
            resumed,
            end: recorder.clock.now(),
        });
    }
    Ok(windows)
}

fn begin_fault(world: &World, fault: Fault, copy: &mut Option<PathBuf>) -> Result<()> {
    let daemon = |at: usize| &world.daemons[at % world.daemons.len()];
    let server = || world.server.as_ref().context("no server");
    let slow = Mode::Delay {
        requests: Duration::from_millis(150),
        replies: Duration::from_millis(100),
    };
    let cut = |hard| if hard { Mode::Refuse } else { Mode::HoldAll };
    match fault {
        Fault::KillDaemon(at) => {
            daemon(at).process.kill();
            if world.kind == Kind::Sqlite && copy.is_none() {
                *copy = Some(copy_file(&daemon(at).file())?);
            }
        }
        Fault::OlderFile => {
            daemon(0).process.kill();
            let file = daemon(0).file();
            match copy.take() {
                Some(older) => put_back(&older, &file)?,
                // The first time there is only a copy to make.
                None => *copy = Some(copy_file(&file)?),
            }
        }
        Fault::FreezeDaemon(at) => daemon(at).process.pause()?,
        Fault::CutClients(at, hard) => daemon(at).clients.set(cut(hard)),
        Fault::LoseAnswers(at) => daemon(at).clients.set(Mode::DropReplies),
        Fault::SlowClients(at) => daemon(at).clients.set(slow),
        Fault::IdleSockets(_) => {}
        Fault::CutStore(at, hard) => daemon(at).store.as_ref().context("no way")?.set(cut(hard)),
        Fault::SlowStore(at) => daemon(at).store.as_ref().context("no way")?.set(slow),
        Fault::KillStore | Fault::EmptyStore => server()?.kill(),
        Fault::FreezeStore => server()?.pause(),
        Fault::LoseList => drop(server()?.cli(&["DEL", "tenure:groups"])?),
    }
    Ok(())
}

fn end_fault(world: &World, fault: Fault) -> Result<()> {
    let daemon = |at: usize| &world.daemons[at % world.daemons.len()];
    let server = || world.server.as_ref().context("no server");
    match fault {
        Fault::KillDaemon(at) => {
            daemon(at).process.restart()?;
            daemon(at).wait_ready()?;
        }
        Fault::OlderFile => {
            daemon(0).process.restart()?;
            daemon(0).wait_ready()?;
        }
        Fault::FreezeDaemon(at) => daemon(at).process.resume()?,
        Fault::CutClients(at, _) | Fault::LoseAnswers(at) | Fault::SlowClients(at) => daemon(at).clients.release(),
        Fault::CutStore(at, _) | Fault::SlowStore(at) => daemon(at).store.as_ref().context("no way")?.release(),
        Fault::KillStore => server()?.restart_with_data(),
        Fault::EmptyStore => server()?.restart_empty(),
        Fault::FreezeStore => server()?.resume(),
        Fault::IdleSockets(_) | Fault::LoseList => {}
    }
    Ok(())
}

/// Connections that each send the begin of a request and nothing more.
fn idle_sockets(world: &World, at: usize) -> Vec<TcpStream> {
    let addr = world.daemons[at % world.daemons.len()].addr();
    let open = (0..100).filter_map(|_| TcpStream::connect(addr).ok());
    open.map(|mut stream| {
        let _ = stream.write_all(b"PUT /v1/groups/robust/tenures/x@1/beat HTTP/1.1\r\n");
        stream
    })
    .collect()
}

/// A copy of a store without a process; its log is left out, as by a backup that does not know of it.
fn copy_file(file: &Path) -> Result<PathBuf> {
    let older = file.with_extension("older");
    fs::copy(file, &older)?;
    Ok(older)
}

/// Puts the copy in place of the file and its log; the mark beside the file stays.
fn put_back(older: &Path, file: &Path) -> Result<()> {
    for part in ["-wal", "-shm"] {
        let mut log = file.as_os_str().to_owned();
        log.push(part);
        let _ = fs::remove_file(log);
    }
    fs::rename(older, file).context("put the older file back")
}
