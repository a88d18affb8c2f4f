//! What is never read, and what is bounded: points 8 and 9.

use super::*;

mod model_alone {
    use super::*;

    #[test]
    fn nothing_but_a_failed_commit_reads_the_disk() {
        let mut world = World::new(options());
        let mut chance = Chance::new(1);
        for _ in 0..40 {
            calls(&mut world, &mut chance, 8).unwrap();
            world.settle().unwrap();
        }
        assert_eq!(world.platter.state().reads, 0);
        waits(&mut world, &g(), join(1, ms(2_000)));
        world.commit(Luck::Full).unwrap();
        assert_eq!(world.platter.state().reads, 1);
    }
}

mod bounds {
    use super::*;

    #[test]
    fn change_beyond_the_backlog_is_refused_unapplied() {
        let mut world = World::new(options());
        let a = joined(&mut world, 1);
        let mut share = (0, 0);
        world.engine.shared.backlog.replace(&mut share, (10_000_000, 0));
        let refused = at_once(&mut world, acquire(&a, 1)).unwrap_err();
        assert_eq!(
            (refused.kind(), refused.outcome()),
            (ErrorKind::Unavailable, Outcome::Unchanged)
        );
        assert!(at_once(&mut world, beat(&a, None)).is_ok());
        assert!(at_once(&mut world, Op::Members(Members { page: ALL })).is_ok());
        world.engine.shared.backlog.replace(&mut share, (0, 0));
        assert!(get(&mut world, acquire(&a, 1)).is_ok());
    }

    #[test]
    fn not_after_is_checked_when_applied_and_never_again() {
        let mut world = World::new(options());
        joined(&mut world, 1);
        let soon = Call::not_after(world.now() + ms(10));
        assert!(world.ask(&g(), join(2, ms(2_000)), soon).unwrap().is_none());
        assert!(world.begin_commit());
        world.clock.advance(ms(300));
        world.end_commit(Luck::Good);
        assert!(world.poll_all().unwrap().remove(0).reply.is_ok());
        // One that waited for a trial commit is applied after it, and comes too late.
        waits(&mut world, &g(), join(3, ms(2_000)));
        world.commit(Luck::Full).unwrap();
        let soon = Call::not_after(world.now() + ms(10));
        assert!(world.ask(&g(), join(3, ms(2_000)), soon).unwrap().is_none());
        assert!(world.begin_commit());
        world.clock.advance(ms(300));
        world.end_commit(Luck::Good);
        let late = world.poll_all().unwrap().remove(0).reply.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TooLate);
    }
}
