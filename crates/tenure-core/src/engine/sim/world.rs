//! The real engine on a virtual clock, with its writer turned by hand and calls that are polled one at a time.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::check::{fill, part};
use super::disk::{Luck, Platter, SimDisk, Stored};
use super::judge::{Act, Entry, Fate, Life};
use super::known::Known;
use super::watch::Watch;
use crate::call::{Op, Reply, StoreRequest};
use crate::clock::ManualClock;
use crate::engine::trace::{self, Noted};
use crate::engine::writer::{Begun, Writer};
use crate::engine::{Engine, StoreClock};
use crate::error::Result;
use crate::id::Group;
use crate::store::{Call, StoreOptions};
use crate::sweep::{Tick, Unsettled};
use crate::time::StoreTime;

/// The life, how many entries it had before, and what a call did there.
pub(super) type Done = (Arc<Mutex<Life>>, usize, Noted);

/// A call that is under way.
pub(super) struct Under {
    pub(super) group: Group,
    pub(super) op: Op,
    pub(super) call: Call,
    pub(super) asked_at: StoreTime,
    pub(super) future: Pin<Box<dyn Future<Output = Result<Reply>>>>,
    /// What it did to the model so far.
    pub(super) done: Vec<Done>,
    /// What it was answered at once, item by item, as a model says that has only what was durable then.
    pub(super) at_once: Vec<Option<String>>,
}

impl Under {
    /// What was wrong, with the end of the history that it is about.
    fn explain(&self, error: &str) -> String {
        let mut text = format!("{:?} of {}: {error}", self.op, self.group);
        if let Some((life, at, _)) = self.done.last() {
            let life = lock(life);
            for (n, entry) in life.entries.iter().enumerate().skip(at.saturating_sub(40)) {
                let Entry { op, now, act, .. } = entry;
                text.push_str(&format!(
                    "\n{}{n} {now} {act:?} {op:?}",
                    if n == *at { "> " } else { "  " }
                ));
            }
        }
        text
    }
}

/// An answer that was let out.
pub(super) struct Answer {
    pub(super) group: Group,
    pub(super) op: Op,
    pub(super) asked_at: StoreTime,
    /// When it was decided.
    pub(super) at: StoreTime,
    pub(super) reply: Result<Reply>,
}

pub(super) struct World {
    pub(super) engine: Arc<Engine>,
    /// `None` after its disk broke.
    writer: Option<Writer<SimDisk>>,
    pub(super) platter: Arc<Platter>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) known: BTreeMap<Group, Known>,
    pub(super) lives: BTreeMap<Group, Arc<Mutex<Life>>>,
    pub(super) options: StoreOptions,
    /// Until when the whole store may have forgotten something, as it said at its start.
    wait: Option<Unsettled>,
    pub(super) begun: Option<Begun>,
    under: Vec<Under>,
    watch: Watch,
    traced: bool,
    /// How many answers were compared with the model.
    pub(super) compared: usize,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(options: &StoreOptions, clock: &Arc<ManualClock>, platter: &Arc<Platter>) -> (Arc<Engine>, Writer<SimDisk>) {
    let time = Arc::new(StoreClock::new(Arc::clone(clock) as _, StoreTime::ZERO));
    let (disk, pages) = (SimDisk(Arc::clone(platter)), Arc::clone(platter));
    let started = Engine::assemble(options.clone(), time, disk, pages);
    let (engine, writer) = started.expect("a disk in memory can be read");
    (Arc::new(engine), writer)
}

impl World {
    pub(super) fn new(options: StoreOptions) -> Self {
        let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
        let platter = Arc::new(Platter::default());
        let (engine, writer) = start(&options, &clock, &platter);
        let world = Self {
            engine,
            writer: Some(writer),
            platter,
            clock,
            known: BTreeMap::new(),
            lives: BTreeMap::new(),
            options,
            wait: None,
            begun: None,
            under: Vec::new(),
            watch: Watch::default(),
            traced: std::env::var_os("TENURE_TRACE").is_some(),
            compared: 0,
        };
        world.serve();
        world
    }

    pub(super) fn now(&self) -> StoreTime {
        self.engine.shared.clock.now()
    }

    /// A line for people, with `TENURE_TRACE`.
    pub(super) fn say(&self, line: impl FnOnce() -> String) {
        if self.traced {
            println!("{} {}", self.now(), line());
        }
    }

    /// Begins a call, and takes it as far as it gets.
    pub(super) fn ask(&mut self, group: &Group, op: Op, call: Call) -> Result<Option<Answer>, String> {
        let now = self.now();
        self.watch.sent(group, &op, now);
        self.say(|| format!("{group} {op:?}"));
        let engine = Arc::clone(&self.engine);
        let ask = StoreRequest {
            group: Some(group.clone()),
            op: op.clone(),
            call,
        };
        let mut under = Under {
            group: group.clone(),
            op,
            call,
            asked_at: self.now(),
            future: Box::pin(async move { engine.call(ask).await }),
            done: Vec::new(),
            at_once: Vec::new(),
        };
        let answer = self.poll(&mut under)?;
        if answer.is_none() {
            self.under.push(under);
        }
        Ok(answer)
    }

    /// Takes every call as far as it gets. Answers what was let out.
    pub(super) fn poll_all(&mut self) -> Result<Vec<Answer>, String> {
        let mut answers = Vec::new();
        for mut under in std::mem::take(&mut self.under) {
            match self.poll(&mut under)? {
                Some(answer) => answers.push(answer),
                None => self.under.push(under),
            }
        }
        Ok(answers)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under.is_empty()
    }

    fn poll(&mut self, under: &mut Under) -> Result<Option<Answer>, String> {
        drop(trace::take());
        let polled = under.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        for noted in trace::take() {
            self.say(|| format!("  {} {:?}: {noted:?}", under.group, under.op.verb()));
            self.note(under, noted);
        }
        let Poll::Ready(reply) = polled else { return Ok(None) };
        self.say(|| format!("  {} {:?} -> {reply:?}", under.group, under.op));
        self.check(under, &reply).map_err(|error| under.explain(&error))?;
        if let Ok(reply) = &reply {
            self.known
                .entry(under.group.clone())
                .or_default()
                .learn(&under.op, reply);
        }
        let noted = under.done.last().map(|(.., noted)| noted.now());
        let answer = Answer {
            group: under.group.clone(),
            op: under.op.clone(),
            asked_at: under.asked_at,
            at: noted.unwrap_or_else(|| self.now()),
            reply,
        };
        let now = self.now();
        self.watch.answer(&answer, now)?;
        Ok(Some(answer))
    }

    /// Takes what a call did on the model into the account.
    fn note(&mut self, under: &mut Under, noted: Noted) {
        let life = match self.lives.get(&under.group) {
            Some(life) => Arc::clone(life),
            None => {
                let Noted::Step { now, .. } = noted else { return };
                let life = Life::new(&under.group, &self.options, (now, self.wait), None);
                let life = Arc::new(Mutex::new(life));
                self.lives.insert(under.group.clone(), Arc::clone(&life));
                life
            }
        };
        let mut account = lock(&life);
        let at = account.entries.len();
        let (pulse, _) = self.engine.shared.pulse.read(|| noted.now());
        let entry = |op: Op, now, act| Entry { op, now, act, pulse };
        match &noted {
            Noted::Step { number, changed, now } => {
                let (number, fate) = (*number, Fate::Waits);
                let act = if *changed {
                    Act::Changed { number, fate }
                } else {
                    Act::Unchanged
                };
                if under.at_once.iter().all(Option::is_some) {
                    // What was heard at once is told with what was lost, and all of it is done again.
                    under.at_once.clear();
                }
                let op = part(&under.op, &under.at_once, false);
                account.entries.push(entry(op, *now, act));
            }
            Noted::Look { now, .. } => {
                if matches!(under.op, Op::Availability(_)) {
                    account.entries.push(entry(under.op.clone(), *now, Act::AtOnce));
                }
            }
            Noted::AtOnce { now, answered } => {
                // Those without an answer are asked for again when their step was refused; else these are all of the call.
                if under.at_once.iter().filter(|known| known.is_none()).count() != answered.len() {
                    under.at_once = vec![None; answered.len()];
                }
                let mut replies = answered.iter().map(|yes| yes.then(String::new));
                let known = under.at_once.iter();
                let mut heard: Vec<_> = known
                    .map(|known| known.is_none().then(|| replies.next()).flatten().flatten())
                    .collect();
                if !answered.contains(&true) {
                    return;
                }
                let op = part(&under.op, &heard, true);
                account.entries.push(entry(op, *now, Act::AtOnce));
                fill(&mut heard, account.answer(at).as_deref());
                for (known, heard) in under.at_once.iter_mut().zip(heard) {
                    *known = heard.or_else(|| known.take());
                }
            }
        }
        drop(account);
        under.done.push((life, at, noted));
    }

    /// The first half of the writer's turn, when there is work for it.
    fn begin_turn(&mut self) -> Option<Begun> {
        let queue = &self.engine.shared.queue;
        if queue.is_idle() {
            return None;
        }
        let writer = self.writer.as_mut()?;
        let work = queue.take(None);
        for cell in &work.torn {
            let _ = writer.mend(cell);
            if let Some(life) = self.lives.get(&cell.group) {
                lock(life).lose();
            }
        }
        work.wants_commit().then(|| writer.begin(work))
    }

    /// The second half.
    fn end_turn(&mut self, begun: Begun) {
        let Some(mut writer) = self.writer.take() else { return };
        // A broken disk ends the writer.
        self.writer = writer.complete(begun).is_ok().then_some(writer);
    }

    /// Lets the writer take what waits. Answers whether it has something to commit.
    pub(super) fn begin_commit(&mut self) -> bool {
        if self.begun.is_none() {
            self.begun = self.begin_turn();
        }
        self.begun.is_some()
    }

    /// Ends the commit that has begun, with this luck, and notes the fate of what was in it.
    pub(super) fn end_commit(&mut self, luck: Luck) {
        let Some(begun) = self.begun.take() else { return };
        let batches = begun.commit.batches.iter().zip(&begun.shares);
        let batches = batches.map(|(batch, (_, number))| (batch.group.clone(), *number, batch.forgotten));
        let batches: Vec<(Group, u64, bool)> = batches.collect();
        self.say(|| format!("commit {luck:?}: {batches:?}"));
        self.platter.state().luck = luck;
        self.end_turn(begun);
        self.platter.state().luck = Luck::Good;
        for (group, number, forgotten) in batches {
            let Some(life) = self.lives.get(&group).map(Arc::clone) else {
                continue;
            };
            let mut account = lock(&life);
            if luck.keeps() {
                account.keep(number);
            }
            if luck != Luck::Good {
                account.lose();
            }
            let is_gone = (forgotten && luck.keeps()) || !(account.is_kept() || account.has(Fate::Waits));
            drop(account);
            if is_gone {
                self.lives.remove(&group);
            }
        }
    }

    /// A whole commit, if there is anything to commit.
    pub(super) fn commit(&mut self, luck: Luck) -> Result<Vec<Answer>, String> {
        if self.begin_commit() {
            self.end_commit(luck);
        }
        self.poll_all()
    }

    /// Commits until nothing is under way.
    pub(super) fn settle(&mut self) -> Result<Vec<Answer>, String> {
        let mut answers = self.poll_all()?;
        while self.begin_commit() || !self.is_idle() {
            let before = self.under.len();
            let moved = self.begun.is_some();
            answers.extend(self.commit(Luck::Good)?);
            if !moved && self.under.len() == before {
                let calls: Vec<&Op> = self.under.iter().map(|under| &under.op).collect();
                return Err(format!("these calls wait for nothing that comes: {calls:?}"));
            }
        }
        Ok(answers)
    }

    /// Beats are taken.
    pub(super) fn serve(&self) {
        let shared = &self.engine.shared;
        shared.pulse.beat(|| shared.clock.now(), 0);
    }

    /// Lets time pass while beats are taken. Groups are visited as by a sweeper.
    pub(super) fn pass(&mut self, by: Duration) -> Result<Vec<Answer>, String> {
        let (step, mut left, mut answers) = (Duration::from_millis(120), by, Vec::new());
        while !left.is_zero() {
            let part = left.min(step);
            self.clock.advance(part);
            self.serve();
            left -= part;
            for group in self.lives.keys().cloned().collect::<Vec<_>>() {
                answers.extend(self.ask(&group, Op::Tick(Tick::default()), Call::default())?);
            }
        }
        Ok(answers)
    }

    /// Time passes, and nothing is served.
    pub(super) fn outage(&mut self, time: Duration) {
        self.clock.advance(time);
        self.watch.gap();
    }

    /// The writer ends, for any reason.
    pub(super) fn end_writer(&mut self) {
        self.writer = None;
        for life in self.lives.values() {
            lock(life).lose();
        }
    }

    /// Polls a future that is not a call.
    pub(super) fn poll_once<F: Future>(future: F) -> Option<F::Output> {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    /// Clients know that the store has lost something: they begin again.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.watch.forget();
    }

    /// The process is killed, and another one takes the disk after this time.
    pub(super) fn restart(&mut self, after: Duration) {
        self.under.clear();
        self.begun = None;
        self.outage(after);
        let (engine, writer) = start(&self.options, &self.clock, &self.platter);
        drop((std::mem::replace(&mut self.engine, engine), self.writer.replace(writer)));
        self.serve();
        let began = self.now();
        let mut recall = self.platter.state().image.recall;
        self.wait = recall.wait(began, self.options.max_ttl);
        let stored: Vec<(Group, Stored)> = {
            let state = self.platter.state();
            let groups = state.image.groups.iter();
            groups.map(|(group, stored)| (group.clone(), stored.clone())).collect()
        };
        self.lives.clear();
        for (group, stored) in stored {
            let life = Life::new(&group, &self.options, (began, self.wait), Some(stored));
            self.lives.insert(group, Arc::new(Mutex::new(life)));
        }
    }
}
