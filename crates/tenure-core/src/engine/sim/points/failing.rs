//! What a failure leaves behind: points 5 to 7.

use super::*;

mod failed_commit {
    use super::*;

    #[test]
    fn lost_end_gives_no_new_ttl() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        world.pass(ms(600)).unwrap();
        let left = looked_up(&mut world, 1).expires_in;
        let tenure = a.clone();
        waits(
            &mut world,
            &g(),
            Op::End(End {
                tenure,
                by: EndBy::Expel,
                text: None,
            }),
        );
        world.pass(ms(360)).unwrap();
        let answers = world.commit(Luck::Full).unwrap();
        assert!(answers.iter().any(|answer| {
            answer
                .reply
                .as_ref()
                .is_err_and(|error| error.outcome() == Outcome::Unchanged)
        }));
        assert_eq!(looked_up(&mut world, 1).expires_in, left - ms(361));
        assert_eq!(status(&mut world).unsettled, None);
    }

    #[test]
    fn numbers_of_lost_steps_are_not_given_out_again() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        // All at one instant, so that no number comes from the clock. The judge looks away from a call with a limit.
        let call = Call::not_after(world.now() + ms(1_000));
        let mut given = Vec::new();
        for luck in [Luck::Full, Luck::Good] {
            assert!(world.ask(&g(), acquire(&a, 1), call).unwrap().is_none());
            if luck == Luck::Good {
                // The trial.
                world.commit(luck).unwrap();
            }
            assert!(world.begin_commit());
            let taken = &world.begun.as_ref().unwrap().commit.batches[0].taken;
            given.push((taken.group.seq, taken.events[0].id));
            world.end_commit(luck);
            world.poll_all().unwrap();
        }
        assert!(given[0].0 < given[1].0 && given[0].1 < given[1].1, "{given:?}");
    }

    #[test]
    fn dead_read_dead_however_long_the_disk_is_full() {
        let mut world = World::new(options());
        joined(&mut world, 1);
        // A gap makes the group unsettled: a tick that comes after its end has something to write down.
        world.outage(ms(3_000));
        world.pass(ms(120)).unwrap();
        world.settle().unwrap();
        assert!(status(&mut world).unsettled.is_some());
        waits(&mut world, &g(), join(2, ms(2_000)));
        world.commit(Luck::Full).unwrap();
        for _ in 0..60 {
            world.pass(ms(120)).unwrap();
            world.commit(Luck::Full).unwrap();
        }
        assert!(!looked_up(&mut world, 1).alive);
        // No gap was recorded, since there was none.
        let resumed_at = status(&mut world).resumed_at;
        assert!(resumed_at + ms(6_000) < world.now(), "resumed at {resumed_at}");
    }

    #[test]
    fn beats_go_on_however_long_the_disk_is_full() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        world.outage(ms(3_000));
        world.pass(ms(120)).unwrap();
        world.settle().unwrap();
        waits(&mut world, &g(), join(2, ms(2_000)));
        world.commit(Luck::Full).unwrap();
        for _ in 0..60 {
            world.pass(ms(120)).unwrap();
            world.commit(Luck::Full).unwrap();
            let Ok(Reply::Beat(beaten)) = at_once(&mut world, beat(&a, None)) else {
                panic!("no answer")
            };
            assert!(matches!(beaten.replies[0], BeatReply::Renewed { .. }), "{beaten:?}");
        }
    }

    #[test]
    fn first_write_after_room_is_made_succeeds() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        waits(&mut world, &g(), acquire(&a, 1));
        world.commit(Luck::Full).unwrap();
        assert!(matches!(world.engine.health(), Health::Down { .. }));
        waits(&mut world, &g(), acquire(&a, 1));
        let refused = world.commit(Luck::Full).unwrap();
        assert_eq!(refused[0].reply.as_ref().unwrap_err().outcome(), Outcome::Unchanged);
        let Ok(Reply::Acquire(acquired)) = get(&mut world, acquire(&a, 1)) else {
            panic!("refused")
        };
        assert!(matches!(acquired.outcomes[0], AcquireOutcome::Granted { .. }));
        assert!(matches!(world.engine.health(), Health::Up));
        // One alarm and one end of it.
        assert_eq!(world.platter.state().told.len(), 2);
    }
}

mod broken {
    use super::*;

    #[test]
    fn failed_sync_ends_all_service() {
        for stored in [true, false] {
            let mut world = World::new(options());
            let a = joined(&mut world, 1);
            waits(&mut world, &g(), acquire(&a, 1));
            waits(
                &mut world,
                &g(),
                Op::Leases(Leases {
                    holder: None,
                    page: ALL,
                }),
            );
            let answers = world.commit(Luck::Broken(stored)).unwrap();
            assert_eq!(answers.len(), 2);
            for answer in answers {
                assert_eq!(answer.reply.unwrap_err().outcome(), Outcome::Unknown);
            }
            for op in [beat(&a, None), Op::Members(Members { page: ALL }), join(2, ms(2_000))] {
                assert_eq!(at_once(&mut world, op).unwrap_err().kind(), ErrorKind::Unavailable);
            }
            assert!(matches!(world.engine.health(), Health::Down { .. }));
            // The next process reads the disk again.
            world.restart(ms(50));
            let Ok(Reply::Leases(page)) = at_once(
                &mut world,
                Op::Leases(Leases {
                    holder: None,
                    page: ALL,
                }),
            ) else {
                panic!("refused")
            };
            assert_eq!(page.items.len(), usize::from(stored));
        }
    }
}

mod panics {
    use super::*;
    use crate::memory::GroupModel;
    use crate::time::StoreTime;

    #[test]
    fn panic_in_a_step_undoes_its_group_alone() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        waits(&mut world, &groups()[1], join(1, ms(2_000)));
        let claim = Op::Claim(ClaimKeys {
            registry: RegistryName::new("r").unwrap(),
            tenure: a,
            keys: vec![key(1)],
            mode: ClaimMode::Take,
        });
        let shared = world.engine.shared.clone();
        let panics = async move {
            let step = |model: &mut GroupModel, now: StoreTime| -> Result<()> {
                model.decide(&claim, Call::default(), now)?;
                panic!("halfway")
            };
            shared.step(&groups()[0], Call::default(), step).await
        };
        let refused = World::poll_once(panics).expect("it is refused at once").unwrap_err();
        assert_eq!(
            (refused.kind(), refused.outcome()),
            (ErrorKind::Internal, Outcome::Unchanged)
        );
        // The group is not used before its rows were put back.
        waits(&mut world, &g(), Op::Member(MemberOf { member: member(1) }));
        let answers = world.settle().unwrap();
        assert_eq!(answers.len(), 2);
        let Some(Reply::Member(Some(seen))) = answers.iter().find_map(|answer| match &answer.reply {
            Ok(reply @ Reply::Member(_)) => Some(reply),
            _ => None,
        }) else {
            panic!("no answer")
        };
        assert_eq!(seen.holdings.claims, 0);
    }

    #[test]
    fn end_of_the_writer_wakes_all_that_wait() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        waits(&mut world, &g(), acquire(&a, 1));
        waits(
            &mut world,
            &g(),
            Op::Leases(Leases {
                holder: None,
                page: ALL,
            }),
        );
        world.end_writer();
        let answers = world.poll_all().unwrap();
        assert_eq!(answers.len(), 2);
        for answer in answers {
            // No commit had taken it.
            assert_eq!(answer.reply.unwrap_err().outcome(), Outcome::Unchanged);
        }
        assert_eq!(
            at_once(&mut world, beat(&a, None)).unwrap_err().kind(),
            ErrorKind::Unavailable
        );
    }
}
