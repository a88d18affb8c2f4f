//! A model loaded from its rows equals the original, apart from the effects of a restart.

use proptest::prelude::*;

use super::kept::{Kept, options};
use super::{config, history, shown};
use crate::event::Event;
use crate::memory::GroupModel;
use crate::memory::lives::Live;
use crate::memory::rows::Row;
use crate::memory::rows::RowKey;
use crate::pulse::KeptPulse;
use crate::refusal::Refusal;
use crate::settling::Pulse;
use crate::store::Call;
use crate::time::StoreTime;

/// Applies the effects of a restart to the original: deadlines are those of the rows, and unstored state is lost.
fn restart(kept: &mut Kept) {
    let now = kept.met.now;
    let model = &mut kept.model;
    (model.pulse, model.tick, model.announced) = (None, now, StoreTime::ZERO);
    (model.refused, model.empty_since, model.roster.snapshot) = (Refusal::default(), None, None);
    model.begin_step(0);
    for (key, row) in &kept.stored.rows {
        if let (RowKey::Member(member), Row::Member(row)) = (key, row) {
            let due = now + row.ttl;
            let live = Live {
                due,
                ..row.clone().into()
            };
            model.lives.set(member.clone(), Some(live));
        }
    }
}

fn step(
    model: &mut GroupModel,
    number: u64,
    op: &crate::call::Op,
    now: crate::time::StoreTime,
) -> (String, Vec<Event>) {
    model.begin_step(number);
    let reply = format!("{:?}", model.decide(op, Call::default(), now));
    let taken = model.take();
    model.durable(taken.number);
    (reply, taken.events)
}

fn check(acts: &[super::Act]) -> Result<(), TestCaseError> {
    let mut kept = Kept::new();
    let (before, after) = acts.split_at(acts.len() * 2 / 3);
    for act in before {
        kept.act(*act);
        if act.three < 3 {
            kept.take();
        }
        if act.three > 4 {
            kept.commit();
        }
    }
    kept.commit_all();
    restart(&mut kept);
    let mut loaded = GroupModel::load(options(), kept.stored.group, kept.stored.rows.clone(), kept.met.now);
    let mut service = KeptPulse {
        pulse: Some(Pulse::begin(None, kept.met.now)),
        whole_at: kept.met.now,
    };
    for act in after {
        for model in [&mut kept.model, &mut loaded] {
            model.take_pulse(service);
        }
        for read in kept.met.reads() {
            let (one, two) = (
                shown(kept.model.look_up(&read, kept.met.now)),
                shown(loaded.look_up(&read, kept.met.now)),
            );
            prop_assert_eq!(one, two, "{:?}", read);
        }
        kept.met.now = kept.met.now + act.pause();
        if act.three < 5 {
            service.pulse = Some(Pulse::beaten(service.pulse, kept.met.now));
        }
        for model in [&mut kept.model, &mut loaded] {
            model.take_pulse(service);
        }
        let (op, now) = (kept.met.op(*act), kept.met.now);
        kept.applied += 1;
        let one = step(&mut kept.model, kept.applied, &op, now);
        let two = step(&mut loaded, kept.applied, &op, now);
        prop_assert_eq!(one, two, "{:?}", op);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn loaded_model_equals_the_original(acts in history()) {
        check(&acts)?;
    }
}
