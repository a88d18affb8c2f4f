//! Beats and heartbeats: answered from memory where nothing but a deadline changes, and by steps where more does.

use std::collections::HashSet;
use std::sync::Arc;

use super::Shared;
use super::step::{Attempt, finish};
#[cfg(test)]
use super::trace::{self, Noted};
use crate::call::{Op, Reply};
use crate::error::{Error, Outcome, Result};
use crate::id::Group;
use crate::membership::{Beat, BeatReplies, BeatReply, Beats};
use crate::memory::{Decide, GroupModel};
use crate::roster::{BeatProviders, Heartbeat, HeartbeatReply, Heartbeats, MirrorStatus};
use crate::store::Call;
use crate::sweep::BATCH;
use crate::time::StoreTime;

impl Shared {
    /// Answers beats of any number.
    pub(super) async fn beat(self: &Arc<Self>, group: &Group, beats: &[Beat]) -> Result<BeatReplies> {
        self.service.check()?;
        let (mut as_of, mut replies) = match self.beat_at_once(group, beats, GroupModel::beat_at_once) {
            Some((now, replies)) => (Some(now), replies),
            None => (None, vec![None; beats.len()]),
        };
        self.keep_time(as_of.unwrap_or_else(|| self.clock.now()));
        as_of = as_of.filter(|_| replies.iter().any(Option::is_some));
        let mut refused = None;
        for part in parts(&replies) {
            let slow: Vec<Beat> = part.iter().map(|n| beats[*n].clone()).collect();
            let ask = Beats { beats: slow };
            let step = |model: &mut GroupModel, now| self.beat_in_step(model, &ask, now);
            let done = match refused {
                // One refusal is enough: each attempt is a write to a disk that may be full.
                Some(_) => self.renew(group, &ask.beats),
                // Boxed: the futures of beats that take no step stay small.
                None => match Box::pin(self.step(group, Call::default(), step)).await {
                    Err(error) if is_unchanged(&error) => {
                        self.service.check()?;
                        refused = Some(error);
                        self.renew(group, &ask.beats)
                    }
                    done => done?,
                },
            };
            // The earliest time of the parts: what expires is then told too early rather than too late.
            as_of.get_or_insert(done.as_of);
            for (n, reply) in part.into_iter().zip(done.replies) {
                replies[n] = Some(reply);
            }
        }
        let replies = replies.into_iter().map(|reply| reply.unwrap_or(BeatReply::Unknown));
        let replies: Vec<_> = replies.collect();
        match refused {
            // Without a beat there is none that is refused.
            Some(error) if !replies.is_empty() && replies.iter().all(|reply| *reply == BeatReply::Refused) => {
                Err(error)
            }
            _ => Ok(BeatReplies {
                replies,
                as_of: as_of.unwrap_or_else(|| self.clock.now()),
            }),
        }
    }

    /// Answers the beats that take no step, after a step was refused: what they came across may be undone by now.
    fn renew(&self, group: &Group, beats: &[Beat]) -> BeatReplies {
        let renew = |model: &mut GroupModel, beat: &Beat, now| {
            model.resume_unwritten(now);
            model.beat_unwritten(beat, now)
        };
        let answered = self.beat_at_once(group, beats, renew);
        let (as_of, replies) = answered.unwrap_or_else(|| (self.clock.now(), vec![None; beats.len()]));
        let replies = replies.into_iter().map(|reply| reply.unwrap_or(BeatReply::Refused));
        BeatReplies {
            replies: replies.collect(),
            as_of,
        }
    }

    /// Renews tenures of which only the deadline changes, and names durable ends. `None` for a beat that takes a step; for
    /// all of them when the group does not exist.
    fn beat_at_once(
        &self,
        group: &Group,
        beats: &[Beat],
        renew: impl Fn(&mut GroupModel, &Beat, StoreTime) -> Option<BeatReply>,
    ) -> Option<(StoreTime, Vec<Option<BeatReply>>)> {
        let cell = self.groups.find(group)?;
        let mut state = cell.lock();
        if state.detour().is_some() {
            return None;
        }
        let (pulse, now) = self.pulse.read(|| self.clock.now());
        state.model.take_pulse(pulse);
        // A number that was never given out may mark an older copy, which changes the end times of all others.
        if state.model.number_never_given(beats, now).is_some() && self.doubts.believes(now) {
            return None;
        }
        // A beat with a new ttl takes a step, and so do the later ones of that tenure: they count from the new ttl.
        let mut changing = HashSet::new();
        let replies = beats.iter().map(|beat| {
            if !changing.is_empty() && changing.contains(&beat.tenure) {
                return None;
            }
            let reply = renew(&mut state.model, beat, now);
            if reply.is_none() && beat.ttl.is_some() {
                changing.insert(&beat.tenure);
            }
            reply
        });
        let replies: Vec<_> = replies.collect();
        #[cfg(test)]
        trace::note(Noted::at_once(now, &replies));
        Some((now, replies))
    }

    fn beat_in_step(&self, model: &mut GroupModel, ask: &Beats, now: StoreTime) -> Result<BeatReplies> {
        self.note_never_given(model, model.number_never_given(&ask.beats, now), now);
        model.step(ask, Call::default(), now)
    }

    /// A number that was never given out may mark an older copy.
    fn note_never_given(&self, model: &mut GroupModel, number: Option<u64>, now: StoreTime) {
        if let Some(number) = number
            && self.doubts.believe(now)
        {
            model.note_lost_end(number, now);
            if let Some(wait) = self.doubts.wait(now) {
                model.wait(wait, now);
            }
        }
    }

    /// Takes a step that may name the highest revision that its caller has seen.
    pub(super) fn decide(&self, model: &mut GroupModel, op: &Op, call: Call, now: StoreTime) -> Result<Reply> {
        let named = match op {
            Op::Acquire(ask) => Some((&ask.tenure, ask.seen)),
            Op::ReleaseLeases(ask) => Some((&ask.tenure, ask.seen)),
            _ => None,
        };
        let number = named.and_then(|(tenure, seen)| model.revision_never_given(tenure, seen, now));
        if call.check(now).is_ok() {
            self.note_never_given(model, number, now);
        }
        model.decide(op, call, now)
    }

    /// Answers heartbeats of any number.
    pub(super) async fn heartbeat(self: &Arc<Self>, group: &Group, heartbeats: &[Heartbeat]) -> Result<Heartbeats> {
        self.service.check()?;
        let heard = match self.heartbeats_at_once(group, heartbeats, false) {
            Some(attempt) => finish(attempt).await?,
            None => None,
        };
        let (mut stamp, mut replies) = match heard {
            Some((stamp, replies)) => (Some(stamp), replies),
            None => (None, vec![None; heartbeats.len()]),
        };
        self.keep_time(self.clock.now());
        for part in parts(&replies) {
            let slow: Vec<Heartbeat> = part.iter().map(|n| heartbeats[*n].clone()).collect();
            let ask = BeatProviders { heartbeats: slow };
            let step = |model: &mut GroupModel, now| model.step(&ask, Call::default(), now);
            let heard = match self.step(group, Call::default(), step).await {
                Err(refused) if is_unchanged(&refused) => self.record(group, &ask.heartbeats).await?.ok_or(refused)?,
                heard => heard?,
            };
            stamp = Some(heard.mirror);
            for (n, reply) in part.into_iter().zip(heard.replies) {
                replies[n] = Some(reply);
            }
        }
        let replies = replies
            .into_iter()
            .map(|reply| reply.unwrap_or(HeartbeatReply::Unknown));
        let replies = replies.collect();
        let stamp = match stamp {
            Some(stamp) => stamp,
            None => self.absent().mirror_status(self.clock.now()),
        };
        Ok(Heartbeats { replies, mirror: stamp })
    }

    /// Records heartbeats, if none of them takes a step.
    async fn record(&self, group: &Group, heartbeats: &[Heartbeat]) -> Result<Option<Heartbeats>> {
        self.service.check()?;
        let Some(attempt) = self.heartbeats_at_once(group, heartbeats, true) else {
            return Ok(None);
        };
        let heard = finish(attempt).await?.and_then(|(mirror, replies)| {
            let replies = replies.into_iter().collect::<Option<_>>()?;
            Some(Heartbeats { replies, mirror })
        });
        Ok(heard)
    }

    /// Records heartbeats that change only a deadline; `unwritten` meets a gap in memory, because no step is taken. The
    /// stamp may depend on undurable changes.
    fn heartbeats_at_once(
        &self,
        group: &Group,
        heartbeats: &[Heartbeat],
        unwritten: bool,
    ) -> Option<Attempt<(MirrorStatus, Vec<Option<HeartbeatReply>>)>> {
        let cell = self.groups.find(group)?;
        let mut state = cell.lock();
        if state.detour().is_some() {
            return None;
        }
        let (pulse, now) = self.pulse.read(|| self.clock.now());
        state.model.take_pulse(pulse);
        if unwritten {
            state.model.resume_unwritten(now);
        }
        state.model.begin_look();
        let heard = heartbeats
            .iter()
            .map(|heartbeat| state.model.heartbeat_at_once(heartbeat, now));
        let replies: Vec<_> = heard.collect();
        #[cfg(test)]
        trace::note(Noted::at_once(now, &replies));
        Some(Attempt::Done {
            reply: (state.model.mirror_status(now), replies),
            changed: false,
            gate: state.gate_of_look(),
        })
    }
}

fn is_unchanged(error: &Error) -> bool {
    error.outcome() == Outcome::Unchanged
}

/// The places that are not answered yet, in parts that one step takes. An empty call is a step as well: it looks for a gap.
fn parts<T>(replies: &[Option<T>]) -> Vec<Vec<usize>> {
    let left: Vec<usize> = (0..replies.len()).filter(|n| replies[*n].is_none()).collect();
    let parts = left.chunks(BATCH as usize).map(<[usize]>::to_vec);
    parts.chain(replies.is_empty().then(Vec::new)).collect()
}
