//! The order of the end: the task, then the old key, then the lease. With old keys kept by the test.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tenure::fleet::{Assignment, Fleet, TargetList};
use tenure::{Clock, Error, ErrorKind, JoinOptions, LeaseName, Membership, Result, SystemClock, Tenure};
use tenure_adopt::{OldKeys, OldLeaseSettings, OldLeases, TakeOutcome};
use tenure_testkit::wait;

use crate::leases::patient;

const SOON: Duration = Duration::from_secs(40);

/// Old keys in memory that never expire, and the observations at each release.
#[derive(Default)]
struct Keys {
    held: Mutex<BTreeMap<LeaseName, String>>,
    working: AtomicUsize,
    renewals: AtomicUsize,
    membership: OnceLock<Membership>,
    /// Whether a task was running, and whether the lease was ours.
    released: Mutex<Vec<(bool, bool)>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

#[async_trait]
impl OldKeys for Keys {
    async fn take(&self, wanted: &[(LeaseName, String)]) -> Result<Vec<TakeOutcome>> {
        let mut held = self.held.lock().unwrap();
        let take = |(target, value): &(LeaseName, String)| {
            let by = held.entry(target.clone()).or_insert_with(|| value.clone());
            if by == value {
                return TakeOutcome::Ours;
            }
            TakeOutcome::Held {
                by: by.clone(),
                free_in: None,
            }
        };
        Ok(wanted.iter().map(take).collect())
    }

    async fn renew(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        let keys = self.held.lock().unwrap();
        Ok(held
            .iter()
            .map(|(target, value)| keys.get(target) == Some(value))
            .collect())
    }

    async fn release(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>> {
        let working = self.working.load(Ordering::SeqCst) > 0;
        // tidy: waits for a lease that would be released too early; it would be gone by then.
        SystemClock::new().sleep(Duration::from_millis(200)).await;
        let membership = self
            .membership
            .get()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the test has not begun"))?;
        let mut released = Vec::new();
        for (target, value) in held {
            let lease = membership.leases().look_up(target.as_str()).await?;
            let is_ours = lease.is_some_and(|lease| lease.tenure == membership.tenure());
            self.released.lock().unwrap().push((working, is_ours));
            let mut keys = self.held.lock().unwrap();
            let was_ours = keys.get(target) == Some(value);
            if was_ours {
                keys.remove(target);
            }
            released.push(was_ours);
        }
        Ok(released)
    }
}

struct Working(Arc<Keys>);

impl Working {
    fn begin(keys: &Arc<Keys>) -> Self {
        keys.working.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(keys))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn begin<F, W>(keys: &Arc<Keys>, targets: usize, task: F) -> (Tenure, Fleet)
where
    F: Fn(Assignment) -> W + Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let tenure = Tenure::connect("memory:").await.unwrap();
    let group = tenure.group("pollers").unwrap();
    let membership = group.join(JoinOptions::named("new-a").unwrap()).await.unwrap();
    // Five hundred keys and tasks are slow on a busy machine.
    let settings = OldLeaseSettings::new("{target}", Duration::from_secs(6));
    let shared: Arc<dyn OldKeys> = Arc::<Keys>::clone(keys);
    let old = OldLeases::over(&membership, shared, &settings).unwrap();
    let fleet = Fleet::builder(&membership)
        .targets(TargetList::new((0..targets).map(|n| format!("t-{n}"))).unwrap())
        .settings(patient())
        .start(old.guard_task(task))
        .unwrap();
    assert!(keys.membership.set(membership).is_ok());
    (tenure, fleet)
}

#[tokio::test(flavor = "multi_thread")]
async fn task_ends_then_old_key_then_lease_is_released() {
    let keys = Arc::<Keys>::default();
    let seen = Arc::clone(&keys);
    let work = move |target: Assignment| {
        let seen = Arc::clone(&seen);
        async move {
            let _working = Working::begin(&seen);
            while target.next_cycle().await {
                target.rest(Duration::from_millis(20)).await;
            }
            if target.target().as_str().ends_with('7') {
                // This task does not stop, so it is dropped.
                std::future::pending::<()>().await;
            }
        }
    };
    let (_tenure, fleet) = begin(&keys, 500, work).await;
    wait::until_async("all tasks run", SOON, async || {
        keys.working.load(Ordering::SeqCst) == 500
    })
    .await;
    assert!(fleet.shut_down().await.stubborn.is_empty());
    let released = keys.released.lock().unwrap();
    assert_eq!(released.len(), 500);
    assert!(
        released.iter().all(|(_, is_ours)| *is_ours),
        "the lease is released last"
    );
    assert!(keys.held.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn leaked_assignment_keeps_the_old_key_and_the_lease() {
    let keys = Arc::<Keys>::default();
    let (seen, leaked) = (Arc::clone(&keys), Arc::new(Mutex::new(Vec::new())));
    let leak = Arc::clone(&leaked);
    let work = move |target: Assignment| {
        let (seen, leak) = (Arc::clone(&seen), Arc::clone(&leak));
        async move {
            // Work that continues elsewhere, independent of the task.
            leak.lock().unwrap().push((Working::begin(&seen), target.clone()));
            target.stopping().cancelled().await;
        }
    };
    let (_tenure, fleet) = begin(&keys, 1, work).await;
    wait::until_async("the task runs", SOON, async || !leaked.lock().unwrap().is_empty()).await;
    let draining = async {
        fleet.drain().await;
    };
    let mut draining = std::pin::pin!(draining);
    let before = keys.renewals.load(Ordering::SeqCst);
    tokio::select! {
        () = &mut draining => panic!("released while work continues"),
        () = wait::until_async("its key is renewed for a ttl", SOON, async || {
            keys.renewals.load(Ordering::SeqCst) >= before + 4
        }) => {}
    }
    assert!(keys.released.lock().unwrap().is_empty());
    assert_eq!(fleet.status().held, 1);
    leaked.lock().unwrap().clear();
    draining.await;
    assert_eq!(*keys.released.lock().unwrap(), [(false, true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_task_releases_its_key_and_restarts() {
    let keys = Arc::<Keys>::default();
    let (seen, starts) = (Arc::clone(&keys), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&starts);
    let work = move |target: Assignment| {
        let (seen, count) = (Arc::clone(&seen), Arc::clone(&count));
        async move {
            let _working = Working::begin(&seen);
            assert!(count.fetch_add(1, Ordering::SeqCst) > 0, "the first start panics");
            target.stopping().cancelled().await;
        }
    };
    let (_tenure, fleet) = begin(&keys, 1, work).await;
    wait::until_async("the task is restarted", SOON, async || {
        starts.load(Ordering::SeqCst) == 2
    })
    .await;
    assert_eq!(*keys.released.lock().unwrap(), [(false, true)]);
    assert!(fleet.shut_down().await.stubborn.is_empty());
    assert!(keys.held.lock().unwrap().is_empty());
}
