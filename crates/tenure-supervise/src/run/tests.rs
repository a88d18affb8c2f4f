//! Tests of the event loop; the fixture program of the integration tests covers its processes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::child::Helpers;
use crate::probe::Probe;
use tenure_core::clock::{ManualClock, Sleep, SystemClock};

/// Records the desired states and panics on the second status call.
#[derive(Debug, Clone, Default)]
struct Broken {
    wanted: Arc<Mutex<Vec<bool>>>,
    asked: Arc<AtomicU32>,
}

impl Registration for Broken {
    fn want(&mut self, registered: bool) {
        self.wanted.lock().unwrap().push(registered);
    }

    async fn absent(&mut self) {}

    fn is_listed(&self) -> bool {
        false
    }

    fn status(&self) -> String {
        assert!(self.asked.fetch_add(1, Ordering::Relaxed) == 0, "on purpose");
        String::new()
    }
}

#[tokio::test]
async fn panicking_supervisor_deregisters_and_exits() {
    let clock: Arc<dyn Clock> = SystemClock::shared();
    let (_tell, evidence) = watch::channel(Evidence::Replica);
    let (_sender, signals) = mpsc::channel(1);
    let registration = Broken::default();
    let supervision = Supervision {
        processes: Processes::adopting(&clock).unwrap(),
        program: Program {
            command: vec!["true".into()],
            helpers: Helpers::of_this_program("launch", "keep"),
        },
        variables: Vec::new(),
        readiness: Readiness::by(Probe::None),
        settings: Settings::default(),
        evidence,
        registration: registration.clone(),
        guard: None,
        signals,
        clock,
    };
    let status = supervision.status();
    let ended = supervision.run(&status).await;
    assert_eq!(
        ended,
        Ended {
            code: FAILED,
            is_gone: true
        }
    );
    assert_eq!(*registration.wanted.lock().unwrap(), [false]);
    let told = status.borrow();
    assert_eq!((told.state, told.pid), ("over", None));
    assert_eq!(told.reason.as_deref(), Some("the supervisor panicked"));
}

/// A clock whose sleeps do not count suspend.
#[derive(Debug)]
struct Suspended(ManualClock, Arc<AtomicU32>);

impl Clock for Suspended {
    fn mono(&self) -> Mono {
        self.0.mono()
    }

    fn wall_micros(&self) -> u64 {
        self.0.wall_micros()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        // The machine is suspended for an hour during the first sleep, which then continues for its full length.
        let first = self.1.fetch_add(1, Ordering::Relaxed) == 0;
        self.0.advance(Duration::from_secs(if first { 3_600 } else { 0 }));
        let short = duration <= LOOK;
        Box::pin(async move {
            if !short {
                pending::<()>().await;
            }
        })
    }

    fn entropy(&self) -> u64 {
        self.0.entropy()
    }
}

#[tokio::test]
async fn deadline_passed_during_suspend_is_noticed() {
    let clock = Suspended(ManualClock::new(0, 1), Arc::default());
    let noticed = until(&clock, Some(clock.mono() + Duration::from_secs(600)));
    assert!(noticed.now_or_never().is_some());
}
