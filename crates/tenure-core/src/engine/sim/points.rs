//! The conditions under which "apply at once, answer when durable" is safe, with at least one test each.

mod bounded;
mod failing;
mod waiting;

use std::time::Duration;

use super::disk::Luck;
use super::draw::{ALL, key, lease, member, ms};
use super::gate::{calls, groups, options};
use super::world::World;
use crate::call::{Op, Reply};
use crate::conformance::Chance;
use crate::error::{ErrorKind, Outcome, Result};
use crate::event::{EventId, EventQuery, WaitForEvents};
use crate::id::{Group, RegistryName, TenureId};
use crate::lease::{Acquire, AcquireOutcome, Leases};
use crate::membership::{Beat, BeatReply, Beats, End, EndBy, Join, Labels, Member, MemberOf, Members, Revision};
use crate::memory::rows::{Row, RowKey};
use crate::registry::{ClaimKeys, ClaimMode};
use crate::store::{Call, Health};
use crate::sweep::{GroupStatus, Status};

fn g() -> Group {
    groups()[0].clone()
}

/// Asks, and lets commits succeed until it is answered.
#[track_caller]
fn get(world: &mut World, op: Op) -> Result<Reply> {
    world.clock.advance(ms(1));
    match world.ask(&g(), op, Call::default()).unwrap() {
        Some(answer) => answer.reply,
        None => world.settle().unwrap().pop().expect("an answer").reply,
    }
}

/// Makes a call that must wait.
#[track_caller]
fn waits(world: &mut World, group: &Group, op: Op) {
    world.clock.advance(ms(1));
    let answer = world.ask(group, op, Call::default()).unwrap();
    assert!(answer.is_none(), "answered {:?}", answer.map(|answer| answer.reply));
}

/// Makes a call that must be answered without waiting.
#[track_caller]
fn at_once(world: &mut World, op: Op) -> Result<Reply> {
    let answer = world.ask(&g(), op, Call::default()).unwrap();
    answer.expect("an answer at once").reply
}

fn join(n: usize, ttl: Duration) -> Op {
    Op::Join(Join {
        member: member(n),
        ttl,
        labels: Labels::default(),
    })
}

#[track_caller]
fn joined(world: &mut World, n: usize) -> TenureId {
    match get(world, join(n, ms(2_000))) {
        Ok(Reply::Join(joined)) => joined.tenure,
        other => panic!("{other:?}"),
    }
}

fn beat(tenure: &TenureId, ttl: Option<Duration>) -> Op {
    let (tenure, revision) = (tenure.clone(), Revision::NONE);
    Op::Beat(Beats {
        beats: vec![Beat {
            tenure,
            ttl,
            revision,
            seen: Revision::NONE,
        }],
    })
}

fn acquire(tenure: &TenureId, n: usize) -> Op {
    Op::Acquire(Acquire::new(tenure.clone(), vec![lease(n)]))
}

#[track_caller]
fn looked_up(world: &mut World, n: usize) -> Member {
    match at_once(world, Op::Member(MemberOf { member: member(n) })) {
        Ok(Reply::Member(Some(member))) => member,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn status(world: &mut World) -> GroupStatus {
    match at_once(world, Op::Status(Status)) {
        Ok(Reply::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}
