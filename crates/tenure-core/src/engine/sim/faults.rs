//! Random histories on a disk that is full, slow, fails once or breaks, with crashes, restarts, and older copies.

use super::disk::{Image, Luck};
use super::draw::ms;
use super::gate::{calls, groups, options};
use super::observe;
use super::world::World;
use crate::call::Op;
use crate::conformance::{Cases, Chance};
use crate::error::ErrorKind;
use crate::recall::Doubt;
use crate::store::{Call, Health};
use crate::sweep::{Status, Tick};

/// One history.
struct History {
    world: World,
    chance: Chance,
    /// How many commits fail before there is room again.
    full_for: usize,
    /// An earlier state of the disk.
    copy: Option<Image>,
}

impl History {
    fn new(seed: u64) -> Self {
        Self {
            world: World::new(options()),
            chance: Chance::new(seed),
            full_for: 0,
            copy: None,
        }
    }

    fn run(&mut self) -> Result<usize, String> {
        for _ in 0..25 {
            calls(&mut self.world, &mut self.chance, 4)?;
            if self.world.begin_commit() {
                self.during()?;
                let luck = self.luck();
                self.world.end_commit(luck);
                // Numbers come from the clock, unless two steps are of one instant; the judge has not seen the lost one.
                self.world.clock.advance(ms(1));
                self.world.poll_all()?;
                if let Luck::Broken(_) = luck {
                    self.broken()?;
                }
            }
            self.between()?;
        }
        self.recovered()?;
        self.world.settle()?;
        observe::compare(&mut self.world)?;
        Ok(self.world.compared)
    }

    /// While a commit is under way.
    fn during(&mut self) -> Result<(), String> {
        calls(&mut self.world, &mut self.chance, 3)?;
        match self.chance.below(12) {
            0 => self.world.pass(ms(3_000)).map(drop),
            1..=3 => self.world.pass(ms(100)).map(drop),
            _ => Ok(()),
        }
    }

    fn luck(&mut self) -> Luck {
        if self.full_for > 0 {
            self.full_for -= 1;
            return Luck::Full;
        }
        match self.chance.below(20) {
            0 => Luck::Full,
            1 => {
                self.full_for = self.chance.below(8);
                Luck::Full
            }
            2 => Luck::Doubtful(true),
            3 => Luck::Doubtful(false),
            4 if self.chance.below(3) == 0 => Luck::Broken(self.chance.below(2) == 0),
            _ => Luck::Good,
        }
    }

    /// Between two commits.
    fn between(&mut self) -> Result<(), String> {
        match self.chance.below(24) {
            0..=5 => {
                let long = *self.chance.of(&[300, 900, 2_600]);
                self.world.pass(ms(long)).map(drop)
            }
            6 => {
                // Nothing ticks: a gap. Its step must not be lost, so that the judge notices the same gap.
                self.recovered()?;
                self.world.settle()?;
                self.world.outage(ms(4_000));
                self.resume()
            }
            7 | 8 => {
                let after = *self.chance.of(&[1, 200, 5_000]);
                self.crash(after)
            }
            9 => {
                self.copy = Some(self.world.platter.state().image.clone());
                Ok(())
            }
            10 if self.chance.below(3) == 0 => self.older(),
            _ => Ok(()),
        }
    }

    /// There is room again.
    fn recovered(&mut self) -> Result<(), String> {
        self.full_for = 0;
        self.world.commit(Luck::Good).map(drop)
    }

    /// Every group notices a gap.
    fn resume(&mut self) -> Result<(), String> {
        // The first step may come before the pulse, which ends the hole.
        self.visit_all()?;
        self.world.serve();
        self.visit_all()
    }

    fn visit_all(&mut self) -> Result<(), String> {
        for group in groups() {
            if self.world.lives.contains_key(&group) {
                self.world.ask(&group, Op::Tick(Tick::default()), Call::default())?;
            }
        }
        self.world.settle().map(drop)
    }

    fn crash(&mut self, after: u64) -> Result<(), String> {
        observe::crash(&mut self.world)?;
        self.full_for = 0;
        self.world.restart(ms(after));
        // The step that notices a gap must not be lost: the judge would notice it for good.
        self.resume()
    }

    /// Nothing is served after a failed sync, and the process ends.
    fn broken(&mut self) -> Result<(), String> {
        let down = matches!(self.world.engine.health(), Health::Down { .. });
        if !down || self.world.engine.shared.service.broken().is_none() || !self.world.is_idle() {
            return Err("the disk is broken, and the engine goes on".to_owned());
        }
        for group in groups() {
            let answer = self.world.ask(&group, Op::Status(Status), Call::default())?;
            let refused =
                answer.is_some_and(|answer| answer.reply.is_err_and(|error| error.kind() == ErrorKind::Unavailable));
            if !refused {
                return Err("the disk is broken, and a read is answered".to_owned());
            }
        }
        self.crash(1_000)
    }

    /// An older copy of the file is put back, and the next start notices.
    fn older(&mut self) -> Result<(), String> {
        let Some(mut copy) = self.copy.take() else {
            return Ok(());
        };
        let now = self.world.now();
        copy.recall.doubt(Doubt::Older, now, options().max_ttl);
        self.world.platter.state().image = copy;
        self.full_for = 0;
        self.world.forget();
        self.world.restart(ms(50));
        self.resume()
    }
}

#[test]
fn no_fault_of_the_disk_breaks_a_promise() {
    let cases = Cases::times(200);
    let mut compared = 0;
    for seed in cases.seed..cases.seed + cases.count {
        match History::new(seed).run() {
            Ok(count) => compared += count,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(
        compared > 40 * usize::try_from(cases.count).unwrap(),
        "only {compared} answers were compared"
    );
}

#[test]
fn one_seed_gives_one_history() {
    let run = |seed| {
        let mut history = History::new(seed);
        history.run().unwrap();
        let image = history.world.platter.state().image.clone();
        format!("{image:?}")
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}
