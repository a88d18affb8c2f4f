//! A loop that belongs to an owner: when it turns, what it survives, and when it ends.

use std::collections::VecDeque;

use tenure_core::membership::EndReason;

use super::*;

/// How long it waits after a failure that is not the first.
const PACE: Duration = secs(4);

enum What {
    Fail,
    Panic,
    End,
    Hang,
}

/// Work that goes wrong as told, and is done by the first turn that does not.
struct Work {
    clock: Arc<ManualClock>,
    news: Notify,
    is_due: AtomicBool,
    wrong: Mutex<VecDeque<What>>,
    turned_at: Mutex<Vec<Duration>>,
    told: Mutex<Vec<String>>,
}

impl Keeper for &Work {
    fn news(&self) -> &Notify {
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
            Some(What::Fail) => return Err(Error::new(ErrorKind::Internal, "made to fail")),
            Some(What::Panic) => panic!("made to panic"),
            Some(What::End) => return Err(Error::ended("a@1", EndReason::Lapsed)),
            Some(What::Hang) => std::future::pending().await,
        }
        Ok(())
    }

    fn failed(&self, error: &str) {
        self.told.lock().unwrap().push(error.to_owned());
    }
}

struct Kept {
    work: Arc<Work>,
    over: CancellationToken,
    task: JoinHandle<()>,
}

fn kept(wrong: impl IntoIterator<Item = What>) -> Kept {
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
        keep(owner, &mut &*its).await;
    });
    Kept { work, over, task }
}

impl Kept {
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
async fn a_keeper_turns_for_work_alone_and_ends_with_its_owner() {
    let kept = kept([]);
    settle().await;
    assert_eq!(kept.work.clock.next_wake(), None, "without work it sets no timer");
    kept.work_comes().await;
    assert_eq!(kept.turned_at().len(), 1);
    kept.work.wrong.lock().unwrap().push_back(What::Hang);
    kept.work_comes().await;
    assert_eq!(kept.turned_at().len(), 2);
    kept.over.cancel();
    kept.task.await.unwrap();
}

#[tokio::test]
async fn a_keeper_survives_failures_and_panics_and_backs_off() {
    use What::{Fail, Panic};
    let kept = kept([Fail, Panic, Fail, Panic, Fail, Fail]);
    kept.work_comes().await;
    pass(&kept.work.clock, secs(60)).await;
    let at = kept.turned_at();
    let waits: Vec<_> = at.windows(2).map(|two| two[1] - two[0]).collect();
    let (quick, slow) = waits.split_at(4);
    assert!(
        quick.iter().all(|wait| (PACE / 8..PACE / 2).contains(wait)),
        "{waits:?}"
    );
    assert!(slow.iter().all(|wait| (PACE / 2..PACE * 2).contains(wait)), "{waits:?}");
    assert_eq!(slow.len(), 2, "and then it is done: {waits:?}");
    assert_eq!(*kept.work.told.lock().unwrap(), ["made to fail"]);
}

#[tokio::test]
async fn an_ended_tenure_is_no_failure_and_news_are_heard() {
    let kept = kept([What::End, What::End]);
    settle().await;
    kept.work_comes().await;
    assert_eq!(kept.turned_at().len(), 1);
    kept.work_comes().await;
    assert_eq!(kept.turned_at().len(), 2, "news");
    pass(&kept.work.clock, PACE * 2).await;
    assert_eq!(kept.turned_at().len(), 3, "or a while without any");
    assert!(kept.work.told.lock().unwrap().is_empty());
    assert!(!kept.work.is_due.load(Ordering::Relaxed));
}
