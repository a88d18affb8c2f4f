//! After a failed commit the model equals the stored rows, except for state that must not go back.

use proptest::prelude::*;

use super::kept::Kept;
use super::{Act, config, history, shown};

fn compare(kept: &Kept, expected: &crate::memory::GroupModel) -> Result<(), TestCaseError> {
    for read in kept.met.reads() {
        let (one, two) = (
            shown(kept.model.look_up(&read, kept.met.now)),
            shown(expected.look_up(&read, kept.met.now)),
        );
        prop_assert_eq!(one, two, "{:?}", read);
        prop_assert_eq!(kept.model.seen(), 0, "{:?}", read);
    }
    Ok(())
}

fn check(acts: &[Act]) -> Result<(), TestCaseError> {
    let mut kept = Kept::new();
    for act in acts {
        kept.act(*act);
        match act.three {
            0 => kept.commit_all(),
            1 => kept.take(),
            2 => kept.commit(),
            7 => {
                let (head, before) = (kept.model.head(), kept.model.group_row());
                let mut expected = kept.of_stored();
                expected.change_head(|stored| stored.resumed_at = stored.resumed_at.max(head.resumed_at));
                kept.lose();
                compare(&kept, &expected)?;
                let after = kept.model.group_row();
                prop_assert!(after.tick == before.tick && after.seq == before.seq);
                prop_assert!(kept.model.undurable().is_empty() && kept.model.backlog() == (0, 0));
                lives_are_found_in_time(&kept)?;
            }
            _ => {}
        }
    }
    kept.commit_all();
    let events = &kept.stored.events;
    prop_assert!(events.windows(2).all(|pair| pair[0].id < pair[1].id));
    let expected = kept.of_stored();
    compare(&kept, &expected)
}

/// Checks that no member lapses unnoticed: its lazy index time is at most its end.
fn lives_are_found_in_time(kept: &Kept) -> Result<(), TestCaseError> {
    let (model, now) = (&kept.model, kept.met.now);
    for (member, live) in model.lives.table.iter() {
        prop_assert!(live.due <= model.end_now(live, now), "{member}");
        prop_assert!(model.lives.due_by(live.due).any(|due| due == member), "{member}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lost_steps_leave_the_stored_rows(acts in history()) {
        check(&acts)?;
    }
}
