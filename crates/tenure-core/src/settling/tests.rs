//! Which silences are gaps, by the pulse and without one, and when a tenure ends.

use proptest::prelude::*;

use super::*;

const fn at(seconds: u64) -> StoreTime {
    StoreTime::from_micros(seconds * 1_000_000)
}
const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn known(tick: StoreTime, pulse: &Pulse, ttl: Duration) -> Known {
    Known {
        tick,
        pulse: Some(pulse.id),
        resumed_at: at(1),
        failed_at: StoreTime::ZERO,
        level: Level::of(Some(ttl)),
    }
}

/// A pulse that began at 1 s and was beaten on time until `until`.
fn served(until: StoreTime) -> Pulse {
    let mut pulse = Pulse::begin(None, at(1));
    while pulse.tick < until {
        pulse = Pulse::beaten(Some(pulse), (pulse.tick + PULSE_EVERY).min(until));
    }
    pulse
}

#[test]
fn unnoticed_pause_costs_no_beat() {
    for ttl_ms in [1000, 1500, 4800, 30_000, 120_000] {
        let ttl = ms(ttl_ms);
        let timing = crate::timing::Timing::for_ttl(ttl);
        let spare = ttl - timing.interval - timing.request_timeout - timing.margin;
        assert!(
            gap(Some(ttl)) <= spare,
            "ttl {ttl:?}: gap {:?}, spare {spare:?}",
            gap(Some(ttl))
        );
    }
    assert_eq!(gap(None), s(2));
}

/// Few levels, each from its ttl on, and never a longer gap than 5/12 of the ttl.
#[test]
fn each_ttl_has_its_level() {
    for (ttl, level) in [(1000, 0), (1999, 0), (2000, 1), (4799, 1), (4800, 2), (30_000, 2)] {
        assert_eq!(gap(Some(ms(ttl))), LEVELS[level], "{ttl} ms");
    }
}

/// Which pause is a gap for which ttl.
#[test]
fn pauses_are_gaps_by_level() {
    let gaps = [
        (300, [false; 4]),
        (600, [true, false, false, false]),
        (1500, [true, true, false, false]),
        (3000, [true; 4]),
    ];
    for (pause, expected) in gaps {
        let before = served(at(9));
        let after = Pulse::beaten(Some(before), at(9) + ms(pause));
        for (ttl, expected) in [1, 2, 5, 30].into_iter().zip(expected) {
            let known = known(at(9), &before, s(ttl));
            let found = look(Some(&after), &known, after.tick + ms(50));
            assert_eq!(found.is_some(), expected, "a pause of {pause} ms, ttl {ttl} s");
            // Dated by the end of the hole.
            assert!(found.is_none_or(|resume| resume.at == after.tick));
        }
    }
}

/// A group that was quiet for an hour has no gap, if the store served.
#[test]
fn a_late_visit_is_no_gap() {
    let pulse = served(at(3600));
    assert_eq!(
        look(Some(&pulse), &known(at(2), &pulse, s(1)), at(3600) + ms(100)),
        None
    );
}

/// A late visit dates a gap by the end of the hole.
#[test]
fn a_gap_is_dated_by_the_end_of_the_hole() {
    let before = served(at(9));
    let mut pulse = Pulse::beaten(Some(before), at(60));
    for n in 1..1000 {
        pulse = Pulse::beaten(Some(pulse), at(60) + PULSE_EVERY * n);
    }
    let mut known = known(at(9), &pulse, s(30));
    let found = look(Some(&pulse), &known, pulse.tick).expect("a gap");
    assert_eq!((found.at, found.cause), (at(60), GapCause::Silent));
    known.resumed_at = resumed(known.resumed_at, found.at, pulse.tick);
    assert_eq!(look(Some(&pulse), &known, pulse.tick), None, "it is met");
}

/// The first look after an outage comes before the first beat of the pulse.
#[test]
fn an_open_hole_is_a_gap_now() {
    let pulse = served(at(9));
    let found = look(Some(&pulse), &known(at(9), &pulse, s(30)), at(20)).expect("a gap");
    assert_eq!((found.at, found.silence), (at(20), Some(s(11))));
}

/// A step of a sweep during a hole writes a tick, which must not hide the hole.
#[test]
fn a_tick_hides_no_hole() {
    let before = served(at(9));
    let after = Pulse::beaten(Some(before), at(13));
    let known = known(at(12), &before, s(30));
    assert_eq!(look(Some(&after), &known, at(13)).map(|resume| resume.at), Some(at(13)));
}

/// The clock of a new primary is behind the pulse.
#[test]
fn a_pulse_in_the_future_is_a_gap() {
    let pulse = served(at(9));
    let found = look(Some(&pulse), &known(at(8), &pulse, s(30)), at(9).minus(ms(100))).expect("a gap");
    assert_eq!((found.at, found.cause), (at(9).minus(ms(100)), GapCause::ClockBack));
}

/// A pulse that began again is dated by its beginning, however late the visit.
#[test]
fn another_id_is_dated_by_its_beginning() {
    let old = served(at(9));
    let new = served(at(500));
    let mut known = known(at(9), &old, s(30));
    known.pulse = Some(old.id + 1);
    assert_eq!(look(Some(&new), &known, at(500)).map(|resume| resume.at), Some(at(1)));
}

/// A resume in the future is from before a fall of the clock.
#[test]
fn a_resume_in_the_future_is_replaced() {
    assert_eq!(resumed(at(50), at(10), at(12)), at(10));
    assert_eq!(resumed(at(11), at(10), at(12)), at(11));
}

/// A fall of the clock is a new id, and a hole at each level.
#[test]
fn a_fall_of_the_clock_begins_the_pulse_anew() {
    let before = served(at(100));
    let after = Pulse::beaten(Some(before), at(40));
    assert!(after.id > before.id);
    assert_eq!((after.tick, after.since), (at(40), [at(40); 3]));
}

/// A beat that failed while the store served is the end of a hole of that group.
#[test]
fn a_failed_beat_is_a_gap_of_its_group() {
    let pulse = served(at(100));
    let mut known = known(at(90), &pulse, s(30));
    known.failed_at = at(95);
    assert_eq!(
        look(Some(&pulse), &known, at(100)).map(|resume| resume.at),
        Some(at(95))
    );
    known.resumed_at = at(95);
    assert_eq!(look(Some(&pulse), &known, at(100)), None);
}

/// A store without a pulse goes by the tick of the group.
#[test]
fn without_a_pulse_silence_and_a_clock_step_back_are_gaps() {
    let known = |tick| Known {
        tick,
        pulse: None,
        resumed_at: at(0),
        failed_at: StoreTime::ZERO,
        level: Level::of(None),
    };
    assert_eq!(look(None, &known(at(10)), at(12)), None);
    let silent = look(None, &known(at(10)), at(12) + Duration::from_micros(1)).expect("a gap");
    assert_eq!(silent.cause, GapCause::Silent);
    let back = look(None, &known(at(10)), at(9)).expect("a gap");
    assert_eq!((back.at, back.cause), (at(9), GapCause::ClockBack));
}

#[test]
fn settle_without_a_cause_ends_only_new() {
    for cause in GapCause::ALL {
        assert_eq!(GapCause::parse(cause.as_str()), Some(cause));
        assert_eq!(cause.is_ended_by(None), cause == GapCause::New);
        assert!(cause.is_ended_by(Some(cause)));
    }
    assert!(!GapCause::DataLoss.is_ended_by(Some(GapCause::New)));
}

#[test]
fn every_ttl_restarts_after_a_gap() {
    assert_eq!(end_of(at(40), s(30), at(0), at(20)), at(40));
    assert_eq!(end_of(at(40), s(30), at(100), at(100)), at(130));
    // The clock fell from about 970 to 5, so the old deadline of 1000 is ignored.
    assert_eq!(end_of(at(1000), s(30), at(5), at(5)), at(35));
}

/// A fall of less than one smallest level may go unnoticed, so it shortens no life.
#[test]
fn a_small_fall_of_the_clock_shortens_no_life() {
    let beaten_at = at(100);
    let now = beaten_at.minus(ms(400));
    assert_eq!(end_of(beaten_at + s(30), s(30), at(0), now), at(130));
}

proptest! {
    /// Random silences: a look finds a gap if and only if there was a silence longer than the level that the group has
    /// not met, and dates it by the end of the last one.
    #[test]
    fn a_look_finds_exactly_the_unmet_holes(
        silences in prop::collection::vec((70u64..3000, any::<bool>()), 1..60),
        ttl in prop::sample::select(vec![1u64, 2, 5, 30]),
    ) {
        let mut pulse = Pulse::begin(None, at(1));
        let mut group = known(at(1), &pulse, s(ttl));
        group.resumed_at = at(1);
        let mut last_hole = at(1);
        for (silence, looks) in silences {
            let now = pulse.tick + ms(silence);
            pulse = Pulse::beaten(Some(pulse), now);
            if ms(silence) > group.level.gap() {
                last_hole = now;
            }
            if looks {
                let found = look(Some(&pulse), &group, now);
                let expected = (last_hole > group.resumed_at).then_some(last_hole);
                prop_assert_eq!(found.map(|resume| resume.at), expected);
                if let Some(resume) = found {
                    group.resumed_at = resumed(group.resumed_at, resume.at, now);
                }
                group.tick = now;
            }
        }
    }
}
