//! The loop itself; what it does with processes is tested with a program of its own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::child::Helpers;
use crate::probe::Probe;
use tenure_core::clock::{ManualClock, Sleep, SystemClock};

/// Writes down what is wanted, and panics when it is asked how things stand for the second time.
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
async fn a_supervisor_that_panics_takes_the_service_out_of_the_catalog_and_ends() {
    let clock: Arc<dyn Clock> = SystemClock::shared();
    let (_tell, evidence) = watch::channel(Evidence::Replica);
    let (_wish, wishes) = mpsc::channel(1);
    let registration = Broken::default();
    let supervision = Supervision {
        processes: Processes::own(&clock).unwrap(),
        program: Program {
            command: vec!["true".into()],
            helpers: Helpers::of_this_program("launch", "keep"),
        },
        variables: Vec::new(),
        readiness: Readiness::by(Probe::None),
        settings: Settings::default(),
        evidence,
        registration: registration.clone(),
        seat: None,
        wishes,
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

/// One whose sleeps count no suspend.
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
        // The machine is suspended for an hour in the first sleep, which goes on for its full length afterwards.
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
async fn an_instant_that_passes_while_the_machine_is_suspended_is_noticed() {
    let clock = Suspended(ManualClock::new(0, 1), Arc::default());
    let noticed = until(&clock, Some(clock.mono() + Duration::from_secs(600)));
    assert!(noticed.now_or_never().is_some());
}
