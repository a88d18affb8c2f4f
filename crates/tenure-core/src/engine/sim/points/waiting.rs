//! What waits, and for what: points 1 to 4.

use super::*;
use crate::lease::{Place, RevokeLease, RevokeOf};

mod order {
    use super::*;

    #[test]
    fn durability_is_counted_for_each_group() {
        let mut world = World::new(options());
        waits(&mut world, &g(), join(1, ms(2_000)));
        assert!(world.begin_commit());
        waits(&mut world, &groups()[1], join(1, ms(2_000)));
        world.end_commit(Luck::Good);
        let answers = world.poll_all().unwrap();
        assert_eq!(answers.len(), 1, "the other group is not in that commit");
        assert_eq!(answers[0].group, g());
    }
}

mod whole_steps {
    use super::*;

    #[test]
    fn commit_holds_nothing_of_a_later_step() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        waits(&mut world, &g(), acquire(&a, 1));
        assert!(world.begin_commit());
        world.clock.advance(ms(1));
        waits(&mut world, &g(), acquire(&a, 2));
        world.end_commit(Luck::Good);
        let state = world.platter.state();
        let stored = &state.image.groups[&g()];
        let Some(Row::Lease(first)) = stored.rows.get(&RowKey::Lease(lease(1), Place::FIRST)) else {
            panic!("{:?}", stored.rows)
        };
        assert!(!stored.rows.contains_key(&RowKey::Lease(lease(2), Place::FIRST)));
        let Some(Row::Member(row)) = stored.rows.get(&RowKey::Member(member(1))) else {
            panic!("{:?}", stored.rows)
        };
        // The token, the revision and the event of the first step, and none of the second.
        assert!(first.token.get() <= stored.row.seq && stored.row.seq <= row.revision.0);
        assert_eq!(stored.events.len(), 2);
        assert_eq!(stored.row.last_event, stored.events[1].id);
        assert_eq!(stored.events[1].token, Some(first.token));
    }
}

mod gate {
    use super::*;

    #[test]
    fn event_page_waits_for_all_that_was_applied() {
        let mut world = World::new(options());
        joined(&mut world, 1);
        waits(&mut world, &g(), join(2, ms(2_000)));
        let page = EventQuery {
            after: Some(EventId(0)),
            limit: 100,
            ..EventQuery::default()
        };
        waits(&mut world, &g(), Op::Events(page));
        let answers = world.settle().unwrap();
        let Ok(Reply::Events(page)) = &answers[1].reply else {
            panic!("{:?}", answers[1].reply)
        };
        assert_eq!(page.events.len(), 2);
    }

    #[test]
    fn wake_up_waits_for_durability() {
        let mut world = World::new(options());
        joined(&mut world, 1);
        let after = status(&mut world).last_event;
        let patience = ms(60_000);
        waits(&mut world, &g(), Op::WaitForEvents(WaitForEvents { after, patience }));
        waits(&mut world, &g(), join(2, ms(2_000)));
        assert!(world.begin_commit());
        assert!(world.poll_all().unwrap().is_empty());
        world.end_commit(Luck::Good);
        assert_eq!(world.poll_all().unwrap().len(), 2);
    }

    #[test]
    fn refusal_waits_for_what_it_tells_of() {
        let mut world = World::new(options());
        let (a, b) = (joined(&mut world, 1), joined(&mut world, 2));
        waits(&mut world, &g(), acquire(&a, 1));
        waits(&mut world, &g(), acquire(&b, 1));
        let end = End {
            tenure: a.clone(),
            by: EndBy::Leave,
            text: None,
        };
        waits(&mut world, &g(), Op::End(end));
        // The 410 of a tenure whose end is not durable.
        waits(&mut world, &g(), acquire(&a, 2));
        world.settle().unwrap();
    }
}

mod beats {
    use super::*;

    #[test]
    fn beat_answers_the_durable_revision() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        waits(&mut world, &g(), acquire(&a, 1));
        let Ok(Reply::Beat(beaten)) = at_once(&mut world, beat(&a, None)) else {
            panic!("no answer")
        };
        let none = Revision::NONE;
        assert!(matches!(beaten.replies[0], BeatReply::Renewed { revision, .. } if revision == none));
        world.settle().unwrap();
        let Ok(Reply::Beat(beaten)) = at_once(&mut world, beat(&a, None)) else {
            panic!("no answer")
        };
        assert!(matches!(beaten.replies[0], BeatReply::Renewed { revision, .. } if revision > none));
    }

    fn told(tenure: &TenureId, revision: Revision) -> Op {
        let (tenure, ttl) = (tenure.clone(), None);
        Op::Beat(Beats {
            beats: vec![Beat {
                tenure,
                ttl,
                revision,
                seen: Revision::NONE,
            }],
        })
    }

    /// Until then a beat would extend the trust of a holder that does not know of the release.
    #[test]
    fn beat_waits_until_a_release_by_an_operator_is_durable() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        let Ok(Reply::Acquire(acquired)) = get(&mut world, acquire(&a, 1)) else {
            panic!("no answer")
        };
        let known = acquired.revision;
        at_once(&mut world, told(&a, known)).unwrap();
        let (lease, of) = (lease(1), RevokeOf::Any);
        // The judge does not follow which revisions beats named.
        let call = Call::not_after(world.now() + ms(1_000));
        let revoke = Op::RevokeLease(RevokeLease { lease, of });
        assert!(world.ask(&g(), revoke, call).unwrap().is_none());
        waits(&mut world, &g(), told(&a, known));
        let answers = world.settle().unwrap();
        let beaten = answers.iter().find_map(|answer| match &answer.reply {
            Ok(Reply::Beat(beaten)) => Some(beaten.replies[0]),
            _ => None,
        });
        assert!(matches!(beaten, Some(BeatReply::Renewed { revision, .. }) if revision > known));
        // Once it is durable, beats that have not noticed wait for nothing.
        at_once(&mut world, told(&a, known)).unwrap();
    }

    #[test]
    fn beat_that_a_crash_must_not_forget_waits() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        // A longer ttl that is forgotten is two holders after a crash.
        waits(&mut world, &g(), beat(&a, Some(ms(6_000))));
        waits(&mut world, &g(), beat(&a, None));
        world.settle().unwrap();
        waits(&mut world, &g(), join(2, ms(2_000)));
        let answers = world.settle().unwrap();
        let Ok(Reply::Join(b)) = &answers[0].reply else {
            panic!("not joined")
        };
        let end = |tenure: &TenureId| {
            Op::End(End {
                tenure: tenure.clone(),
                by: EndBy::Expel,
                text: None,
            })
        };
        waits(&mut world, &g(), end(&b.tenure));
        waits(&mut world, &g(), beat(&b.tenure, None));
        world.settle().unwrap();
    }
}
