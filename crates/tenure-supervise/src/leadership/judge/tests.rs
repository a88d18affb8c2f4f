//! Every way in which a missing file can mislead.

use super::*;

const POLL: Duration = Duration::from_millis(250);
const RULES: Rules = Rules {
    window: Duration::from_secs(2),
    blink: Duration::from_secs(1),
    grace: Duration::from_secs(1),
    needs_events: false,
};
const ABSENT: Sight = Sight::Absent { mount: 7 };

/// A judge with a clock of its own.
struct Court {
    judge: Judge,
    now: Mono,
    word: Word,
}

impl Court {
    fn new(rules: Rules) -> Self {
        Self {
            judge: Judge::new(rules),
            now: Mono::default(),
            word: Word::Never,
        }
    }

    /// A look that is answered at once, after the usual time.
    fn look(&mut self, sight: &Sight) -> Evidence {
        self.now = self.now + POLL;
        self.judge.judge(sight, self.word, self.now, self.now)
    }

    /// Looks for a while; whether all of it was uncertain.
    fn doubts(&mut self, sight: &Sight, looks: u32) -> bool {
        (0..looks).all(|_| matches!(self.look(sight), Evidence::Uncertain(_)))
    }
}

fn hung() -> Sight {
    Sight::Unclear("hangs".to_owned())
}

#[test]
fn absence_counts_once_it_has_lasted() {
    let mut court = Court::new(RULES);
    assert!(court.doubts(&ABSENT, 8));
    assert_eq!(court.look(&ABSENT), Evidence::primary());
    assert_eq!(court.look(&Sight::Present), Evidence::Replica);
    assert!(court.doubts(&ABSENT, 8), "the window begins again");
}

#[test]
fn short_absences_of_a_replica_never_count() {
    for blip in [2, 6] {
        let mut court = Court::new(RULES);
        for _ in 0..20 {
            assert_eq!(court.look(&Sight::Present), Evidence::Replica);
            assert!(court.doubts(&ABSENT, blip));
        }
    }
}

#[test]
fn a_hang_a_pause_and_another_mount_begin_the_window_again() {
    let mut court = Court::new(RULES);
    assert!(court.doubts(&ABSENT, 7) && court.doubts(&hung(), 1) && court.doubts(&ABSENT, 8));
    assert_eq!(court.look(&ABSENT), Evidence::primary());
    assert!(court.doubts(&Sight::Absent { mount: 8 }, 8), "another mount");
    assert_eq!(court.look(&Sight::Absent { mount: 8 }), Evidence::primary());
    // Nobody has looked for an hour.
    court.now = court.now + Duration::from_secs(3600);
    assert!(court.doubts(&Sight::Absent { mount: 8 }, 8));
}

#[test]
fn a_slow_look_does_not_lengthen_the_window() {
    let mut court = Court::new(RULES);
    let (ms, at) = (Duration::from_millis, Mono::default());
    // Asked at 0, answered at 900; asked at 1.8 s, 2.7 s: 1.8 s have been seen, whatever the clock says.
    for asked in [0, 900, 1_800, 2_700] {
        let (asked, now) = (at + ms(asked), at + ms(asked + 900));
        assert!(matches!(
            court.judge.judge(&ABSENT, Word::Never, asked, now),
            Evidence::Uncertain(_)
        ));
    }
    assert_eq!(
        court.judge.judge(&ABSENT, Word::Never, at + ms(3_600), at + ms(3_601)),
        Evidence::primary()
    );
}

#[test]
fn the_stream_is_believed_over_the_file() {
    let mut court = Court::new(RULES);
    court.word = Word::Says(false);
    for _ in 0..100 {
        assert_eq!(court.look(&ABSENT), Evidence::Replica);
    }
    // Promoted: the file has long been absent.
    court.word = Word::Says(true);
    assert_eq!(court.look(&ABSENT), Evidence::primary());
    // Demoted, while no new primary is known: the file stays absent.
    court.word = Word::Says(false);
    assert_eq!(court.look(&ABSENT), Evidence::Replica);
    // The file is believed over the stream when it is the one that says replica.
    court.word = Word::Says(true);
    assert_eq!(court.look(&Sight::Present), Evidence::Replica);
    assert!(court.doubts(&ABSENT, 8), "and the window holds for both");
}

#[test]
fn a_stream_that_was_heard_must_not_be_away_for_long() {
    let mut court = Court::new(RULES);
    court.word = Word::Says(true);
    assert!(court.doubts(&ABSENT, 8));
    assert_eq!(court.look(&ABSENT), Evidence::primary());
    court.word = Word::Lost(true, court.now);
    for _ in 0..4 {
        assert_eq!(court.look(&ABSENT), Evidence::primary(), "it may reconnect");
    }
    assert!(court.doubts(&ABSENT, 100));
    court.word = Word::Says(true);
    assert_eq!(court.look(&ABSENT), Evidence::primary());
    // One that said replica and is away proves neither.
    court.word = Word::Lost(false, court.now);
    for _ in 0..4 {
        let said = court.look(&ABSENT);
        assert!(
            matches!(&said, Evidence::Uncertain(why) if why.contains("said replica, and is away")),
            "{said:?}"
        );
    }
    assert!(court.doubts(&ABSENT, 100));
    // After LiteFS was started again, perhaps without a stream, the file alone counts again.
    assert!(court.doubts(&Sight::NoMount("dead".to_owned()), 3) && court.doubts(&ABSENT, 8));
    assert_eq!(court.look(&ABSENT), Evidence::primary());
}

#[test]
fn a_stream_that_is_required_must_have_been_heard() {
    let mut court = Court::new(Rules {
        needs_events: true,
        ..RULES
    });
    assert!(court.doubts(&ABSENT, 100));
    court.word = Word::Says(true);
    assert_eq!(court.look(&ABSENT), Evidence::primary());
}
