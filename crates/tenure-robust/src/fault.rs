//! Faults: drawn from the seed before a round begins, and done while it runs.

mod act;
mod failover;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use crate::history::{Micros, RunClock};
use crate::member::Stage;
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
    /// Requests whose bodies arrive byte by byte.
    SlowBodies(usize),
    /// A caller makes groups as fast as it can, each with one member that never beats.
    CrowdOfGroups(usize),
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
    /// SIGKILL for a node of a cluster, and a start with its data.
    KillNode(usize),
    /// SIGSTOP for a node of a cluster, and SIGCONT after a while.
    FreezeNode(usize),
    /// No daemon reaches a node of a cluster.
    CutNode(usize, bool),
    /// A node of a cluster starts without its data.
    EmptyNode(usize),
    /// SIGKILL for one of three sentinels, and a start with its state.
    KillSentinel(usize),
    /// SIGSTOP for one of three sentinels, and SIGCONT after a while.
    FreezeSentinel(usize),
    /// SIGKILL for the ledger, and a start with its data.
    KillLedger,
    /// SIGSTOP for the ledger, and SIGCONT after a while.
    FreezeLedger,
    /// A daemon loses the way to the ledger.
    CutLedger(usize, bool),
    /// The disk of the embedded store is full; with `true` the daemon is killed and starts on the full disk.
    FullDisk(bool),
    /// A replica becomes the primary; with `true` it was cut off while the fault lasted, and misses that time.
    FailOver(Failover, bool),
}

/// How a primary is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failover {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT when its successor serves.
    Freeze,
    /// It lives, and the sentinels replace it on command.
    Force,
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
            Fault::SlowBodies(_) => "bodies slow",
            Fault::CrowdOfGroups(_) => "crowd of groups",
            Fault::CutStore(..) => "store cut",
            Fault::SlowStore(_) => "store slow",
            Fault::KillStore => "store killed",
            Fault::FreezeStore => "store frozen",
            Fault::LoseList => "list lost",
            Fault::EmptyStore => "store emptied",
            Fault::OlderFile => "older file",
            Fault::KillNode(_) => "node killed",
            Fault::FreezeNode(_) => "node frozen",
            Fault::CutNode(..) => "node cut",
            Fault::EmptyNode(_) => "node emptied",
            Fault::KillSentinel(_) => "sentinel killed",
            Fault::FreezeSentinel(_) => "sentinel frozen",
            Fault::KillLedger => "ledger killed",
            Fault::FreezeLedger => "ledger frozen",
            Fault::CutLedger(..) => "ledger cut",
            Fault::FullDisk(false) => "disk full",
            Fault::FullDisk(true) => "started on a full disk",
            Fault::FailOver(Failover::Kill, false) => "primary killed",
            Fault::FailOver(Failover::Freeze, false) => "primary frozen",
            Fault::FailOver(Failover::Force, false) => "failover forced",
            Fault::FailOver(Failover::Kill, true) => "primary killed, replicas cut",
            Fault::FailOver(Failover::Freeze, true) => "primary frozen, replicas cut",
            Fault::FailOver(Failover::Force, true) => "failover forced, replicas cut",
        }
    }

    fn draw(kind: Kind, random: &mut Random) -> Self {
        let (at, hard) = (usize::try_from(random.below(3)).unwrap_or(0), random.below(2) == 0);
        match kind {
            Kind::Sqlite => match random.below(100) {
                0..22 => Fault::KillDaemon(0),
                22..42 => Fault::FreezeDaemon(0),
                42..50 => Fault::CutClients(0, hard),
                50..58 => Fault::LoseAnswers(0),
                58..63 => Fault::SlowClients(0),
                63..66 => Fault::IdleSockets(0),
                66..69 => Fault::SlowBodies(0),
                69..75 => Fault::CrowdOfGroups(0),
                75..83 => Fault::FullDisk(false),
                83..87 => Fault::FullDisk(true),
                _ => Fault::OlderFile,
            },
            Kind::Valkey => match random.below(100) {
                0..12 => Fault::KillDaemon(at),
                12..22 => Fault::FreezeDaemon(at),
                22..30 => Fault::CutClients(at, hard),
                30..37 => Fault::LoseAnswers(at),
                37..42 => Fault::SlowClients(at),
                42..45 => Fault::IdleSockets(at),
                45..48 => Fault::SlowBodies(at),
                48..53 => Fault::CrowdOfGroups(at),
                53..58 => Fault::CutStore(at, hard),
                58..64 => Fault::SlowStore(at),
                64..76 => Fault::KillStore,
                76..90 => Fault::FreezeStore,
                90..96 => Fault::LoseList,
                _ => Fault::EmptyStore,
            },
            Kind::Cluster => match random.below(100) {
                0..10 => Fault::KillDaemon(at),
                10..18 => Fault::FreezeDaemon(at),
                18..24 => Fault::CutClients(at, hard),
                24..28 => Fault::LoseAnswers(at),
                28..32 => Fault::SlowClients(at),
                32..52 => Fault::KillNode(at),
                52..72 => Fault::FreezeNode(at),
                72..88 => Fault::CutNode(at, hard),
                _ => Fault::EmptyNode(at),
            },
            Kind::Ledger => match random.below(100) {
                0..10 => Fault::KillDaemon(at),
                10..18 => Fault::FreezeDaemon(at),
                18..23 => Fault::CutClients(at, hard),
                23..30 => Fault::LoseAnswers(at),
                30..34 => Fault::SlowClients(at),
                34..44 => Fault::CutStore(at, hard),
                44..54 => Fault::KillStore,
                54..64 => Fault::FreezeStore,
                64..68 => Fault::EmptyStore,
                68..78 => Fault::KillLedger,
                78..88 => Fault::FreezeLedger,
                _ => Fault::CutLedger(at, hard),
            },
            Kind::Sentinel => match random.below(100) {
                0..8 => Fault::KillDaemon(at),
                8..16 => Fault::FreezeDaemon(at),
                16..24 => Fault::CutClients(at, hard),
                24..32 => Fault::LoseAnswers(at),
                32..40 => Fault::SlowClients(at),
                40..46 => Fault::KillSentinel(at),
                46..52 => Fault::FreezeSentinel(at),
                _ => {
                    let how = random.one_of(&[Failover::Kill, Failover::Freeze, Failover::Force, Failover::Force]);
                    Fault::FailOver(how, random.below(3) > 0)
                }
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
        if matches!(fault, Fault::FailOver(..)) {
            total += failover::TAKES;
        }
        faults.push(Planned { after, fault, lasts });
    }
    faults
}

/// What a store lost: calls that had ended before `from`, or begin after `to`, are not affected.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    /// Before the first call that may be lost.
    pub from: Micros,
    /// After the last.
    pub to: Micros,
    /// Only what happened in between is lost, and no member need know before its next beat.
    pub is_tail: bool,
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
    /// What it lost.
    pub loss: Option<Loss>,
}

impl Window {
    /// Whether it is about the group with a number: each node of a cluster has one.
    #[must_use]
    pub fn is_about(&self, group: usize) -> bool {
        match self.fault {
            Fault::KillNode(at) | Fault::FreezeNode(at) | Fault::CutNode(at, _) | Fault::EmptyNode(at) => at == group,
            _ => true,
        }
    }

    /// From when to when nothing served, if so.
    #[must_use]
    pub fn outage(&self, kind: Kind) -> Option<(Micros, Micros)> {
        let is_outage = match self.fault {
            Fault::KillDaemon(_) | Fault::FreezeDaemon(_) | Fault::OlderFile => kind == Kind::Sqlite,
            Fault::FullDisk(is_started) => is_started,
            Fault::KillStore | Fault::FreezeStore | Fault::EmptyStore => true,
            Fault::KillNode(_) | Fault::FreezeNode(_) | Fault::CutNode(..) | Fault::EmptyNode(_) => true,
            // The primary goes when the fault is over, and the sentinels wait for it.
            Fault::FailOver(Failover::Kill | Failover::Freeze, _) => {
                return Some((self.resumed, self.resumed + failover::AT_LEAST));
            }
            _ => false,
        };
        is_outage.then_some((self.begin, self.resumed))
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
pub async fn run(world: &World, plan: &[Planned], clock: RunClock, stage: &Stage) -> Result<Vec<Window>> {
    let (mut windows, mut actor) = (Vec::new(), act::Actor::new(world, clock));
    let has_disk = world.kind != Kind::Sqlite || world.daemon(0).disk.is_some();
    let can = |planned: &&Planned| has_disk || !matches!(planned.fault, Fault::FullDisk(_));
    for planned in plan.iter().filter(can) {
        let window = actor.play(planned).await?;
        if window.loss.is_some() {
            stage.renew_names();
        }
        windows.push(window);
    }
    Ok(windows)
}
