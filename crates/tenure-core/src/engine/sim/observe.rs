//! The disk against the model: what the disk has is what was acknowledged, and what memory has is what the disk has.

use std::time::Duration;

use super::disk::Stored;
use super::draw::ALL;
use super::judge::{Fate, Life, shown_without};
use super::world::{World, lock};
use crate::call::{Op, Reply};
use crate::error::Result;
use crate::id::RegistryName;
use crate::lease::Leases;
use crate::membership::Members;
use crate::memory::GroupModel;
use crate::registry::Claims;
use crate::roster::{ListRows, ReadMirrorStatus, ReadSettings};
use crate::session::Sessions;
use crate::store::Call;
use crate::sweep::{ListDoomed, Status};
use crate::target::Targets;
use crate::time::StoreTime;

/// What follows from time or is of one process alone.
const OF_TIME: [&str; 21] = [
    "alive:",
    "expires_in:",
    "free:",
    "waiting:",
    "next_wake:",
    "last_beat_at:",
    "state:",
    "reap_in:",
    "standing:",
    "as_of:",
    "resumed_at:",
    "next_due:",
    "next_release:",
    "next_reap:",
    "next_offline:",
    "empty_since:",
    "last_heartbeat_at:",
    "brake:",
    "braked:",
    "gap:",
    "has_pulse:",
];

fn looks() -> Vec<Op> {
    let page = || ALL;
    let claims = |name: &str| {
        Op::Claims(Claims {
            registry: RegistryName::new(name).expect("a name"),
            owner: None,
            page: page(),
        })
    };
    vec![
        Op::Members(Members { page: page() }),
        claims("r0"),
        claims("r1"),
        Op::Leases(Leases {
            holder: None,
            page: page(),
        }),
        Op::Targets(Targets { page: page() }),
        Op::Sessions(Sessions {
            state: None,
            older_than: Duration::ZERO,
            page: page(),
        }),
        Op::Rows(ListRows { page: page() }),
        Op::RosterSettings(ReadSettings),
        Op::MirrorStatus(ReadMirrorStatus),
        Op::Status(Status),
    ]
}

fn seen(model: &GroupModel, now: StoreTime) -> Vec<String> {
    let look = |op: Op| {
        let mut hidden = OF_TIME.to_vec();
        // A session counts the connections of the living; those of members count all.
        hidden.extend(matches!(op, Op::Sessions(_)).then_some("connections:"));
        shown_without(&model.look_up(&op, now), &hidden)
    };
    looks().into_iter().map(look).collect()
}

/// The disk has what is durable by the judge, and nothing else.
fn compare_disk(life: &mut Life, stored: Option<&Stored>, now: StoreTime) -> Result<(), String> {
    let Some(stored) = stored else {
        return match life.has(Fate::Durable) {
            true => Err("the disk has no such group, though steps of it were durable".to_owned()),
            false => Ok(()),
        };
    };
    let loaded = GroupModel::load(life.options().clone(), stored.row, stored.rows.clone(), now);
    let judged = life.ask(life.entries.len(), |model| seen(model, now));
    for (on_disk, judged) in seen(&loaded, now).into_iter().zip(judged) {
        if on_disk != judged {
            let first = on_disk.lines().zip(judged.lines()).find(|(a, b)| a != b);
            return Err(format!(
                "the disk has {on_disk}\nand the model {judged}\nfirst: {first:?}"
            ));
        }
    }
    Ok(())
}

/// At a crash: what the disk has is what was durable.
pub(super) fn crash(world: &mut World) -> Result<(), String> {
    let now = world.now();
    for (group, life) in &world.lives {
        let mut life = lock(life);
        life.lose();
        let state = world.platter.state();
        compare_disk(&mut life, state.image.groups.get(group), now)
            .map_err(|error| format!("group {group}: {error}"))?;
    }
    Ok(())
}

/// Nothing waits: memory, the disk and the model agree.
pub(super) fn compare(world: &mut World) -> Result<(), String> {
    crash(world)?;
    let groups: Vec<_> = world.lives.keys().cloned().collect();
    for group in groups {
        for op in looks().into_iter().chain([Op::Doomed(ListDoomed { limit: 50 })]) {
            let answer = world.ask(&group, op.clone(), Call::default())?;
            if !answer.is_some_and(|answer| matches!(&answer.reply, Ok(reply) if !matches!(reply, Reply::Now(_)))) {
                return Err(format!("{op:?} of {group} waits or fails, though nothing is under way"));
            }
        }
    }
    Ok(())
}
