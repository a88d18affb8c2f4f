//! Misleading absences of the file.

use super::*;

const POLL: Duration = Duration::from_millis(250);
const RULES: Rules = Rules {
    window: Duration::from_secs(2),
    max_gap: Duration::from_secs(1),
    grace: Duration::from_secs(1),
    needs_events: false,
};
const ABSENT: MountState = MountState::Absent { mount: 7 };

/// An evaluator with its own clock.
struct Fixture {
    evaluator: Evaluator,
    now: Mono,
    stream: StreamState,
}

impl Fixture {
    fn new(rules: Rules) -> Self {
        Self {
            evaluator: Evaluator::new(rules),
            now: Mono::default(),
            stream: StreamState::Never,
        }
    }

    /// An instant observation after the poll interval.
    fn look(&mut self, state: &MountState) -> Evidence {
        self.now = self.now + POLL;
        self.evaluator.evaluate(state, self.stream, self.now, self.now)
    }

    /// Repeats an observation. Whether all results were uncertain.
    fn doubts(&mut self, state: &MountState, looks: u32) -> bool {
        (0..looks).all(|_| matches!(self.look(state), Evidence::Uncertain(_)))
    }
}

fn hung() -> MountState {
    MountState::Unclear("hangs".to_owned())
}

#[test]
fn absence_counts_after_the_window() {
    let mut fixture = Fixture::new(RULES);
    assert!(fixture.doubts(&ABSENT, 8));
    assert_eq!(fixture.look(&ABSENT), Evidence::primary());
    assert_eq!(fixture.look(&MountState::Present), Evidence::Replica);
    assert!(fixture.doubts(&ABSENT, 8), "the window begins again");
}

#[test]
fn short_absences_of_a_replica_never_count() {
    for blip in [2, 6] {
        let mut fixture = Fixture::new(RULES);
        for _ in 0..20 {
            assert_eq!(fixture.look(&MountState::Present), Evidence::Replica);
            assert!(fixture.doubts(&ABSENT, blip));
        }
    }
}

#[test]
fn hang_pause_and_other_mount_restart_the_window() {
    let mut fixture = Fixture::new(RULES);
    assert!(fixture.doubts(&ABSENT, 7) && fixture.doubts(&hung(), 1) && fixture.doubts(&ABSENT, 8));
    assert_eq!(fixture.look(&ABSENT), Evidence::primary());
    assert!(fixture.doubts(&MountState::Absent { mount: 8 }, 8), "another mount");
    assert_eq!(fixture.look(&MountState::Absent { mount: 8 }), Evidence::primary());
    // An hour without an observation.
    fixture.now = fixture.now + Duration::from_secs(3600);
    assert!(fixture.doubts(&MountState::Absent { mount: 8 }, 8));
}

#[test]
fn slow_observations_do_not_lengthen_the_window() {
    let mut fixture = Fixture::new(RULES);
    let (ms, at) = (Duration::from_millis, Mono::default());
    // Started at 0, ended at 900; started at 1.8 s and 2.7 s: only 1.8 s were observed, whatever the clock says.
    for asked in [0, 900, 1_800, 2_700] {
        let (asked, now) = (at + ms(asked), at + ms(asked + 900));
        assert!(matches!(
            fixture.evaluator.evaluate(&ABSENT, StreamState::Never, asked, now),
            Evidence::Uncertain(_)
        ));
    }
    assert_eq!(
        fixture
            .evaluator
            .evaluate(&ABSENT, StreamState::Never, at + ms(3_600), at + ms(3_601)),
        Evidence::primary()
    );
}

#[test]
fn stream_overrides_an_absent_file() {
    let mut fixture = Fixture::new(RULES);
    fixture.stream = StreamState::Connected(false);
    for _ in 0..100 {
        assert_eq!(fixture.look(&ABSENT), Evidence::Replica);
    }
    // Promoted: the file was already absent.
    fixture.stream = StreamState::Connected(true);
    assert_eq!(fixture.look(&ABSENT), Evidence::primary());
    // Demoted while no new primary is known: the file stays absent.
    fixture.stream = StreamState::Connected(false);
    assert_eq!(fixture.look(&ABSENT), Evidence::Replica);
    // A present file overrides the stream.
    fixture.stream = StreamState::Connected(true);
    assert_eq!(fixture.look(&MountState::Present), Evidence::Replica);
    assert!(fixture.doubts(&ABSENT, 8), "and the window applies to both");
}

#[test]
fn lost_stream_makes_evidence_uncertain_after_its_grace() {
    let mut fixture = Fixture::new(RULES);
    fixture.stream = StreamState::Connected(true);
    assert!(fixture.doubts(&ABSENT, 8));
    assert_eq!(fixture.look(&ABSENT), Evidence::primary());
    fixture.stream = StreamState::Disconnected(true, fixture.now);
    for _ in 0..4 {
        assert_eq!(fixture.look(&ABSENT), Evidence::primary(), "it may reconnect");
    }
    assert!(fixture.doubts(&ABSENT, 100));
    fixture.stream = StreamState::Connected(true);
    assert_eq!(fixture.look(&ABSENT), Evidence::primary());
    // A disconnected stream that said replica proves neither.
    fixture.stream = StreamState::Disconnected(false, fixture.now);
    for _ in 0..4 {
        let said = fixture.look(&ABSENT);
        assert!(
            matches!(&said, Evidence::Uncertain(why) if why.contains("last said replica")),
            "{said:?}"
        );
    }
    assert!(fixture.doubts(&ABSENT, 100));
    // After a restart of LiteFS, perhaps without a stream, the file alone counts again.
    assert!(fixture.doubts(&MountState::NoMount("dead".to_owned()), 3) && fixture.doubts(&ABSENT, 8));
    assert_eq!(fixture.look(&ABSENT), Evidence::primary());
}

#[test]
fn required_stream_must_connect_before_primary() {
    let mut fixture = Fixture::new(Rules {
        needs_events: true,
        ..RULES
    });
    assert!(fixture.doubts(&ABSENT, 100));
    fixture.stream = StreamState::Connected(true);
    assert_eq!(fixture.look(&ABSENT), Evidence::primary());
}
