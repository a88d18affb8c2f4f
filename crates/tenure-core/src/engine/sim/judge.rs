//! The judge: what was applied to a group, in order, and what a model says that has only what is durable.
//!
//! That model is a plain one. It notes nothing, hands out no rows and is never put back, so what it says is not made by
//! the means under test.

use std::sync::Arc;

use super::disk::Stored;
use crate::call::{Op, Reply};
use crate::error::Result;
use crate::id::Group;
use crate::membership::{Beat, BeatReply, Beats, MemberOf, Revision};
use crate::memory::GroupModel;
use crate::pulse::KeptPulse;
use crate::roster::{BeatProviders, EnsureTenures, HeartbeatReply};
use crate::store::{Call, StoreOptions};
use crate::sweep::{SettleReport, Unsettled};
use crate::time::StoreTime;

/// The fate of a step that changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Waits,
    Durable,
    Lost,
}

/// Something that was applied.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Changed {
        number: u64,
        fate: Fate,
    },
    Unchanged,
    /// Answered from memory, without a step.
    AtOnce,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) op: Op,
    pub(super) now: StoreTime,
    pub(super) act: Act,
    /// The pulse of the engine then.
    pub(super) pulse: KeptPulse,
}

/// What a model answered.
type Answer = Arc<Result<Reply>>;

/// One life of a group: from its first step, or from a start of the engine, until it is removed or the engine ends.
#[derive(Debug)]
pub(super) struct Life {
    group: Group,
    options: StoreOptions,
    began: StoreTime,
    /// What the disk had when this life began; `None` for a new group.
    stored: Option<Stored>,
    /// Until when the whole store may have forgotten something.
    wait: Option<Unsettled>,
    pub(super) entries: Vec<Entry>,
    /// The model after the entries whose fate is known, up to the first that waits, and what each of them was answered.
    done: GroupModel,
    answers: Vec<Option<Answer>>,
}

impl Life {
    pub(super) fn new(
        group: &Group,
        options: &StoreOptions,
        (began, wait): (StoreTime, Option<Unsettled>),
        stored: Option<Stored>,
    ) -> Self {
        Self {
            group: group.clone(),
            options: options.clone(),
            began,
            done: beginning(options, began, stored.as_ref()),
            stored,
            wait,
            entries: Vec::new(),
            answers: Vec::new(),
        }
    }

    pub(super) fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Whether it has a row on the disk: that of a start, or a durable step.
    pub(super) fn is_kept(&self) -> bool {
        self.stored.is_some() || self.has(Fate::Durable)
    }

    pub(super) fn has(&self, wanted: Fate) -> bool {
        let is = |entry: &Entry| matches!(entry.act, Act::Changed { fate, .. } if fate == wanted);
        self.entries.iter().any(is)
    }

    /// Steps that wait are durable, up to a number.
    pub(super) fn keep(&mut self, up_to: u64) {
        for entry in &mut self.entries {
            if let Act::Changed { number, fate } = &mut entry.act
                && *fate == Fate::Waits
                && *number <= up_to
            {
                *fate = Fate::Durable;
            }
        }
    }

    /// All steps that wait are lost, and with them what saw them and changed nothing: it is done again.
    pub(super) fn lose(&mut self) {
        let waits = |entry: &Entry| matches!(entry.act, Act::Changed { fate: Fate::Waits, .. });
        let first = self.entries.iter().position(waits).unwrap_or(self.entries.len());
        // With all of them, to learn which beats were heard: those stay heard.
        let mut model = self.fresh(first);
        for n in first..self.entries.len() {
            let entry = &self.entries[n];
            if matches!(entry.act, Act::AtOnce) {
                drop(self.replay(&mut model, n));
                continue;
            }
            let op = heard(&entry.op, &self.step(&mut model, entry));
            let (number, fate) = (0, Fate::Lost);
            let act = Act::Changed { number, fate };
            let (now, pulse) = (entry.now, entry.pulse);
            self.entries[n] = Entry { op, now, act, pulse };
        }
    }

    /// Asks the model with what is durable now of the first entries, and with what beats have renewed.
    pub(super) fn ask<T>(&mut self, entries: usize, ask: impl FnOnce(&mut GroupModel) -> T) -> T {
        self.advance();
        if self.answers.len() == entries {
            return ask(&mut self.done);
        }
        ask(&mut self.fresh(entries))
    }

    /// The same model, made from the beginning.
    fn fresh(&self, entries: usize) -> GroupModel {
        let mut model = beginning(&self.options, self.began, self.stored.as_ref());
        let mut suffix = false;
        for (n, entry) in self.entries[..entries].iter().enumerate() {
            match entry.act {
                Act::Changed { fate: Fate::Waits, .. } => {
                    suffix = true;
                    // A beat was heard, whatever becomes of its step.
                    renew(&mut model, entry);
                }
                Act::Unchanged if suffix => renew(&mut model, entry),
                _ => drop(self.replay(&mut model, n)),
            }
        }
        model
    }

    /// What an entry is answered by a model that has what came before it and is durable.
    pub(super) fn answer(&mut self, at: usize) -> Option<Answer> {
        self.advance();
        if let Some(Some(answer)) = self.answers.get(at) {
            return Some(Arc::clone(answer));
        }
        let entry = &self.entries[at];
        match entry.act {
            Act::AtOnce => {
                let mut model = self.fresh(at);
                model.take_pulse(entry.pulse);
                meet_gap(&mut model, entry);
                Some(Arc::new(decide(&mut model, &self.group, entry)))
            }
            // It waits, or is lost.
            Act::Changed { .. } | Act::Unchanged => None,
        }
    }

    /// Takes the entries whose fate is known into the model, up to the first that waits.
    fn advance(&mut self) {
        let mut model = std::mem::replace(&mut self.done, GroupModel::new(self.options.clone(), self.began));
        while let Some(entry) = self.entries.get(self.answers.len())
            && !matches!(entry.act, Act::Changed { fate: Fate::Waits, .. })
        {
            let answer = self.replay(&mut model, self.answers.len());
            self.answers.push(answer.map(Arc::new));
        }
        self.done = model;
    }

    /// Does to a model what an entry does to what is durable.
    fn replay(&self, model: &mut GroupModel, n: usize) -> Option<Result<Reply>> {
        let entry = &self.entries[n];
        model.take_pulse(entry.pulse);
        match entry.act {
            Act::Changed { fate: Fate::Lost, .. } => {
                renew(model, entry);
                None
            }
            Act::Changed { .. } | Act::Unchanged => Some(self.step(model, entry)),
            // Only what is answered without a step: a step also engages the brake.
            Act::AtOnce if matches!(entry.op, Op::Beat(_) | Op::Heartbeat(_)) => {
                renew(model, entry);
                None
            }
            Act::AtOnce => Some(decide(model, &self.group, entry)),
        }
    }

    /// A step of the engine notices a gap, and then begins the wait of the whole store.
    fn step(&self, model: &mut GroupModel, entry: &Entry) -> Result<Reply> {
        if let Some(wait) = self.wait.filter(|wait| entry.now < wait.until)
            && model.open(entry.now, Call::default()).is_ok()
        {
            model.wait(wait, entry.now);
        }
        decide(model, &self.group, entry)
    }
}

fn beginning(options: &StoreOptions, began: StoreTime, stored: Option<&Stored>) -> GroupModel {
    match stored {
        None => GroupModel::new(options.clone(), began).kept(),
        Some(Stored { row, rows, .. }) => GroupModel::load(options.clone(), *row, rows.clone(), began),
    }
}

fn decide(model: &mut GroupModel, group: &Group, entry: &Entry) -> Result<Reply> {
    let now = entry.now;
    match &entry.op {
        Op::Settle(ask) => {
            let mut report = SettleReport::default();
            report.add(group.clone(), model.settle(ask.cause, Call::default(), now)?);
            Ok(Reply::Settle(report))
        }
        op => model.decide(op, Call::default(), now),
    }
}

/// A step with those of its beats that found their tenure alive.
fn heard(op: &Op, reply: &Result<Reply>) -> Op {
    match (op, reply) {
        (Op::Beat(Beats { beats }), Ok(Reply::Beat(beaten))) => {
            let renewed = beats.iter().zip(&beaten.replies);
            let renewed = renewed.filter(|(_, reply)| matches!(reply, BeatReply::Renewed { .. }));
            Op::Beat(Beats {
                beats: renewed.map(|(beat, _)| beat.clone()).collect(),
            })
        }
        (Op::Heartbeat(BeatProviders { heartbeats }), Ok(Reply::Heartbeat(answered))) => {
            let recorded = heartbeats.iter().zip(&answered.replies);
            let recorded = recorded.filter(|(_, reply)| **reply == HeartbeatReply::Recorded);
            Op::Heartbeat(BeatProviders {
                heartbeats: recorded.map(|(heartbeat, _)| heartbeat.clone()).collect(),
            })
        }
        _ => op.clone(),
    }
}

/// A lost step has met the gap of what was answered without a step. A beat that came soon after looked for none.
fn meet_gap(model: &mut GroupModel, entry: &Entry) {
    match entry.op {
        Op::Heartbeat(_) => model.resume_unwritten(entry.now),
        _ => model.resume_if_far(entry.now),
    }
}

/// A step that was lost with all that it changed, but for the beats in it: they were heard.
fn renew(model: &mut GroupModel, entry: &Entry) {
    model.take_pulse(entry.pulse);
    meet_gap(model, entry);
    match &entry.op {
        Op::Beat(Beats { beats }) => {
            for beat in beats {
                let plain = Beat {
                    ttl: None,
                    revision: Revision::NONE,
                    ..beat.clone()
                };
                model.beat_at_once(&plain, entry.now);
            }
        }
        Op::Heartbeat(BeatProviders { heartbeats }) => {
            for heartbeat in heartbeats {
                model.heartbeat_at_once(heartbeat, entry.now);
            }
        }
        Op::EnsureTenures(EnsureTenures {
            providers, beat: true, ..
        }) => {
            for provider in providers {
                let member = provider.member();
                let seen = model.look_up(&Op::Member(MemberOf { member }), entry.now);
                if let Ok(Reply::Member(Some(seen))) = seen {
                    let (tenure, ttl, revision) = (seen.tenure, None, Revision::NONE);
                    let beat = Beat {
                        tenure,
                        ttl,
                        revision,
                        seen: Revision::NONE,
                    };
                    model.beat_at_once(&beat, entry.now);
                }
            }
        }
        _ => {}
    }
}

/// An answer without what depends on the order of an index alone, or on what no caller is promised.
fn shown(reply: &Result<Reply>) -> String {
    let hidden = ["next_due:", "empty_since:"];
    let Ok(Reply::EndLapsed(batch)) = reply else {
        return shown_without(reply, &hidden);
    };
    let mut batch = batch.clone();
    batch.ended.sort();
    shown_without(&Ok(Reply::EndLapsed(batch)), &hidden)
}

/// An answer without the fields of these names.
pub(super) fn shown_without(reply: &Result<Reply>, hidden: &[&str]) -> String {
    let text = match reply {
        Ok(reply) => format!("{reply:#?}"),
        Err(error) => format!("{:?} {:?}", error.kind(), error.outcome()),
    };
    let mut lines = text.lines();
    let mut kept = Vec::new();
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        if !hidden.iter().any(|name| text.starts_with(name)) {
            kept.push(line);
            continue;
        }
        // A value of several lines ends with a line that is indented as its name.
        if line.ends_with('(') || line.ends_with('{') {
            let indent = line.len() - text.len();
            let _ = lines
                .by_ref()
                .find(|line| line.len() - line.trim_start().len() <= indent);
        }
    }
    kept.join("\n")
}

/// Says how two answers differ, if they do.
pub(super) fn same(what: &str, seen: &Result<Reply>, expected: &Result<Reply>) -> Result<(), String> {
    if let (Ok(seen), Ok(expected)) = (seen, expected)
        && seen == expected
    {
        return Ok(());
    }
    let (seen, expected) = (shown(seen), shown(expected));
    if seen == expected {
        return Ok(());
    }
    let first = seen.lines().zip(expected.lines()).find(|(a, b)| a != b);
    Err(format!(
        "{what}: the store says {seen}\nand with what is durable it is {expected}\nfirst: {first:?}"
    ))
}
