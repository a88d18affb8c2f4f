//! A fleet under load: members that beat and hold claims, two that pass a lease back and forth, and a janitor. It
//! records violations, and the longest outage.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure_core::event::{EventKind, EventLog, EventQuery};
use tenure_core::id::{Group, TenureId};
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::{Beat, BeatReply, Join, Joined, Labels, MembershipStore, Revision};
use tenure_core::registry::{ClaimMode, RegistryStore};
use tenure_core::store::{Call, PageRequest};
use tenure_core::sweep::{ReleaseRequest, SweepSteps};
use tenure_testkit::wait;
use tenure_valkey::ValkeyStore;
use tokio::task::JoinHandle;

use crate::world::{PATIENCE, devices, key, lease, member};

/// Shorter than a typical outage, so only the gap rule keeps the members alive.
const TTL: Duration = Duration::from_secs(3);
const MEMBERS: usize = 12;
const PACE: Duration = Duration::from_millis(50);

/// The observations.
#[derive(Default)]
struct Seen {
    wrong: Vec<String>,
    last_beat: Option<Instant>,
    longest: Duration,
    last_token: u64,
    last_grant: Option<Instant>,
    grants: usize,
    failed: usize,
    last_error: String,
}

struct Shared {
    store: Arc<ValkeyStore>,
    group: Group,
    stop: AtomicBool,
    seen: Mutex<Seen>,
}

/// A fleet in one group.
pub(crate) struct Load {
    shared: Arc<Shared>,
    tenures: Vec<TenureId>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) async fn start(store: &Arc<ValkeyStore>, group: &str) -> Self {
        let shared = Arc::new(Shared {
            store: Arc::clone(store),
            group: Group::new(group).unwrap(),
            stop: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        let mut tenures = Vec::new();
        for n in 0..MEMBERS {
            let joined = join(&shared, n).await;
            claim(&shared, &joined.tenure, n).await;
            tenures.push(joined.tenure);
        }
        let mut tasks = vec![
            tokio::spawn(beat(Arc::clone(&shared), tenures.clone())),
            tokio::spawn(sweep(Arc::clone(&shared))),
            tokio::spawn(read(Arc::clone(&shared), tenures[0].clone())),
        ];
        for tenure in &tenures[..2] {
            tasks.push(tokio::spawn(contend(Arc::clone(&shared), tenure.clone())));
        }
        let load = Self { shared, tenures, tasks };
        load.until_served(Instant::now()).await;
        load
    }

    /// Waits until beats were answered and leases granted after an instant; returns the delay of each.
    pub(crate) async fn until_served(&self, after: Instant) -> (Duration, Duration) {
        let since = |at: Option<Instant>| at.filter(|at| *at > after).map(|at| at - after);
        let (mut beaten, mut granted) = (None, None);
        let deadline = Instant::now() + 2 * PATIENCE;
        while granted.is_none() || beaten.is_none() {
            {
                let seen = self.shared.seen.lock().unwrap();
                beaten = beaten.or(since(seen.last_beat));
                granted = granted.or(since(seen.last_grant));
                assert!(
                    Instant::now() < deadline,
                    "not served: {:?} {:?} after {} failures, at last: {}",
                    beaten,
                    granted,
                    seen.failed,
                    seen.last_error
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // tidy: waits on the next look
        }
        (beaten.unwrap_or_default(), granted.unwrap_or_default())
    }

    /// Stops, and asserts that there was no violation.
    pub(crate) async fn end(self, what: &str) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.expect("no part of the fleet panics");
        }
        let Shared { store, group, seen, .. } = &*self.shared;
        for (n, tenure) in self.tenures.iter().enumerate() {
            let claim = store.claim_of(group, &devices(), &key(&format!("k{n}"))).await.unwrap();
            let claim = claim.unwrap_or_else(|| panic!("{group}: the claim of {tenure} is gone"));
            assert_eq!(claim.tenure, *tenure, "{group}");
        }
        let query = EventQuery {
            after: None,
            limit: 1000,
            kinds: vec![
                EventKind::Lapsed,
                EventKind::Superseded,
                EventKind::Expelled,
                EventKind::Evicted,
            ],
            ..EventQuery::default()
        };
        let events = store.events(group, &query).await.unwrap().events;
        assert!(events.is_empty(), "{group}: {events:?}");
        let seen = seen.lock().unwrap();
        assert!(seen.wrong.is_empty(), "{group}: {:?}", seen.wrong);
        assert!(seen.grants > 0, "{group}: the lease was never granted");
        eprintln!(
            "{what}, {group}: longest time without an answered beat {:?}; {} grants, {} calls failed, at last: {}",
            seen.longest, seen.grants, seen.failed, seen.last_error
        );
    }
}

async fn join(shared: &Shared, n: usize) -> Joined {
    let join = Join {
        member: member(&format!("m{n}")),
        ttl: TTL,
        labels: Labels::default(),
    };
    let joined = std::sync::Mutex::new(None);
    wait::until_async("a member can join", PATIENCE, || async {
        match shared.store.join(&shared.group, &join, Call::default()).await {
            Ok(done) => joined.lock().unwrap().replace(done).is_none(),
            Err(_) => false,
        }
    })
    .await;
    joined.into_inner().unwrap().unwrap()
}

/// A tenure may repeat its own claim.
async fn claim(shared: &Shared, tenure: &TenureId, n: usize) {
    let (keys, registry) = ([key(&format!("k{n}"))], devices());
    wait::until_async("a member can claim", PATIENCE, || async {
        let (mode, call) = (ClaimMode::Take, Call::default());
        let claimed = shared.store.claim(&shared.group, &registry, tenure, &keys, mode, call);
        claimed.await.is_ok()
    })
    .await;
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().unwrap());
    }

    fn failed(&self, error: &tenure_core::Error) {
        self.note(|seen| {
            seen.failed += 1;
            seen.last_error = format!("{error:?}");
        });
        if !error.is_unavailable() && error.kind() != tenure_core::error::ErrorKind::TooLate {
            self.note(|seen| seen.wrong.push(format!("{error:?}")));
        }
    }
}

async fn beat(shared: Arc<Shared>, tenures: Vec<TenureId>) {
    let mut known = vec![Revision::NONE; tenures.len()];
    while shared.goes_on() {
        let beats: Vec<Beat> = tenures
            .iter()
            .zip(&known)
            .map(|(tenure, revision)| Beat {
                tenure: tenure.clone(),
                ttl: None,
                revision: *revision,
                seen: Revision::NONE,
            })
            .collect();
        match shared.store.beat(&shared.group, &beats).await {
            Ok(beaten) => {
                let now = Instant::now();
                shared.note(|seen| {
                    if let Some(last) = seen.last_beat.replace(now) {
                        seen.longest = seen.longest.max(now - last);
                    }
                });
                for ((tenure, reply), known) in tenures.iter().zip(beaten.replies).zip(&mut known) {
                    match reply {
                        BeatReply::Renewed { revision, .. } => *known = revision,
                        other => shared.note(|seen| seen.wrong.push(format!("{tenure}: {other:?}"))),
                    }
                }
            }
            Err(error) => shared.failed(&error),
        }
        tokio::time::sleep(PACE * 2).await; // tidy: waits on the pace of the load
    }
}

async fn contend(shared: Arc<Shared>, tenure: TenureId) {
    let leases = [lease("poll")];
    while shared.goes_on() {
        let acquired = shared
            .store
            .acquire(&shared.group, &tenure, &leases, Call::default())
            .await;
        let token = match acquired.map(|acquired| acquired.outcomes[0].clone()) {
            Ok(AcquireOutcome::Granted { token, .. }) => {
                shared.note(|seen| {
                    if token.get() <= seen.last_token {
                        seen.wrong.push(format!("the token {token} after {}", seen.last_token));
                    }
                    (seen.last_token, seen.last_grant) = (token.get(), Some(Instant::now()));
                    seen.grants += 1;
                });
                Some(token)
            }
            Ok(AcquireOutcome::Kept { token, .. }) => Some(token),
            Ok(_) => None,
            Err(error) => {
                shared.failed(&error);
                None
            }
        };
        tokio::time::sleep(PACE).await; // tidy: waits on the pace of the load
        if let Some(token) = token {
            let held = [(leases[0].clone(), token)];
            if let Err(error) = shared
                .store
                .release_leases(&shared.group, &tenure, &held, None, Call::default())
                .await
            {
                shared.failed(&error);
            }
        }
    }
}

/// A read of a whole group fails rather than returning a part: an existing live member never reads as gone or dead.
async fn read(shared: Arc<Shared>, tenure: TenureId) {
    let (registry, name, page) = (devices(), key("k0"), PageRequest::default());
    while shared.goes_on() {
        match shared.store.claim_of(&shared.group, &registry, &name).await {
            Ok(Some(claim)) if claim.alive && claim.tenure == tenure => {}
            Ok(other) => shared.note(|seen| seen.wrong.push(format!("the claim reads as {other:?}"))),
            Err(error) => shared.failed(&error),
        }
        match shared.store.members(&shared.group, &page).await {
            Ok(page) if page.items.iter().filter(|member| member.alive).count() == MEMBERS => {}
            Ok(page) => shared.note(|seen| seen.wrong.push(format!("the members read as {:?}", page.items))),
            Err(error) => shared.failed(&error),
        }
        tokio::time::sleep(PACE).await; // tidy: waits on the pace of the load
    }
}

async fn sweep(shared: Arc<Shared>) {
    let release = ReleaseRequest {
        pass: "load".to_owned(),
        limit: 100,
        force: false,
    };
    while shared.goes_on() {
        let steps = async {
            shared.store.tick(&shared.group).await?;
            shared.store.end_lapsed(&shared.group, 100, Call::default()).await?;
            shared.store.release(&shared.group, &release, Call::default()).await
        };
        if let Err(error) = steps.await {
            shared.failed(&error);
        }
        tokio::time::sleep(PACE * 2).await; // tidy: waits on the pace of the load
    }
}
