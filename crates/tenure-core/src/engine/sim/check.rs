//! An answer that was let out against what a model says that has only what is durable.

use std::sync::Arc;
use std::time::Duration;

use super::judge::{Act, Entry, Fate, Life, same};
use super::world::{Done, Under, World, lock};
use crate::call::{Op, Reply};
use crate::engine::trace::Noted;
use crate::error::{Outcome, Result};
use crate::membership::{BeatReplies, BeatReply, Beats};
use crate::memory::{Decide, GroupModel};
use crate::roster::{Availability, BeatProviders, CountAvailable};
use crate::store::Call;
use crate::time::StoreTime;

impl World {
    /// Compares an answer with what the model says that has only what is durable now.
    pub(super) fn check(&mut self, under: &Under, reply: &Result<Reply>) -> Result<(), String> {
        self.check_outcome(under, reply)?;
        if reply.as_ref().is_err_and(|error| error.is_unavailable()) || under.call.not_after.is_some() {
            return Ok(());
        }
        self.compared += 1;
        let Some((home, at, noted)) = under.done.last() else {
            return self.check_absent(under, reply);
        };
        let mut life = lock(home);
        if !matches!(noted, Noted::Step { .. }) && !life.is_kept() {
            // Whatever it saw was lost with the group, so it looked again when it was let out.
            return self.check_absent(under, reply);
        }
        let of_this_life = under.done.iter().filter(|(life, ..)| Arc::ptr_eq(life, home));
        let steps = of_this_life
            .clone()
            .filter(|(.., noted)| matches!(noted, Noted::Step { .. }));
        // Earlier steps were lost, and made again.
        let forgot = matches!((&under.op, reply), (Op::ForgetGroup(_), Ok(Reply::ForgetGroup(true))));
        if forgot && !life.is_kept() {
            // Its group was lost before it was made again, so there was none.
            return Ok(());
        }
        // A beat whose step was refused is answered without one if it can be, and refused if not.
        if !matches!(noted, Noted::AtOnce { .. })
            && !refuses_beats(reply)
            && let Some((_, at, _)) = steps.clone().next_back()
            && matches!(life.entries[*at].act, Act::Changed { fate, .. } if fate != Fate::Durable)
        {
            return Err(format!("answered {reply:?}, though its step is not durable"));
        }
        match (&under.op, noted) {
            (Op::Beat(_) | Op::Heartbeat(_), _) => {
                let step = steps.clone().next_back().and_then(|(_, at, _)| life.answer(*at));
                let mut at_once = under.at_once.clone();
                let is = |(.., noted): &&Done| matches!(noted, Noted::AtOnce { .. });
                // Beats are let out with what was durable when they came, heartbeats with what is now.
                if let (Op::Heartbeat(_), Some((_, at, _))) = (&under.op, of_this_life.clone().rfind(is)) {
                    fill(&mut at_once, life.answer(*at).as_deref());
                }
                check_items(&at_once, reply, step.as_deref())
            }
            (Op::Events(_), _) => Ok(()),
            (Op::Availability(ask), Noted::Look { now, .. }) => check_count(&mut life, *at, *now, ask.snapshot, reply),
            (op, Noted::Look { now, pulse }) => {
                let look = |model: &mut GroupModel| {
                    model.take_pulse(*pulse);
                    model.look_up(op, *now)
                };
                let expected = life.ask(*at, look);
                same("a look", reply, &expected)
            }
            _ => match life.answer(*at) {
                Some(expected) => same("a step", reply, &expected),
                None => Err(format!("answered {reply:?}, though something before it waits")),
            },
        }
    }

    /// A group that is not there reads as an empty one.
    fn check_absent(&self, under: &Under, reply: &Result<Reply>) -> Result<(), String> {
        if !under.op.is_read() || matches!(under.op, Op::Events(_) | Op::WaitForEvents(_) | Op::Availability(_)) {
            return Ok(());
        }
        let now = self.now();
        let absent = GroupModel::absent(self.options.clone(), now);
        same("a group that is not there", reply, &absent.look_up(&under.op, now))
    }

    /// What an error says of the outcome is true.
    fn check_outcome(&self, under: &Under, reply: &Result<Reply>) -> Result<(), String> {
        let (unavailable, outcome) = match reply {
            Err(error) => (error.is_unavailable(), error.outcome()),
            Ok(_) if refuses_beats(reply) => (true, Outcome::Unchanged),
            Ok(_) => return Ok(()),
        };
        for (life, at, noted) in &under.done {
            let is = match lock(life).entries.get(*at) {
                Some(Entry {
                    act: Act::Changed { fate, .. },
                    ..
                }) if matches!(noted, Noted::Step { .. }) => *fate,
                _ => continue,
            };
            let honest = match is {
                Fate::Lost => true,
                // A refusal of the model may have changed what time alone decided.
                Fate::Durable => !unavailable || outcome == Outcome::Unknown,
                Fate::Waits => outcome == Outcome::Unknown,
            };
            if !honest {
                return Err(format!("told {reply:?}, but its step is {is:?}"));
            }
        }
        Ok(())
    }
}

/// The items of a call that were answered at once, or those that were not.
pub(super) fn part(op: &Op, at_once: &[Option<String>], answered: bool) -> Op {
    let wanted = |n: usize| at_once.get(n).is_some_and(Option::is_some) == answered;
    match op {
        Op::Beat(Beats { beats }) => {
            let beats = beats.iter().enumerate().filter(|(n, _)| wanted(*n));
            Op::Beat(Beats {
                beats: beats.map(|(_, beat)| beat.clone()).collect(),
            })
        }
        Op::Heartbeat(BeatProviders { heartbeats }) => {
            let heartbeats = heartbeats.iter().enumerate().filter(|(n, _)| wanted(*n));
            Op::Heartbeat(BeatProviders {
                heartbeats: heartbeats.map(|(_, heartbeat)| heartbeat.clone()).collect(),
            })
        }
        op => op.clone(),
    }
}

/// Whether some beats of a call were refused, and others answered.
fn refuses_beats(reply: &Result<Reply>) -> bool {
    matches!(reply, Ok(Reply::Beat(beaten)) if beaten.replies.contains(&BeatReply::Refused))
}

/// What each item of a call was answered.
fn items(reply: &Result<Reply>) -> Vec<String> {
    match reply {
        Ok(Reply::Beat(BeatReplies { replies, .. })) => replies.iter().map(|reply| format!("{reply:?}")).collect(),
        Ok(Reply::Heartbeat(heard)) => heard.replies.iter().map(|reply| format!("{reply:?}")).collect(),
        _ => Vec::new(),
    }
}

/// Notes what the items that were answered at once should have been answered.
pub(super) fn fill(at_once: &mut [Option<String>], reply: Option<&Result<Reply>>) {
    let shown = reply.map(items).unwrap_or_default();
    for (place, shown) in at_once.iter_mut().flatten().zip(shown) {
        *place = shown;
    }
}

/// A count may be an earlier one, for as long as the caller allows: it is what there was then.
fn check_count(
    life: &mut Life,
    at: usize,
    now: StoreTime,
    allowed: Duration,
    reply: &Result<Reply>,
) -> Result<(), String> {
    let Ok(Reply::Availability(seen)) = reply else {
        return Err(format!("answered {reply:?}"));
    };
    let is = |entry: &Entry| matches!(entry.op, Op::Availability(_)) && entry.now == seen.as_of;
    let counted = life.entries[..=at]
        .iter()
        .rposition(is)
        .ok_or("nothing was counted then")?;
    let fresh = seen.as_of == now || now.since(seen.as_of) < allowed;
    let snapshot = Duration::ZERO;
    let pulse = life.entries[counted].pulse;
    let count = |model: &mut GroupModel| {
        model.take_pulse(pulse);
        model.step(&CountAvailable { snapshot }, Call::default(), seen.as_of)
    };
    let pulse = life.entries[at].pulse;
    let stamp = |model: &mut GroupModel| {
        model.take_pulse(pulse);
        model.mirror_status(now)
    };
    let expected = Availability {
        mirror: life.ask(at, stamp),
        ..life.ask(counted, count).map_err(|error| error.to_string())?
    };
    match fresh {
        true => same("a count", reply, &Ok(Reply::Availability(expected))),
        false => Err(format!("at {now} a count is too old: {seen:?}")),
    }
}

/// Each item was answered as it should have been at once, or by the step, or refused if that was lost.
fn check_items(at_once: &[Option<String>], reply: &Result<Reply>, step: Option<&Result<Reply>>) -> Result<(), String> {
    let mut slow = step.map(items).unwrap_or_default().into_iter();
    let expected = |n: usize| match at_once.get(n) {
        Some(Some(expected)) => expected.clone(),
        _ => slow.next().unwrap_or_default(),
    };
    let seen = items(reply);
    let expected: Vec<String> = (0..seen.len()).map(expected).collect();
    let refused = format!("{:?}", BeatReply::Refused);
    let mut pairs = seen.iter().zip(&expected).enumerate();
    let fits = |(n, (seen, expected)): (usize, (&String, &String))| {
        seen == expected || *seen == refused && matches!(at_once.get(n), None | Some(None))
    };
    match pairs.all(fits) && !seen.is_empty() {
        true => Ok(()),
        false => Err(format!("answered {reply:?}, not {expected:?}")),
    }
}
