//! Power is lost: the daemon dies in the middle of a write, and the disk forgets what was not synced.
//!
//! A real daemon on a file system that fails with a change drawn by chance: under load, while the daemon starts, or while
//! it ends. Afterwards everything that was acknowledged is compared with what is served. `TENURE_POWER_CUTS=300` cuts more
//! often, `TENURE_RANDOM_SEED=7` elsewhere.

mod client;
mod disk;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure_testkit::{Process, http, wait};

use crate::support::{SOON, spawn};
use client::{Client, Served, Shared};
use disk::{Disk, below};

const GROUP: &str = "g";
const CLIENTS: u64 = 4;
/// A start makes fewer changes of the disk.
const START: u64 = 60;
const LOAD: u64 = 1_200;
const CLOSE: u64 = 30;

/// Seeded numbers (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound.max(1)
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }
}

/// What happened in all cuts.
#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    /// While the daemon starts, serves, or ends.
    phases: [u64; 3],
    pages: u64,
    torn: u64,
    names: u64,
    /// Facts compared after the cuts.
    facts: u64,
    /// Starts that found the mark torn or gone, and granted no lease until they were told to.
    unmarked: u64,
    /// Starts that said that the file had forgotten something.
    forgotten: u64,
    /// Starts that were refused.
    refused: Vec<String>,
}

struct World {
    // Ends before the disk is unmounted.
    daemon: Process,
    /// The length of the log at the last start.
    started: usize,
    disk: Disk,
    clients: Vec<Client>,
    shared: Shared,
    chance: Chance,
    tally: Tally,
    is_mark_hurt: bool,
}

impl World {
    fn start(seed: u64) -> Option<Self> {
        let disk = Disk::mount()?;
        let data = below(&disk, "tenure-data");
        let daemon = spawn("tenure serve", |command, _| {
            command
                .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
                .arg(data);
        });
        let world = Self {
            daemon,
            started: 0,
            disk,
            clients: (0..CLIENTS)
                .map(|nth| Client::new(GROUP, nth, seed + nth + 1))
                .collect(),
            shared: Shared::default(),
            chance: Chance(seed),
            tally: Tally::default(),
            is_mark_hurt: true,
        };
        let addr = world.address().expect("a daemon on an empty disk starts");
        settle(addr);
        Some(world)
    }

    /// What the daemon has printed since its last start.
    fn log(&self) -> String {
        let log = self.daemon.log();
        log.split_at(self.started).1.to_owned()
    }

    /// Where the daemon serves. `None` when it ended instead.
    fn address(&self) -> Option<SocketAddr> {
        let printed = || {
            self.log()
                .lines()
                .find_map(|line| line.strip_prefix("http://")?.parse().ok())
        };
        wait::until("the daemon serves or has ended", SOON, || {
            printed().is_some() || !self.daemon.is_running()
        });
        printed()
    }

    fn restart(&mut self) {
        self.daemon.kill();
        self.started = self.daemon.log().len();
        self.daemon.restart().unwrap();
    }

    fn cut(&mut self, phase: usize) {
        self.daemon.kill();
        let cut = self.disk.cut(&mut self.chance);
        let tally = &mut self.tally;
        tally.cuts += 1;
        tally.phases[phase] += 1;
        tally.pages += cut.pages;
        tally.torn += cut.torn;
        tally.names += cut.names;
        // A wait that began at a start which was cut as well goes on.
        self.is_mark_hurt |= cut.is_mark_hurt;
    }

    /// Starts the daemon on what is left, and compares. Answers its address, unless it refused to start.
    fn check(&mut self) -> Option<SocketAddr> {
        self.restart();
        let Some(addr) = self.address() else {
            self.tally.refused.push(self.log());
            return None;
        };
        let log = self.log();
        if log.contains("no lease is granted for") {
            let is_unmarked = self.is_mark_hurt && log.contains("the mark beside the file is missing");
            let count = if is_unmarked {
                &mut self.tally.unmarked
            } else {
                &mut self.tally.forgotten
            };
            *count += 1;
            if !is_unmarked {
                eprintln!("cut {}: {log}", self.tally.cuts);
            }
            settle(addr);
        }
        self.is_mark_hurt = false;
        let served = Served::read(addr, GROUP);
        for client in &mut self.clients {
            self.tally.facts += client.check(&self.shared, &served);
        }
        let strangers = served.strangers(&self.clients);
        let strangers = strangers.into_iter().map(|what| format!("{what}: was never asked for"));
        self.shared.wrong().extend(strangers);
        Some(addr)
    }

    /// All clients work until `stop`, or until they have no answer.
    fn load(&mut self, addr: SocketAddr, stop: impl Fn(&Disk) -> bool) {
        let (shared, disk, is_over) = (&self.shared, &self.disk, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let is_over = &is_over;
            let workers = self.clients.iter_mut();
            let workers =
                workers.map(|client| scope.spawn(|| client.work(addr, shared, || is_over.load(Ordering::SeqCst))));
            let workers: Vec<_> = workers.collect();
            wait::until("the load is enough", SOON, || {
                stop(disk) || workers.iter().all(std::thread::ScopedJoinHandle::is_finished)
            });
            is_over.store(true, Ordering::SeqCst);
        });
    }

    /// One cut, and the comparison after it. Answers the address of the daemon that serves what is left.
    fn cycle(&mut self, addr: SocketAddr) -> Option<SocketAddr> {
        let changes = self.chance.below(LOAD);
        match self.chance.below(6) {
            0 => {
                let enough = self.disk.changes() + changes;
                self.load(addr, |disk| disk.changes() >= enough);
                self.disk.fail_after(1 + self.chance.below(CLOSE));
                self.daemon.signal(tenure_testkit::server::Signal::TERM).unwrap();
                wait::until("the daemon has ended", SOON, || {
                    self.disk.wait_for_failure(Duration::ZERO) || !self.daemon.is_running()
                });
                self.cut(2);
            }
            1 => {
                self.disk.fail_after(1 + changes);
                self.load(addr, |disk| disk.wait_for_failure(Duration::ZERO));
                self.cut(1);
                // The next one hits the daemon while it starts on what is left.
                self.restart();
                self.disk.fail_after(1 + self.chance.below(START));
                wait::until("the power fails, or the daemon serves", SOON, || {
                    self.disk.wait_for_failure(Duration::ZERO)
                        || self.log().contains("http://")
                        || !self.daemon.is_running()
                });
                self.cut(0);
            }
            _ => {
                self.disk.fail_after(1 + changes);
                self.load(addr, |disk| disk.wait_for_failure(Duration::ZERO));
                self.cut(1);
            }
        }
        self.check()
    }
}

fn settle(addr: SocketAddr) {
    assert_eq!(http::request(addr, "POST", "/v1/settle", "").unwrap().0, 200);
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn power_cuts_lose_nothing_that_was_acknowledged() {
    let (cuts, seed) = (number("TENURE_POWER_CUTS", 40), number("TENURE_RANDOM_SEED", 1));
    let Some(mut world) = World::start(seed) else { return };
    let (since, mut addr) = (Instant::now(), world.address().unwrap());
    while world.tally.cuts < cuts {
        let Some(next) = world.cycle(addr) else { break };
        addr = next;
        let wrong = world.shared.wrong();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}\n{:#?}", world.tally);
    }
    let (tally, shared) = (&world.tally, &world.shared);
    let (acknowledged, withheld) = (shared.acknowledged(), shared.withheld());
    eprintln!(
        "{acknowledged} changes acknowledged, {withheld} grants withheld, in {:?}: {tally:?}",
        since.elapsed()
    );
    assert!(tally.refused.is_empty(), "seed {seed}: {:#?}", tally.refused);
    assert_eq!(tally.forgotten, 0, "seed {seed}: {tally:#?}");
    assert!(acknowledged > cuts && tally.facts > cuts, "{tally:#?}");
}

/// What the comparison is worth: on a disk whose syncs do nothing it finds what is lost.
#[test]
fn power_cuts_on_a_disk_that_does_not_sync_are_noticed() {
    for seed in 1..=10 {
        let Some(mut world) = World::start(seed) else { return };
        let addr = world.address().unwrap();
        world.disk.lie();
        world.cycle(addr);
        let wrong = world.shared.wrong();
        if wrong
            .iter()
            .any(|wrong| wrong.contains(", not ") || wrong.contains("was claimed"))
        {
            eprintln!("seed {seed}: {} facts lost, {:?}", wrong.len(), world.tally);
            return;
        }
    }
    panic!("ten cuts without a sync lost nothing that was noticed");
}
