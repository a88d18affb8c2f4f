//! Owned loops: when they turn, what they survive, and when they end.

use std::collections::VecDeque;

use tenure_core::membership::EndReason;

use super::*;

/// The pause after a failure that is not the first.
const PACE: Duration = secs(4);

enum Failure {
    Fail,
    Panic,
    End,
    Hang,
}

/// A body with scripted failures; the first successful turn completes the work.
struct Work {
    clock: Arc<ManualClock>,
    news: Notify,
    is_due: AtomicBool,
    wrong: Mutex<VecDeque<Failure>>,
    turned_at: Mutex<Vec<Duration>>,
    told: Mutex<Vec<String>>,
}

impl OwnedLoop for &Work {
    fn wakeup(&self) -> &Notify {
        &self.news
    }

    fn due_in(&self) -> Option<Duration> {
        self.is_due.load(Ordering::Relaxed).then_some(Duration::ZERO)
    }

    async fn turn(&mut self) -> Result<()> {
        self.turned_at.lock().unwrap().push(self.clock.mono().since_origin());
        let wrong = self.wrong.lock().unwrap().pop_front();
        match wrong {
            None => self.is_due.store(false, Ordering::Relaxed),
            Some(Failure::Fail) => return Err(Error::new(ErrorKind::Internal, "made to fail")),
            Some(Failure::Panic) => panic!("made to panic"),
            Some(Failure::End) => return Err(Error::ended("a@1", EndReason::Lapsed)),
            Some(Failure::Hang) => std::future::pending().await,
        }
        Ok(())
    }

    fn failed(&self, error: &str) {
        self.told.lock().unwrap().push(error.to_owned());
    }
}

struct Fixture {
    work: Arc<Work>,
    over: CancellationToken,
    task: JoinHandle<()>,
}

fn fixture(wrong: impl IntoIterator<Item = Failure>) -> Fixture {
    let work = Arc::new(Work {
        clock: Arc::new(ManualClock::new(START, 1)),
        news: Notify::new(),
        is_due: AtomicBool::new(false),
        wrong: Mutex::new(wrong.into_iter().collect()),
        turned_at: Mutex::default(),
        told: Mutex::default(),
    });
    let over = CancellationToken::new();
    let (its, until) = (Arc::clone(&work), over.clone());
    let task = tokio::spawn(async move {
        let owner = Owner {
            clock: &*its.clock,
            pace: PACE,
            over: &until,
        };
        run_owned(owner, &mut &*its).await;
    });
    Fixture { work, over, task }
}

impl Fixture {
    async fn work_comes(&self) {
        self.work.is_due.store(true, Ordering::Relaxed);
        self.work.news.notify_one();
        settle().await;
    }

    fn turned_at(&self) -> Vec<Duration> {
        self.work.turned_at.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn loop_turns_only_for_work_and_ends_with_its_owner() {
    let fixture = fixture([]);
    settle().await;
    assert_eq!(fixture.work.clock.next_wake(), None, "without work it sets no timer");
    fixture.work_comes().await;
    assert_eq!(fixture.turned_at().len(), 1);
    fixture.work.wrong.lock().unwrap().push_back(Failure::Hang);
    fixture.work_comes().await;
    assert_eq!(fixture.turned_at().len(), 2);
    fixture.over.cancel();
    fixture.task.await.unwrap();
}

#[tokio::test]
async fn loop_survives_failures_and_panics_and_backs_off() {
    use Failure::{Fail, Panic};
    let fixture = fixture([Fail, Panic, Fail, Panic, Fail, Fail]);
    fixture.work_comes().await;
    pass(&fixture.work.clock, secs(60)).await;
    let at = fixture.turned_at();
    let waits: Vec<_> = at.windows(2).map(|two| two[1] - two[0]).collect();
    let (quick, slow) = waits.split_at(4);
    assert!(
        quick.iter().all(|wait| (PACE / 8..PACE / 2).contains(wait)),
        "{waits:?}"
    );
    assert!(slow.iter().all(|wait| (PACE / 2..PACE * 2).contains(wait)), "{waits:?}");
    assert_eq!(slow.len(), 2, "and then it is done: {waits:?}");
    assert_eq!(*fixture.work.told.lock().unwrap(), ["made to fail"]);
}

#[tokio::test]
async fn ended_tenure_is_not_a_failure_and_wakeups_count() {
    let fixture = fixture([Failure::End, Failure::End]);
    settle().await;
    fixture.work_comes().await;
    assert_eq!(fixture.turned_at().len(), 1);
    fixture.work_comes().await;
    assert_eq!(fixture.turned_at().len(), 2, "news");
    pass(&fixture.work.clock, PACE * 2).await;
    assert_eq!(fixture.turned_at().len(), 3, "or after a while without a wake-up");
    assert!(fixture.work.told.lock().unwrap().is_empty());
    assert!(!fixture.work.is_due.load(Ordering::Relaxed));
}
