//! A read reports the step it depends on whenever its reply differs from that of the stored rows.

use proptest::prelude::*;

use super::kept::Kept;
use super::{Act, config, history, shown};
use crate::call::Op;
use crate::membership::{Beat, BeatReply, Revision};
use crate::memory::GroupModel;

fn check(acts: &[Act]) -> Result<(), TestCaseError> {
    let mut kept = Kept::new();
    for act in acts {
        kept.act(*act);
        match act.three {
            0 => kept.commit_all(),
            1 => kept.take(),
            2 => kept.commit(),
            _ => {}
        }
        let stored = kept.of_stored();
        for read in kept.met.reads() {
            let (one, two) = (
                shown(kept.model.look_up(&read, kept.met.now)),
                shown(stored.look_up(&read, kept.met.now)),
            );
            let seen = kept.model.seen();
            prop_assert!(one == two || seen > 0, "{read:?}: {one:?}, stored {two:?}");
            prop_assert!(seen <= kept.applied);
        }
        beats_show_what_is_stored(&mut kept, &stored, *act)?;
        if act.three == 3 {
            kept.commit_all();
            for read in kept.met.reads() {
                let _ = kept.model.look_up(&read, kept.met.now);
                prop_assert_eq!(kept.model.seen(), 0, "{:?}", read);
            }
        }
    }
    Ok(())
}

/// Checks that an immediate reply to a beat equals that of the stored rows.
fn beats_show_what_is_stored(kept: &mut Kept, stored: &GroupModel, act: Act) -> Result<(), TestCaseError> {
    for tenure in kept.met.tenures.clone().into_iter().rev().take(usize::from(act.two)) {
        let beat = Beat {
            tenure,
            ttl: None,
            revision: Revision::NONE,
            seen: Revision::NONE,
        };
        let Some(reply) = kept.model.beat_at_once(&beat, kept.met.now) else {
            continue;
        };
        let expected = match stored.current(&beat.tenure) {
            Some(live) => BeatReply::Renewed {
                expires_in: live.ttl,
                revision: live.revision,
            },
            None => BeatReply::Ended(stored.reason_of(&beat.tenure)),
        };
        prop_assert_eq!(reply, expected);
        kept.note_beats();
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn read_of_undurable_rows_names_its_step(acts in history()) {
        check(&acts)?;
    }
}

#[test]
fn read_of_unchanged_rows_waits_for_nothing() {
    let act = |what, one, two, three| Act { what, one, two, three };
    let mut kept = Kept::new();
    kept.act(act(0, 0, 1, 3));
    kept.act(act(0, 0, 2, 3));
    kept.act(act(22, 8, 1, 0));
    kept.commit_all();
    kept.act(act(22, 8 + 16, 1, 4));
    let waits = |read: &Op| {
        let _ = kept.model.look_up(read, kept.met.now);
        kept.model.seen() > 0
    };
    let reads = kept.met.reads();
    let count = reads.iter().filter(|read| waits(read)).count();
    let member = |n| {
        Op::Member(crate::membership::MemberOf {
            member: super::acts::member(n),
        })
    };
    assert!(waits(&member(1)) && !waits(&member(2)) && !waits(&member(3)));
    assert!(count < reads.len() / 2, "{count} of {} reads wait", reads.len());
}

/// Whether a reply waits for a step after which nothing else is undurable.
fn waits_after(kept: &mut Kept, step: &Op, read: &Op) -> bool {
    kept.commit_all();
    kept.decide(step);
    let _ = kept.model.look_up(read, kept.met.now);
    kept.model.seen() == kept.applied
}

#[test]
fn session_waits_for_an_undurable_detach() {
    let act = |what, one, two, three| Act { what, one, two, three };
    let mut kept = Kept::new();
    kept.act(act(0, 0, 1, 3));
    kept.act(act(50, 0, 1, 0));
    kept.act(act(50, 0, 1, 1));
    let (detach, read) = (
        kept.met.op(act(57, 0, 1, 0)),
        crate::session::SessionOf {
            session: super::acts::session(1),
        },
    );
    assert!(waits_after(&mut kept, &detach, &Op::Session(read)));
}

#[test]
fn available_waits_for_an_undurable_end() {
    let act = |what, one, two, three| Act { what, one, two, three };
    let mut kept = Kept::new();
    kept.act(act(0, 0, 1, 3));
    kept.act(act(82, 16, 1, 4));
    let (end, page) = (kept.met.op(act(18, 0, 0, 0)), super::acts::page(5));
    let read = Op::Available(crate::roster::ListAvailable { page });
    assert!(waits_after(&mut kept, &end, &read));
    kept.commit_all();
    let _ = kept.model.look_up(&read, kept.met.now);
    assert_eq!(kept.model.seen(), 0);
}
