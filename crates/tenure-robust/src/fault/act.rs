//! What is done for a fault, and undone.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tenure_testkit::proxy::Mode;
use tokio::time::{Instant, sleep};

use super::failover::Watch;
use super::{Fault, Loss, Planned, Window};
use crate::history::{Micros, RunClock};
use crate::http::Client;
use crate::world::{Kind, PUBLISH_PERIOD, World};

/// Does faults in a world.
pub(super) struct Actor<'a> {
    world: &'a World,
    clock: RunClock,
    /// An older copy of the file of the store.
    copy: Option<PathBuf>,
    /// Whether the last fault lost the data of the store.
    is_older: bool,
    watch: Watch,
}

impl<'a> Actor<'a> {
    pub(super) fn new(world: &'a World, clock: RunClock) -> Self {
        Self {
            world,
            clock,
            copy: None,
            is_older: false,
            watch: Watch::default(),
        }
    }

    /// Does a fault and undoes it.
    pub(super) async fn play(&mut self, planned: &Planned) -> Result<Window> {
        let fault = planned.fault;
        sleep(planned.after).await;
        let (world, clock) = (self.world, self.clock);
        let begin = clock.now();
        tokio::task::block_in_place(|| {
            self.watch.look(world, &clock);
            self.begin(fault)
        })
        .with_context(|| format!("begin {fault:?}"))?;
        let sockets = match fault {
            Fault::IdleSockets(at) => half_requests(world, at, 100),
            Fault::SlowBodies(at) => half_requests(world, at, 40),
            _ => Vec::new(),
        };
        match fault {
            Fault::SlowBodies(_) => drip(sockets, planned.lasts).await,
            Fault::CrowdOfGroups(at) => crowd_of_groups(world, at, begin, planned.lasts).await,
            _ => sleep(planned.lasts).await,
        }
        let resumed = clock.now();
        let tail = tokio::task::block_in_place(|| {
            self.end(fault)?;
            self.watch.settle(world, &clock)
        })
        .with_context(|| format!("end {fault:?}"))?;
        let end = clock.now();
        let is_lost =
            matches!(fault, Fault::EmptyStore | Fault::EmptyNode(_)) || fault == Fault::OlderFile && self.is_older;
        let whole = is_lost.then_some(Loss {
            from: begin,
            to: end,
            is_tail: false,
        });
        let tail = tail.map(|from| Loss {
            from,
            to: end,
            is_tail: true,
        });
        Ok(Window {
            fault,
            begin,
            resumed,
            end,
            loss: whole.or(tail),
        })
    }

    fn begin(&mut self, fault: Fault) -> Result<()> {
        let world = self.world;
        let slow = Mode::Delay {
            requests: Duration::from_millis(150),
            replies: Duration::from_millis(100),
        };
        let cut = |hard| if hard { Mode::Refuse } else { Mode::HoldAll };
        match fault {
            Fault::KillDaemon(at) => {
                world.daemon(at).process.kill();
                if world.kind == Kind::Sqlite && self.copy.is_none() {
                    self.copy = Some(copy_file(&world.daemon(at).file())?);
                }
            }
            Fault::OlderFile => {
                world.daemon(0).process.kill();
                let file = world.daemon(0).file();
                self.is_older = self.copy.is_some();
                match self.copy.take() {
                    Some(older) => put_back(&older, &file)?,
                    // The first time there is only a copy to make.
                    None => self.copy = Some(copy_file(&file)?),
                }
            }
            Fault::FullDisk(is_started) => {
                world.daemon(0).disk.as_ref().context("no disk")?.fill()?;
                if is_started {
                    world.daemon(0).process.restart()?;
                }
            }
            Fault::FreezeDaemon(at) => world.daemon(at).process.pause()?,
            Fault::CutClients(at, hard) => world.daemon(at).clients.set(cut(hard)),
            Fault::LoseAnswers(at) => world.daemon(at).clients.set(Mode::DropReplies),
            Fault::SlowClients(at) => world.daemon(at).clients.set(slow),
            Fault::IdleSockets(_) | Fault::SlowBodies(_) | Fault::CrowdOfGroups(_) => {}
            Fault::CutStore(at, hard) => world.daemon(at).store.as_ref().context("no way")?.set(cut(hard)),
            Fault::SlowStore(at) => world.daemon(at).store.as_ref().context("no way")?.set(slow),
            Fault::KillStore | Fault::EmptyStore => world.server()?.kill(),
            Fault::FreezeStore => world.server()?.pause(),
            Fault::KillNode(at) | Fault::EmptyNode(at) => world.node(at)?.0.kill(),
            Fault::FreezeNode(at) => world.node(at)?.0.pause(),
            Fault::CutNode(at, hard) => world.node(at)?.1.set(cut(hard)),
            Fault::KillSentinel(at) => world.sentinels()?.sentinels()[at].process().kill(),
            Fault::FreezeSentinel(at) => world.sentinels()?.sentinels()[at].process().pause()?,
            Fault::KillLedger => world.ledger()?.kill(),
            Fault::FreezeLedger => world.ledger()?.pause(),
            Fault::CutLedger(at, hard) => world.daemon(at).ledger.as_ref().context("no way")?.set(cut(hard)),
            Fault::LoseList => drop(world.server()?.cli(&["DEL", "tenure:groups"])?),
            Fault::FailOver(_, is_cut) => self.watch.begin(world, is_cut)?,
        }
        Ok(())
    }

    fn end(&mut self, fault: Fault) -> Result<()> {
        let world = self.world;
        match fault {
            Fault::KillDaemon(at) => {
                world.daemon(at).process.restart()?;
                world.daemon(at).wait_ready()?;
            }
            Fault::OlderFile => {
                world.daemon(0).process.restart()?;
                world.daemon(0).wait_ready()?;
            }
            Fault::FullDisk(is_started) => {
                let daemon = world.daemon(0);
                daemon.disk.as_ref().context("no disk")?.make_room()?;
                // One that started on a full disk ends with an error.
                if is_started {
                    daemon.process.restart()?;
                }
                daemon.wait_ready()?;
            }
            Fault::FreezeDaemon(at) => world.daemon(at).process.resume()?,
            Fault::CutClients(at, _) | Fault::LoseAnswers(at) | Fault::SlowClients(at) => {
                world.daemon(at).clients.release();
            }
            Fault::CutStore(at, _) | Fault::SlowStore(at) => {
                world.daemon(at).store.as_ref().context("no way")?.release();
            }
            Fault::KillNode(at) => world.node(at)?.0.restart_with_data(),
            Fault::EmptyNode(at) => {
                let node = world.node(at)?.0;
                // What it knows of the cluster stays.
                let data = node.process().dir().join("data/appendonlydir");
                fs::remove_dir_all(data).context("remove the data of a node")?;
                node.restart_with_data();
            }
            Fault::FreezeNode(at) => world.node(at)?.0.resume(),
            Fault::CutNode(at, _) => world.node(at)?.1.release(),
            Fault::KillSentinel(at) => {
                let all = world.sentinels()?;
                all.sentinels()[at].restart()?;
                all.set_publish_period(PUBLISH_PERIOD);
            }
            Fault::FreezeSentinel(at) => world.sentinels()?.sentinels()[at].process().resume()?,
            Fault::KillLedger => world.ledger()?.restart_with_data(),
            Fault::FreezeLedger => world.ledger()?.resume(),
            Fault::CutLedger(at, _) => world.daemon(at).ledger.as_ref().context("no way")?.release(),
            Fault::KillStore => world.server()?.restart_with_data(),
            Fault::EmptyStore => world.server()?.restart_empty(),
            Fault::FreezeStore => world.server()?.resume(),
            Fault::IdleSockets(_) | Fault::SlowBodies(_) | Fault::CrowdOfGroups(_) | Fault::LoseList => {}
            Fault::FailOver(how, _) => self.watch.end(world, how)?,
        }
        Ok(())
    }
}

/// Joins once in each of as many groups as there is time for, on four connections. `begin` makes their names new.
async fn crowd_of_groups(world: &World, at: usize, begin: Micros, lasts: Duration) {
    let (addr, until) = (world.daemon(at).addr(), Instant::now() + lasts);
    let join_some = async |connection: u64| {
        let mut client = Client::new(addr);
        let member = json!({"member": "one-shot", "ttl_ms": 1_000});
        let mut nth = 0;
        while Instant::now() < until {
            let path = format!("/v1/groups/crowd-{begin}-{connection}-{nth}/members");
            client.send("POST", &path, "", &member, lasts).await;
            nth += 1;
        }
    };
    tokio::join!(join_some(0), join_some(1), join_some(2), join_some(3));
}

/// Connections that each send the begin of a request.
fn half_requests(world: &World, at: usize, count: usize) -> Vec<TcpStream> {
    let addr = world.daemon(at).addr();
    let open = (0..count).filter_map(|_| TcpStream::connect(addr).ok());
    open.map(|mut stream| {
        let _ = stream.write_all(b"PUT /v1/groups/robust/tenures/x@1/beat HTTP/1.1\r\n");
        stream
    })
    .collect()
}

/// Sends the bodies of these requests byte by byte.
async fn drip(mut sockets: Vec<TcpStream>, lasts: Duration) {
    let step = Duration::from_millis(20);
    for socket in &mut sockets {
        let _ = socket.write_all(b"Host: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n");
    }
    for _ in 0..lasts.as_millis() / step.as_millis() {
        for socket in &mut sockets {
            let _ = socket.write_all(b" ");
        }
        sleep(step).await;
    }
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
