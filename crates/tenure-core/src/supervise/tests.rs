//! One story each: what happens, and what is done about it, in order.

use std::time::Duration;

use super::*;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A supervisor, and the time.
struct Story {
    supervisor: Supervisor,
    now: Mono,
}

impl Story {
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

    /// Lets time pass, with a tick whenever one is wanted.
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

    /// Up to a child that is ready, and wanted in the catalog.
    fn running(settings: Settings) -> Self {
        let mut story = Self::new(settings);
        assert_eq!(story.on(primary()), [Action::Start(Run(1))]);
        assert_eq!(story.on(Event::Ready(Run(1))), [Action::Register]);
        story
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
fn nothing_starts_before_there_is_evidence_for_it() {
    let mut story = Story::new(Settings::default());
    assert_eq!(story.pass(3_600 * S), []);
    assert_eq!(story.on(unclear()), []);
    assert_eq!(story.on(replica()), []);
    assert_eq!(story.supervisor.stage(), Stage::Waiting);
    assert_eq!(story.on(primary()), [Action::Start(Run(1))]);
    assert_eq!(story.supervisor.stage(), Stage::Starting);
}

#[test]
fn a_child_is_registered_when_it_is_ready_and_not_before() {
    let mut story = Story::new(Settings::default());
    story.on(primary());
    assert_eq!(story.pass(3 * S), []);
    assert_eq!(story.on(Event::Ready(Run(7))), [], "another run");
    assert_eq!(story.on(Event::Ready(Run(1))), [Action::Register]);
    assert_eq!(story.on(Event::Ready(Run(1))), []);
    assert_eq!(story.supervisor.stage(), Stage::Running);
}

#[test]
fn a_child_that_becomes_ready_in_doubt_is_registered_when_the_doubt_is_over() {
    let mut story = Story::new(Settings::default());
    story.on(primary());
    story.on(unclear());
    assert_eq!(story.on(Event::Ready(Run(1))), []);
    assert_eq!(story.on(primary()), [Action::Register]);
}

#[test]
fn a_demoted_child_leaves_the_catalog_and_is_told_to_end_at_once() {
    let mut story = Story::running(Settings::default());
    assert_eq!(story.on(replica()), [Action::Deregister, Action::Term(Run(1))]);
    assert_eq!(story.pass(2_999 * MS), []);
    assert_eq!(story.on(Event::Ended(Run(1), 143)), []);
    // What it started is still there.
    assert_eq!(story.on(primary()), []);
    assert_eq!(
        story.pass(501 * MS),
        [(MS, Action::Kill(Run(1))), (501 * MS, Action::Kill(Run(1)))]
    );
    assert_eq!(story.on(Event::Gone(Run(1))), [Action::Start(Run(2))]);
}

#[test]
fn doubt_stops_nothing_unless_it_is_told_to() {
    let mut story = Story::running(Settings::default());
    assert_eq!(story.on(unclear()), []);
    assert_eq!(story.pass(86_400 * S), []);

    let mut story = Story::running(Settings {
        on_uncertain: OnUncertain::StopAfter(5 * S),
        ..Settings::default()
    });
    story.on(unclear());
    assert_eq!(story.pass(4 * S), []);
    // Evidence ends it; another reason is the same doubt.
    story.on(primary());
    story.on(unclear());
    assert_eq!(story.pass(4 * S), []);
    story.on(Event::Evidence(Evidence::Uncertain("another reason".to_owned())));
    let done = story.pass(S);
    assert_eq!(done, [(S, Action::Deregister), (S, Action::Term(Run(1)))]);
}

#[test]
fn nothing_of_a_child_is_left_at_the_deadline_of_the_evidence_also_in_doubt() {
    let mut story = Story::new(Settings::default());
    story.primary_for(10 * S);
    story.on(Event::Ready(Run(1)));
    assert_eq!(story.pass(4 * S), []);
    // Renewed: nothing happens at the old deadline.
    story.primary_for(10 * S);
    assert_eq!(story.pass(6 * S), []);
    story.on(unclear());
    assert_eq!(
        story.pass(3_900 * MS),
        [
            (700 * MS, Action::Deregister),
            (700 * MS, Action::Term(Run(1))),
            (3_700 * MS, Action::Kill(Run(1)))
        ]
    );
}

#[test]
fn evidence_that_ends_too_soon_starts_nothing() {
    let mut story = Story::new(Settings::default());
    assert_eq!(story.primary_for(3_300 * MS), []);
    assert_eq!(story.pass(60 * S), []);
    assert_eq!(story.primary_for(3_301 * MS), [Action::Start(Run(1))]);
}

#[test]
fn a_supervisor_that_wakes_up_after_the_deadline_kills_at_once() {
    let mut story = Story::new(Settings::default());
    story.primary_for(10 * S);
    story.now = story.now + 60 * S;
    assert_eq!(story.on(Event::Tick), [Action::Term(Run(1)), Action::Kill(Run(1))]);
}

#[test]
fn a_child_that_was_killed_for_the_deadline_has_not_crashed() {
    let mut story = Story::new(Settings::default());
    story.primary_for(10 * S);
    story.now = story.now + 60 * S;
    let done = story.on(Event::Ended(Run(1), 137));
    assert_eq!(done, [Action::Term(Run(1)), Action::Kill(Run(1))]);
    assert_eq!(story.on(Event::Gone(Run(1))), []);
    assert_eq!(story.primary_for(10 * S), [Action::Start(Run(2))]);
}

#[test]
fn a_child_does_not_go_on_under_the_token_of_an_earlier_reign() {
    let reign = |token| {
        Event::Evidence(Evidence::Primary(Primacy {
            token: Some(Token::new(token).unwrap()),
            ..Primacy::default()
        }))
    };
    let mut story = Story::new(Settings::default());
    assert_eq!(story.on(reign(1)), [Action::Start(Run(1))]);
    assert_eq!(story.on(Event::Ready(Run(1))), [Action::Register]);
    assert_eq!(story.on(reign(1)), []);
    // Lost and won again, so quickly that nobody has heard of the loss.
    assert_eq!(story.on(reign(2)), [Action::Deregister, Action::Term(Run(1))]);
    story.on(Event::Ended(Run(1), 143));
    assert_eq!(story.on(Event::Gone(Run(1))), [Action::Start(Run(2))]);
}

#[test]
fn a_shutdown_deregisters_drains_stops_and_ends_with_the_childs_code() {
    let mut story = Story::running(Settings::default());
    assert_eq!(story.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(story.supervisor.stage(), Stage::Draining);
    story.pass(100 * MS);
    assert_eq!(story.on(Event::Absent), []);
    assert_eq!(story.pass(500 * MS), [(500 * MS, Action::Term(Run(1)))]);
    assert_eq!(story.supervisor.stage(), Stage::Stopping);
    assert_eq!(story.on(Event::Ended(Run(1), 0)), []);
    assert_eq!(story.on(Event::Gone(Run(1))), [Action::Exit(0)]);
    assert_eq!(story.on(primary()), [], "over is over");
}

#[test]
fn a_silent_catalog_and_a_deaf_child_fit_into_the_stop_budget() {
    let mut story = Story::running(Settings::default());
    assert_eq!(story.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(
        story.pass(4_500 * MS),
        [
            (1_500 * MS, Action::Term(Run(1))),
            (4_200 * MS, Action::Kill(Run(1))),
            (4_500 * MS, Action::Exit(143)),
        ]
    );
}

#[test]
fn a_catalog_that_is_slow_holds_up_the_exit_until_the_budget_is_over() {
    let mut story = Story::running(Settings::default());
    story.on(Event::Stop(143));
    story.pass(1_500 * MS);
    story.on(Event::Ended(Run(1), 143));
    assert_eq!(story.on(Event::Gone(Run(1))), []);
    assert_eq!(story.supervisor.stage(), Stage::Leaving);
    assert_eq!(story.pass(10 * S), [(3 * S, Action::Exit(143))]);
}

/// The second for the catalog is over, and the drain delay began without its word.
#[test]
fn a_late_confirmation_does_not_begin_the_drain_anew() {
    let mut story = Story::running(Settings {
        drain: 1_500 * MS,
        ..Settings::default()
    });
    story.on(Event::Stop(143));
    assert_eq!(story.pass(1_200 * MS), []);
    assert_eq!(story.on(Event::Absent), []);
    assert_eq!(story.pass(2 * S).first(), Some(&(1_300 * MS, Action::Term(Run(1)))));
}

#[test]
fn nobody_drains_what_was_in_no_catalog() {
    let mut story = Story::new(Settings::default());
    story.on(primary());
    assert_eq!(story.on(Event::Stop(130)), [Action::Deregister, Action::Term(Run(1))]);
    story.on(Event::Ended(Run(1), 130));
    assert_eq!(story.on(Event::Gone(Run(1))), [Action::Exit(130)]);
}

#[test]
fn whoever_waits_ends_at_once_and_says_so_to_the_catalog() {
    let mut story = Story::new(Settings::default());
    assert_eq!(story.on(Event::Stop(143)), [Action::Deregister, Action::Exit(143)]);
}

#[test]
fn the_second_wish_to_end_goes_fast() {
    let mut story = Story::running(Settings::default());
    story.on(Event::Stop(130));
    assert_eq!(story.on(Event::Stop(130)), [Action::Term(Run(1))]);
    assert_eq!(
        story.pass(S),
        [(300 * MS, Action::Kill(Run(1))), (600 * MS, Action::Exit(130))]
    );
}

#[test]
fn a_demotion_ends_the_drain() {
    let mut story = Story::running(Settings::default());
    assert_eq!(story.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(story.on(replica()), [Action::Term(Run(1))]);
}

#[test]
fn a_shutdown_while_a_demoted_child_stops_has_its_own_budget() {
    let mut story = Story::running(Settings {
        grace: 60 * S,
        ..Settings::default()
    });
    story.on(replica());
    story.on(Event::Absent);
    story.pass(10 * S);
    assert_eq!(story.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(story.pass(4_200 * MS), [(4_200 * MS, Action::Kill(Run(1)))]);
    story.on(Event::Ended(Run(1), 137));
    assert_eq!(story.on(Event::Gone(Run(1))), [Action::Exit(137)]);
}

#[test]
fn a_crash_deregisters_cleans_up_and_ends_with_its_code() {
    let mut story = Story::running(Settings::default());
    let done = story.on(Event::Ended(Run(1), 3));
    assert_eq!(done, [Action::Deregister, Action::Term(Run(1))]);
    assert_eq!(story.on(Event::Gone(Run(1))), []);
    assert_eq!(story.on(Event::Absent), [Action::Exit(3)]);
}

#[test]
fn a_failing_child_is_started_again_after_longer_and_longer_pauses() {
    let settings = Settings {
        restart: Restart::OnFailure { first: S, most: 5 * S },
        ..Settings::default()
    };
    let mut story = Story::new(settings);
    story.on(primary());
    for (run, pause) in [(1, 1), (2, 2), (3, 4), (4, 5), (5, 5)] {
        assert_eq!(story.on(Event::Ended(Run(run), 1)), [Action::Term(Run(run))]);
        assert_eq!(story.on(Event::Gone(Run(run))), []);
        assert_eq!(story.supervisor.stage(), Stage::BackingOff);
        assert_eq!(story.pass(pause * S), [(pause * S, Action::Start(Run(run + 1)))]);
    }
    // It ran for long, so it begins anew.
    story.pass(5 * S);
    story.on(Event::Ended(Run(6), 1));
    story.on(Event::Gone(Run(6)));
    assert_eq!(story.pass(S), [(S, Action::Start(Run(7)))]);
    // Nothing starts on a replica, however long ago the failure was.
    story.on(Event::Ended(Run(7), 1));
    story.on(Event::Gone(Run(7)));
    story.on(replica());
    assert_eq!(story.pass(60 * S), []);
    assert_eq!(story.on(primary()), [Action::Start(Run(8))]);
    // An end that is no failure is an end.
    story.on(Event::Ended(Run(8), 0));
    assert_eq!(story.on(Event::Gone(Run(8))), [Action::Exit(0)]);
}

#[test]
fn settings_that_leave_the_child_no_time_are_refused_with_the_numbers() {
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
fn only_a_signal_leaves_the_exit_code_to_the_child() {
    for (asked, ended, code) in [(143, 0, 0), (130, 9, 9), (1, 0, 1), (1, 143, 1)] {
        let mut story = Story::running(Settings::default());
        assert_eq!(story.on(Event::Stop(asked)), [Action::Deregister]);
        assert_eq!(story.on(Event::Absent), []);
        assert_eq!(story.pass(500 * MS), [(500 * MS, Action::Term(Run(1)))]);
        assert_eq!(story.on(Event::Ended(Run(1), ended)), []);
        assert_eq!(story.on(Event::Gone(Run(1))), [Action::Exit(code)], "{asked}, {ended}");
    }
    // Nor does a signal that comes after it.
    let mut story = Story::running(Settings::default());
    story.on(Event::Stop(1));
    story.on(Event::Stop(143));
    story.on(Event::Absent);
    story.on(Event::Ended(Run(1), 0));
    assert_eq!(story.on(Event::Gone(Run(1))), [Action::Exit(1)]);
}

#[test]
fn service_in_no_catalog_has_nothing_to_drain() {
    let mut story = Story::running(Settings::default());
    assert_eq!(story.on(Event::Stop(143)), [Action::Deregister]);
    assert_eq!(story.on(Event::Unlisted), [Action::Term(Run(1))]);
    assert_eq!(story.supervisor.stage(), Stage::Stopping);
}
