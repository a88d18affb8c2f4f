//! The loop itself; what it does with processes is tested with a program of its own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::child::Helpers;
use crate::probe::Probe;
use tenure_core::clock::SystemClock;

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
}
