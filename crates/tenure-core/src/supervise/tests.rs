//! Scenarios: events and the resulting actions, in order.

use std::time::Duration;

use super::*;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A supervisor and the current time.
struct Scenario {
    supervisor: Supervisor,
    now: Mono,
}

impl Scenario {
    fn new(settings: Settings) -> Self {
        settings.check().unwrap();
        let now = Mono::from_origin(100 * S);
        Self {
            supervisor: Supervisor::new(settings, now),
            now,
        }
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        self.supervisor.on(event, self.now)
    }

    /// Advances time, with a tick whenever the machine requests one.
    fn pass(&mut self, time: Duration) -> Vec<(Duration, Action)> {
        let (start, end) = (self.now, self.now + time);
        let mut done = Vec::new();
        while let Some(at) = self.supervisor.wake().filter(|at| *at <= end) {
            assert!(at > self.now, "wake at {at:?}, which is not after {:?}", self.now);
            self.now = at;
            let actions = self.supervisor.on(Event::Tick, at);
            done.extend(actions.into_iter().map(|action| (at.since(start), action)));
        }
        self.now = end;
        done
    }

    fn primary_for(&mut self, time: Duration) -> Vec<Action> {
        let until = Some(self.now + time);
        self.on(Event::Evidence(Evidence::Primary(Primacy {
            until,
            ..Primacy::default()
        })))
    }

    /// A supervisor with a ready child and a requested registration.
    fn running(settings: Settings) -> Self {
        let mut scenario = Self::new(settings);
        assert_eq!(scenario.on(primary()), [Action::Start(Run(1))]);
        assert_eq!(scenario.on(Event::Ready(Run(1))), [Action::Register]);
        scenario
    }
}

fn primary() -> Event {
    Event::Evidence(Evidence::primary())
}

fn replica() -> Event {
    Event::Evidence(Evidence::Replica)
}

fn unclear() -> Event {
    Event::Evidence(Evidence::Uncertain("no answer".to_owned()))
}

#[test]
fn child_does_not_start_without_evidence() {
    let mut scenario = Scenario::new(Settings::default());
    assert_eq!(scenario.pass(3_600 * S), []);
    assert_eq!(scenario.on(unclear()), []);
    assert_eq!(scenario.on(replica()), []);
    assert_eq!(scenario.supervisor.stage(), Stage::Waiting);
    assert_eq!(scenario.on(primary()), [Action::Start(Run(1))]);
    assert_eq!(scenario.supervisor.stage(), Stage::Starting);
}

#[test]
fn child_is_registered_only_when_ready() {
    let mut scenario = Scenario::new(Settings::default());
    scenario.on(primary());
    assert_eq!(scenario.pass(3 * S), []);
    assert_eq!(scenario.on(Event::Ready(Run(7))), [], "another run");
    assert_eq!(scenario.on(Event::Ready(Run(1))), [Action::Register]);
    assert_eq!(scenario.on(Event::Ready(Run(1))), []);
    assert_eq!(scenario.supervisor.stage(), Stage::Running);
}

#[test]
fn child_ready_while_uncertain_is_registered_afterwards() {
    let mut scenario = Scenario::new(Settings::default());
    scenario.on(primary());
    scenario.on(unclear());
    assert_eq!(scenario.on(Event::Ready(Run(1))), []);
    assert_eq!(scenario.on(primary()), [Action::Register]);
}

#[test]
fn demotion_deregisters_and_terminates_immediately() {
    let mut scenario = Scenario::running(Settings::default());
    assert_eq!(scenario.on(replica()), [Action::Deregister, Action::Term(Run(1))]);
    assert_eq!(scenario.pass(2_999 * MS), []);
    assert_eq!(scenario.on(Event::Ended(Run(1), 143)), []);
    // Its descendants still run.
    assert_eq!(scenario.on(primary()), []);
    assert_eq!(
        scenario.pass(501 * MS),
        [(MS, Action::Kill(Run(1))), (501 * MS, Action::Kill(Run(1)))]
    );
    assert_eq!(scenario.on(Event::Gone(Run(1))), [Action::Start(Run(2))]);
}

#[test]
fn uncertainty_stops_a_child_only_if_configured() {
    let mut scenario = Scenario::running(Settings::default());
    assert_eq!(scenario.on(unclear()), []);
    assert_eq!(scenario.pass(86_400 * S), []);

    let mut scenario = Scenario::running(Settings {
        on_uncertain: OnUncertain::StopAfter(5 * S),
        ..Settings::default()
    });
    scenario.on(unclear());
    assert_eq!(scenario.pass(4 * S), []);
    // Evidence ends the uncertainty; another reason does not.
    scenario.on(primary());
    scenario.on(unclear());
    assert_eq!(scenario.pass(4 * S), []);
    scenario.on(Event::Evidence(Evidence::Uncertain("another reason".to_owned())));
    let done = scenario.pass(S);
    assert_eq!(done, [(S, Action::Deregister), (S, Action::Term(Run(1)))]);
}

#[test]
fn child_is_gone_at_the_deadline_even_while_uncertain() {
    let mut scenario = Scenario::new(Settings::default());
    scenario.primary_for(10 * S);
    scenario.on(Event::Ready(Run(1)));
    assert_eq!(scenario.pass(4 * S), []);
    // Renewed: nothing happens at the old deadline.
    scenario.primary_for(10 * S);
    assert_eq!(scenario.pass(6 * S), []);
    scenario.on(unclear());
    assert_eq!(
        scenario.pass(3_900 * MS),
        [
            (700 * MS, Action::Deregister),
            (700 * MS, Action::Term(Run(1))),
            (3_700 * MS, Action::Kill(Run(1)))
        ]
    );
}

#[test]
fn evidence_with_a_near_deadline_starts_nothing() {
    let mut scenario = Scenario::new(Settings::default());
    assert_eq!(scenario.primary_for(3_300 * MS), []);
    assert_eq!(scenario.pass(60 * S), []);
    assert_eq!(scenario.primary_for(3_301 * MS), [Action::Start(Run(1))]);
}

#[test]
fn late_wakeup_after_the_deadline_kills_immediately() {
    let mut scenario = Scenario::new(Settings::default());
    scenario.primary_for(10 * S);
    scenario.now = scenario.now + 60 * S;
    assert_eq!(scenario.on(Event::Tick), [Action::Term(Run(1)), Action::Kill(Run(1))]);
}

#[test]
fn kill_at_the_deadline_is_not_a_crash() {
    let mut scenario = Scenario::new(Settings::default());
    scenario.primary_for(10 * S);
    scenario.now = scenario.now + 60 * S;
    let done = scenario.on(Event::Ended(Run(1), 137));
    assert_eq!(done, [Action::Term(Run(1)), Action::Kill(Run(1))]);
    assert_eq!(scenario.on(Event::Gone(Run(1))), []);
    assert_eq!(scenario.primary_for(10 * S), [Action::Start(Run(2))]);
}

#[test]
fn child_with_an_outdated_token_is_stopped() {
    let reign = |token| {
        Event::Evidence(Evidence::Primary(Primacy {
            token: Some(Token::new(token).unwrap()),
            ..Primacy::default()
        }))
    };
    let mut scenario = Scenario::new(Settings::default());
    assert_eq!(scenario.on(reign(1)), [Action::Start(Run(1))]);
    assert_eq!(scenario.on(Event::Ready(Run(1))), [Action::Register]);
    assert_eq!(scenario.on(reign(1)), []);
    // Lost and won again before the loss was observed.
    assert_eq!(scenario.on(reign(2)), [Action::Deregister, Action::Term(Run(1))]);
    scenario.on(Event::Ended(Run(1), 143));
    assert_eq!(scenario.on(Event::Gone(Run(1))), [Action::Start(Run(2))]);
}

#[test]
fn shutdown_exits_with_the_childs_code() {
    let mut scenario = Scenario::running(Settings::default());
    assert_eq!(scenario.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(scenario.supervisor.stage(), Stage::Draining);
    scenario.pass(100 * MS);
    assert_eq!(scenario.on(Event::Absent), []);
    assert_eq!(scenario.pass(500 * MS), [(500 * MS, Action::Term(Run(1)))]);
    assert_eq!(scenario.supervisor.stage(), Stage::Stopping);
    assert_eq!(scenario.on(Event::Ended(Run(1), 0)), []);
    assert_eq!(scenario.on(Event::Gone(Run(1))), [Action::Exit(0)]);
    assert_eq!(scenario.on(primary()), [], "over is over");
}

#[test]
fn shutdown_fits_the_budget_without_any_response() {
    let mut scenario = Scenario::running(Settings::default());
    assert_eq!(scenario.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(
        scenario.pass(4_500 * MS),
        [
            (1_500 * MS, Action::Term(Run(1))),
            (4_200 * MS, Action::Kill(Run(1))),
            (4_500 * MS, Action::Exit(143)),
        ]
    );
}

#[test]
fn slow_catalog_delays_the_exit_up_to_the_budget() {
    let mut scenario = Scenario::running(Settings::default());
    scenario.on(Event::Stop(143));
    scenario.pass(1_500 * MS);
    scenario.on(Event::Ended(Run(1), 143));
    assert_eq!(scenario.on(Event::Gone(Run(1))), []);
    assert_eq!(scenario.supervisor.stage(), Stage::Leaving);
    assert_eq!(scenario.pass(10 * S), [(3 * S, Action::Exit(143))]);
}

/// The deregistration time-out is over, and the drain delay has begun without a confirmation.
#[test]
fn late_confirmation_does_not_restart_the_drain() {
    let mut scenario = Scenario::running(Settings {
        drain: 1_500 * MS,
        ..Settings::default()
    });
    scenario.on(Event::Stop(143));
    assert_eq!(scenario.pass(1_200 * MS), []);
    assert_eq!(scenario.on(Event::Absent), []);
    assert_eq!(scenario.pass(2 * S).first(), Some(&(1_300 * MS, Action::Term(Run(1)))));
}

#[test]
fn unlisted_service_skips_the_drain() {
    let mut scenario = Scenario::new(Settings::default());
    scenario.on(primary());
    assert_eq!(
        scenario.on(Event::Stop(130)),
        [Action::Deregister, Action::Term(Run(1))]
    );
    scenario.on(Event::Ended(Run(1), 130));
    assert_eq!(scenario.on(Event::Gone(Run(1))), [Action::Exit(130)]);
}

#[test]
fn shutdown_without_a_child_deregisters_and_exits() {
    let mut scenario = Scenario::new(Settings::default());
    assert_eq!(scenario.on(Event::Stop(143)), [Action::Deregister, Action::Exit(143)]);
}

#[test]
fn second_shutdown_request_skips_waits() {
    let mut scenario = Scenario::running(Settings::default());
    scenario.on(Event::Stop(130));
    assert_eq!(scenario.on(Event::Stop(130)), [Action::Term(Run(1))]);
    assert_eq!(
        scenario.pass(S),
        [(300 * MS, Action::Kill(Run(1))), (600 * MS, Action::Exit(130))]
    );
}

#[test]
fn demotion_ends_the_drain() {
    let mut scenario = Scenario::running(Settings::default());
    assert_eq!(scenario.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(scenario.on(replica()), [Action::Term(Run(1))]);
}

#[test]
fn shutdown_during_a_demotion_has_its_own_budget() {
    let mut scenario = Scenario::running(Settings {
        grace: 60 * S,
        ..Settings::default()
    });
    scenario.on(replica());
    scenario.on(Event::Absent);
    scenario.pass(10 * S);
    assert_eq!(scenario.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(scenario.pass(4_200 * MS), [(4_200 * MS, Action::Kill(Run(1)))]);
    scenario.on(Event::Ended(Run(1), 137));
    assert_eq!(scenario.on(Event::Gone(Run(1))), [Action::Exit(137)]);
}

#[test]
fn crash_deregisters_and_exits_with_its_code() {
    let mut scenario = Scenario::running(Settings::default());
    let done = scenario.on(Event::Ended(Run(1), 3));
    assert_eq!(done, [Action::Deregister, Action::Term(Run(1))]);
    assert_eq!(scenario.on(Event::Gone(Run(1))), []);
    assert_eq!(scenario.on(Event::Absent), [Action::Exit(3)]);
}

#[test]
fn failing_child_restarts_with_growing_pauses() {
    let settings = Settings {
        restart: Restart::OnFailure { first: S, most: 5 * S },
        ..Settings::default()
    };
    let mut scenario = Scenario::new(settings);
    scenario.on(primary());
    for (run, pause) in [(1, 1), (2, 2), (3, 4), (4, 5), (5, 5)] {
        assert_eq!(scenario.on(Event::Ended(Run(run), 1)), [Action::Term(Run(run))]);
        assert_eq!(scenario.on(Event::Gone(Run(run))), []);
        assert_eq!(scenario.supervisor.stage(), Stage::BackingOff);
        assert_eq!(scenario.pass(pause * S), [(pause * S, Action::Start(Run(run + 1)))]);
    }
    // It ran long enough, so the pause starts over.
    scenario.pass(5 * S);
    scenario.on(Event::Ended(Run(6), 1));
    scenario.on(Event::Gone(Run(6)));
    assert_eq!(scenario.pass(S), [(S, Action::Start(Run(7)))]);
    // Nothing starts on a replica, however old the failure is.
    scenario.on(Event::Ended(Run(7), 1));
    scenario.on(Event::Gone(Run(7)));
    scenario.on(replica());
    assert_eq!(scenario.pass(60 * S), []);
    assert_eq!(scenario.on(primary()), [Action::Start(Run(8))]);
    // A successful exit is not restarted.
    scenario.on(Event::Ended(Run(8), 0));
    assert_eq!(scenario.on(Event::Gone(Run(8))), [Action::Exit(0)]);
}

#[test]
fn impossible_settings_error_has_the_numbers() {
    let error = Settings {
        drain: 4 * S,
        ..Settings::default()
    }
    .check()
    .unwrap_err();
    for number in ["4.5s", "1s", "4s", "300ms"] {
        assert!(error.to_string().contains(number), "{error}");
    }
    let restart = Restart::OnFailure { first: S, most: MS };
    assert!(
        Settings {
            restart,
            ..Settings::default()
        }
        .check()
        .is_err()
    );
}

#[test]
fn only_a_signal_returns_the_childs_exit_code() {
    for (asked, ended, code) in [(143, 0, 0), (130, 9, 9), (1, 0, 1), (1, 143, 1)] {
        let mut scenario = Scenario::running(Settings::default());
        assert_eq!(scenario.on(Event::Stop(asked)), [Action::Deregister]);
        assert_eq!(scenario.on(Event::Absent), []);
        assert_eq!(scenario.pass(500 * MS), [(500 * MS, Action::Term(Run(1)))]);
        assert_eq!(scenario.on(Event::Ended(Run(1), ended)), []);
        assert_eq!(
            scenario.on(Event::Gone(Run(1))),
            [Action::Exit(code)],
            "{asked}, {ended}"
        );
    }
    // Nor does a later signal.
    let mut scenario = Scenario::running(Settings::default());
    scenario.on(Event::Stop(1));
    scenario.on(Event::Stop(143));
    scenario.on(Event::Absent);
    scenario.on(Event::Ended(Run(1), 0));
    assert_eq!(scenario.on(Event::Gone(Run(1))), [Action::Exit(1)]);
}

#[test]
fn unlisted_service_has_nothing_to_drain() {
    let mut scenario = Scenario::running(Settings::default());
    assert_eq!(scenario.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(scenario.on(Event::Unlisted), [Action::Term(Run(1))]);
    assert_eq!(scenario.supervisor.stage(), Stage::Stopping);
}
