//! Replies with delay, drift, steps and suspends, compared with their clock.

use proptest::prelude::*;

use super::*;

/// The remote clock at the local origin.
const EPOCH_MS: u64 = 5_000_000;

fn remote(ms: u64) -> StoreTime {
    StoreTime::from_micros((EPOCH_MS + ms) * 1_000)
}

fn local(ms: u64) -> Mono {
    Mono::from_origin(Duration::from_millis(ms))
}

/// An estimate from a request at 0 ms with an immediate reply.
fn known() -> RemoteClock {
    let clock = RemoteClock::default();
    clock.learn(remote(0), local(0), local(0));
    clock
}

/// The distance in ms between an estimate and a remote clock with a constant offset, without the allowed drift.
fn behind(clock: &RemoteClock, at: u64) -> u64 {
    let lag = remote(at).since(clock.at_least(local(at)).unwrap());
    u64::try_from(lag.as_millis()).unwrap()
}

#[test]
fn no_estimate_before_the_first_reply() {
    let clock = RemoteClock::default();
    assert_eq!((clock.at_least(local(1)), clock.age(local(1))), (None, None));
    assert!(!clock.is_fresh(local(1)));
    assert_eq!(clock.not_after(local(1), Call::default()), Call::default());
    let call = Call::not_after(remote(3));
    assert_eq!(clock.not_after(local(1), call), call);
}

#[test]
fn not_after_is_the_callers_deadline() {
    let clock = RemoteClock::default();
    clock.learn(remote(60), local(0), local(100));
    let limit = clock.not_after(local(600), Call::default()).not_after.unwrap();
    // The reply took 40 ms, and drift takes half a millisecond of 500.
    assert_eq!(limit, StoreTime::from_micros((EPOCH_MS + 560) * 1_000 - 500));
}

#[test]
fn earlier_not_after_wins() {
    let clock = known();
    let (early, late) = (Call::not_after(remote(50)), Call::not_after(remote(900)));
    assert_eq!(clock.not_after(local(500), early), early);
    assert!(clock.not_after(local(500), late).not_after.unwrap() < remote(501));
}

#[test]
fn reply_with_the_least_delay_is_kept() {
    let clock = known();
    clock.learn(remote(100), local(90), local(400));
    assert_eq!(behind(&clock, 400), 0);
    let slow = RemoteClock::default();
    slow.learn(remote(100), local(90), local(400));
    assert_eq!(behind(&slow, 400), 300);
    slow.learn(remote(500), local(499), local(502));
    assert_eq!(behind(&slow, 502), 2);
}

#[test]
fn old_estimate_is_replaced_by_the_next_reply() {
    let clock = known();
    clock.learn(remote(4_990), local(4_980), local(5_000));
    assert_eq!(behind(&clock, 5_000), 5, "only the drift");
    clock.learn(remote(4_991), local(4_981), local(5_001));
    assert_eq!(behind(&clock, 5_001), 10, "the delay of its reply");
}

#[test]
fn step_back_is_followed_immediately() {
    let clock = known();
    // Back by 30 ms, less than the delay of this reply.
    clock.learn(remote(70), local(98), local(180));
    assert_eq!(clock.at_least(local(180)), Some(remote(70)));
    // Back by an hour, after a failover.
    let hour = Duration::from_secs(3_600);
    clock.learn(remote(200).minus(hour), local(199), local(201));
    assert_eq!(clock.at_least(local(201)), Some(remote(200).minus(hour)));
}

#[test]
fn step_forward_is_followed_immediately() {
    let clock = known();
    clock.learn(remote(3_600_100), local(99), local(101));
    assert_eq!(clock.at_least(local(101)), Some(remote(3_600_100)));
}

#[test]
fn local_clock_jump_is_detected() {
    let clock = known();
    // By a minute, between two requests.
    clock.learn(remote(10), local(60_009), local(60_011));
    assert_eq!(clock.at_least(local(60_011)), Some(remote(10)));
    // By two seconds: the estimate is not old.
    clock.learn(remote(20), local(62_019), local(62_021));
    assert_eq!(clock.at_least(local(62_021)), Some(remote(20)));
}

#[test]
fn suspend_does_not_affect_the_estimate() {
    let clock = known();
    assert_eq!(behind(&clock, 3_600_000), 3_600, "only the drift");
    assert!(!clock.is_fresh(local(3_600_000)));
}

#[test]
fn reply_to_an_earlier_request_does_not_contradict() {
    let clock = RemoteClock::default();
    clock.learn(remote(100), local(99), local(101));
    // Processed late, out of order.
    clock.learn(remote(50), local(49), local(102));
    assert_eq!(behind(&clock, 102), 1);
    clock.learn(remote(51), local(50), local(60));
    assert_eq!(behind(&clock, 102), 1);
}

#[test]
fn freshness_counts_from_the_newest_reply() {
    let clock = known();
    clock.learn(remote(4_000), local(3_999), local(4_100));
    assert_eq!(behind(&clock, 4_100), 4, "the first one is kept");
    assert!(clock.is_fresh(local(9_100)) && !clock.is_fresh(local(9_101)));
    assert_eq!(clock.age(local(4_600)), Some(Duration::from_millis(500)));
    clock.forget();
    assert_eq!(clock.at_least(local(9_000)), None);
}

/// Requests: the local pause before each, and the delays of request and reply, in µs.
fn requests() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let delay = || prop_oneof![1u64..2_000, 1u64..800_000];
    proptest::collection::vec((0u64..8_000_000, delay(), delay()), 1..40)
}

/// A remote clock with a drift in parts per million.
#[derive(Clone, Copy)]
struct Drifting(i64);

impl Drifting {
    /// Its time after this many local µs.
    fn shows(self, local: u64, stepped: i64) -> StoreTime {
        let gained = i64::try_from(local).unwrap() * self.0 / 1_000_000;
        let shown = EPOCH_MS * 1_000 + local;
        StoreTime::from_micros(shown.checked_add_signed(gained + stepped).unwrap())
    }
}

fn at(micros: u64) -> Mono {
    Mono::from_origin(Duration::from_micros(micros))
}

proptest! {
    #[test]
    fn estimate_never_exceeds_the_remote_clock(
        drift in -1_000i64..=1_000,
        requests in requests(),
        ahead in 0u64..10_000_000,
    ) {
        let (clock, remote) = (RemoteClock::default(), Drifting(drift));
        let mut now = 0;
        for (pause, forth, back) in requests {
            let asked = now + pause;
            let arrived = asked + forth + back;
            clock.learn(remote.shows(asked + forth, 0), at(asked), at(arrived));
            for later in [0, 1, ahead] {
                let promised = clock.at_least(at(arrived + later)).unwrap();
                // Two times are rounded to whole microseconds.
                prop_assert!(promised.micros() <= remote.shows(arrived + later, 0).micros() + 2);
                let least = remote.shows(asked + forth, 0) + Duration::from_micros(later);
                prop_assert!(promised.micros() + later / 1_000 + 2 >= least.micros(), "no worse than the newest");
            }
            now = arrived;
        }
    }

    #[test]
    fn error_after_a_step_is_at_most_one_request_delay(
        drift in -1_000i64..=1_000,
        before in requests(),
        step in prop_oneof![-3_600_000_000i64..3_600_000_000, -2_000_000i64..2_000_000],
        first in (0u64..8_000_000, 1u64..800_000, 1u64..800_000),
    ) {
        let (clock, remote) = (RemoteClock::default(), Drifting(drift));
        let mut now = 0;
        for (pause, forth, back) in before {
            let asked = now + pause;
            now = asked + forth + back;
            clock.learn(remote.shows(asked + forth, 0), at(asked), at(now));
        }
        let (pause, forth, back) = first;
        let (asked, arrived) = (now + pause, now + pause + forth + back);
        let shown = remote.shows(asked + forth, step);
        clock.learn(shown, at(asked), at(arrived));
        prop_assert!(clock.at_least(at(asked)).unwrap() <= shown);
        prop_assert!(shown <= clock.at_least(at(arrived)).unwrap());
        let (promised, truth) = (clock.at_least(at(arrived)).unwrap(), remote.shows(arrived, step));
        prop_assert!(promised.since(truth) <= Duration::from_micros(forth + forth / 500 + 2));
    }

    #[test]
    fn estimate_never_contradicts_the_newest_reply(
        replies in proptest::collection::vec((0u64..20_000_000, 0u64..20_000_000, 0u64..2_000_000), 1..40),
    ) {
        // Arbitrary times in arbitrary order.
        let clock = RemoteClock::default();
        for (shown, asked, took) in replies {
            let shown = StoreTime::from_micros(EPOCH_MS * 1_000 + shown);
            clock.learn(shown, at(asked), at(asked + took));
            prop_assert!(clock.at_least(at(asked)).unwrap() <= shown);
            prop_assert!(shown <= clock.at_least(at(asked + took)).unwrap());
        }
    }
}
