//! Random histories: a child that may ignore TERM, a catalog that may not answer, evidence that changes, and ticks
//! exactly when requested. The guarantees are checked after every step.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A random input.
#[derive(Debug, Clone)]
enum Operation {
    Pass(Duration),
    /// Primary for this long, with this token.
    Primary(Option<Duration>, Option<u64>),
    Replica,
    Unclear,
    Ready,
    /// The child ends, by itself or after TERM.
    End(u8),
    /// Its descendants are gone.
    Gone,
    CatalogAnswers,
    Stop,
    /// An event of an earlier run, and an unexpected confirmation.
    Stale,
}

fn deed() -> impl Strategy<Value = Operation> {
    let time = (1u64..6_000).prop_map(Duration::from_millis);
    prop_oneof![
        6 => time.clone().prop_map(Operation::Pass),
        3 => (prop::option::of((1u64..20_000).prop_map(Duration::from_millis)), prop::option::of(1u64..3))
            .prop_map(|(time, token)| Operation::Primary(time, token)),
        2 => Just(Operation::Replica),
        2 => Just(Operation::Unclear),
        4 => Just(Operation::Ready),
        2 => prop_oneof![Just(0u8), Just(3), Just(137)].prop_map(Operation::End),
        3 => Just(Operation::Gone),
        3 => Just(Operation::CatalogAnswers),
        1 => Just(Operation::Stop),
        1 => Just(Operation::Stale),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let on_uncertain = prop_oneof![
        Just(OnUncertain::Keep),
        (0u64..8_000).prop_map(|ms| OnUncertain::StopAfter(Duration::from_millis(ms)))
    ];
    let restart = prop_oneof![
        Just(Restart::Never),
        Just(Restart::OnFailure {
            first: 500 * MS,
            most: 4_000 * MS
        })
    ];
    (on_uncertain, restart, 0u64..2_000, 0u64..10_000).prop_map(|(on_uncertain, restart, drain, grace)| Settings {
        on_uncertain,
        restart,
        drain: Duration::from_millis(drain),
        grace: Duration::from_millis(grace),
        ..Settings::default()
    })
}

/// The actual state of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Real {
    None,
    Up {
        ready: bool,
    },
    /// It has ended, and its descendants have not.
    Remains,
}

struct World {
    settings: Settings,
    machine: Supervisor,
    now: Mono,
    child: Real,
    termed: bool,
    killed: bool,
    evidence: Evidence,
    unclear_since: Option<Mono>,
    deadline: Option<Mono>,
    /// The token of the running child.
    token: Option<Token>,
    wanted: bool,
    /// An unconfirmed deregistration.
    unconfirmed: bool,
    ever_wanted: bool,
    first_stop: Option<Mono>,
    deregistered_after: Option<Mono>,
    exit: Option<u8>,
}

impl World {
    fn new(settings: Settings) -> Self {
        let now = Mono::from_origin(Duration::from_secs(1_000));
        Self {
            settings,
            machine: Supervisor::new(settings, now),
            now,
            child: Real::None,
            termed: false,
            killed: false,
            evidence: Evidence::Replica,
            unclear_since: Some(now),
            deadline: None,
            token: None,
            wanted: false,
            unconfirmed: false,
            ever_wanted: false,
            first_stop: None,
            deregistered_after: None,
            exit: None,
        }
    }

    fn play(&mut self, deed: &Operation) {
        match deed {
            Operation::Pass(time) => self.pass(*time),
            Operation::Primary(time, token) => {
                let until = time.map(|time| self.now + time);
                self.deadline = until;
                let primacy = Primacy {
                    until,
                    token: token.map(|token| Token::new(token).unwrap()),
                    ..Primacy::default()
                };
                self.hear(Evidence::Primary(primacy));
            }
            Operation::Replica => self.hear(Evidence::Replica),
            Operation::Unclear => self.hear(Evidence::Uncertain("?".to_owned())),
            Operation::Ready => {
                if let Real::Up { .. } = self.child {
                    self.child = Real::Up { ready: true };
                    self.tell(Event::Ready(self.machine.run()));
                }
            }
            Operation::End(code) => {
                if let Real::Up { .. } = self.child {
                    self.child = Real::Remains;
                    self.tell(Event::Ended(self.machine.run(), *code));
                }
            }
            Operation::Gone => {
                if self.child == Real::Remains {
                    self.child = Real::None;
                    self.tell(Event::Gone(self.machine.run()));
                }
            }
            Operation::CatalogAnswers => {
                if std::mem::take(&mut self.unconfirmed) {
                    self.tell(Event::Absent);
                }
            }
            Operation::Stop => {
                self.first_stop.get_or_insert(self.now);
                self.tell(Event::Stop(143));
            }
            Operation::Stale => {
                let past = Run(self.machine.run().0.saturating_sub(1));
                for event in [Event::Ready(past), Event::Ended(past, 1), Event::Gone(past)] {
                    assert_eq!(self.machine.on(event, self.now), [], "an event of {past}");
                }
            }
        }
    }

    fn hear(&mut self, evidence: Evidence) {
        match evidence {
            Evidence::Uncertain(_) => _ = self.unclear_since.get_or_insert(self.now),
            _ => self.unclear_since = None,
        }
        self.evidence = evidence.clone();
        self.tell(Event::Evidence(evidence));
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.machine.wake().filter(|at| *at <= end) {
            assert!(at > self.now, "the caller would spin");
            self.now = at;
            self.tell(Event::Tick);
        }
        self.now = end;
    }

    fn tell(&mut self, event: Event) {
        for action in self.machine.on(event, self.now) {
            self.act(action);
        }
        self.check();
    }

    fn act(&mut self, action: Action) {
        assert_eq!(self.exit, None, "{action:?} after the exit");
        match action {
            Action::Start(run) => {
                assert_eq!(run, self.machine.run());
                assert_eq!(self.child, Real::None, "the last one is not gone");
                assert!(
                    matches!(self.evidence, Evidence::Primary(_)),
                    "started on {:?}",
                    self.evidence
                );
                assert!(
                    self.deadline.is_none_or(|at| at > self.now),
                    "started after the deadline"
                );
                assert_eq!(self.first_stop, None, "started on the way out");
                self.child = Real::Up { ready: false };
                self.token = self.evidence.token();
                (self.termed, self.killed) = (false, false);
            }
            Action::Register => {
                assert!(!self.wanted);
                (self.wanted, self.ever_wanted, self.unconfirmed) = (true, true, false);
                assert!(
                    matches!(self.evidence, Evidence::Primary(_)),
                    "registered on {:?}",
                    self.evidence
                );
            }
            Action::Deregister => {
                (self.wanted, self.unconfirmed) = (false, true);
                self.deregistered_after = Some(self.now);
            }
            Action::Term(_) => {
                assert_ne!(self.child, Real::None);
                assert!(!self.wanted, "told to end while still in the catalog");
                self.termed = true;
            }
            Action::Kill(_) => {
                assert!(self.termed);
                self.killed = true;
            }
            Action::Exit(code) => {
                assert!(self.deregistered_after.is_some(), "not deregistered on this way out");
                assert!(self.child == Real::None || self.killed, "the child runs on");
                self.exit = Some(code);
            }
        }
    }

    /// The invariants between two steps.
    fn check(&self) {
        if self.wanted {
            assert_eq!(self.child, Real::Up { ready: true }, "in the catalog");
            assert!(!self.termed && self.first_stop.is_none() && self.evidence != Evidence::Replica);
            assert!(
                !matches!(&self.evidence, Evidence::Primary(primacy) if primacy.token != self.token),
                "in the catalog under the token of another reign"
            );
        }
        assert_eq!(self.wanted, self.machine.is_wanted());
        if self.child != Real::None && self.exit.is_none() {
            self.check_child();
        }
        if let Some(at) = self.first_stop
            && self.exit.is_none()
        {
            let gone_by = at + self.settings.stop_budget;
            assert!(self.now < gone_by, "the stop budget is over");
            let killed_by = at + (self.settings.stop_budget - self.settings.reserve);
            assert!(
                self.child == Real::None || self.killed || self.now < killed_by,
                "no KILL in time"
            );
            let termed_by = at + self.settings.deregister + self.settings.drain;
            assert!(
                self.child == Real::None || self.termed || self.now < termed_by,
                "no TERM in time"
            );
        }
    }

    fn check_child(&self) {
        if self.evidence == Evidence::Replica {
            assert!(self.termed, "it runs on a replica");
        }
        if let Evidence::Primary(primacy) = &self.evidence {
            let same = primacy.token == self.token;
            assert!(self.termed || same, "the child runs on with an outdated token");
        }
        if let (Some(since), OnUncertain::StopAfter(after)) = (self.unclear_since, self.settings.on_uncertain) {
            assert!(self.termed || self.now < since + after, "uncertain for too long");
        }
        if let Some(at) = self.deadline {
            let gone = Mono::from_origin(at.since_origin().saturating_sub(self.settings.reserve));
            assert!(self.killed || self.now < gone, "alive when another may be the primary");
        }
        assert!(
            self.child != Real::Remains || self.termed,
            "what it left behind is not stopped"
        );
    }

    /// All parts respond from here on.
    fn settle(&mut self) {
        for _ in 0..40 {
            if self.termed && self.child != Real::None {
                self.play(&Operation::End(143));
                self.play(&Operation::Gone);
            }
            self.play(&Operation::Ready);
            self.play(&Operation::CatalogAnswers);
            self.pass(500 * MS);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn guarantees_hold_for_random_histories(
        settings in settings(),
        deeds in prop::collection::vec(deed(), 1..60),
        ends_as_primary in any::<bool>(),
    ) {
        prop_assume!(settings.check().is_ok());
        let mut world = World::new(settings);
        for deed in &deeds {
            world.play(deed);
        }
        world.play(&if ends_as_primary { Operation::Primary(None, None) } else { Operation::Replica });
        world.settle();
        let expected = match (world.exit, ends_as_primary) {
            (Some(_), _) => Stage::Over,
            (None, true) => Stage::Running,
            (None, false) => Stage::Waiting,
        };
        prop_assert_eq!(world.machine.stage(), expected);
        prop_assert_eq!(world.wanted, expected == Stage::Running);
        prop_assert!(world.first_stop.is_none() || world.exit.is_some(), "no exit after a shutdown request");
    }
}
