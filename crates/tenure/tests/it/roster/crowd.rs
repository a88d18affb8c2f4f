//! Twice as many concurrent reservations as places.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tenure::ErrorKind;
use tenure::roster::{Reservation, Source};
use tenure_core::ledger::{NewEngagement, ProviderSpec, Status};
use tenure_testkit::{postgres, valkey};
use tokio::task::JoinSet;

use crate::roster::world::*;

const PROVIDERS: usize = 100;
const PLACES: u64 = 5_000;
const CAPACITY: u32 = 50;
const CALLS: usize = 10_000;
const AT_ONCE: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reserves_fill_each_place_once() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::shared() else {
        return;
    };
    let database = postgres.database();
    prepare("crowd", &database, &stale_after(secs(3_600))).await;
    let processes = [
        Process::start("crowd", &valkey.url(), &database, patient()).await,
        Process::start("crowd", &valkey.url(), &database, patient()).await,
    ];
    all_believe(&processes).await;
    let mut arriving = JoinSet::new();
    for part in 0..20 {
        let roster = processes[part % 2].roster.clone();
        arriving.spawn(async move {
            let spec = ProviderSpec {
                capacity: Some(CAPACITY).into(),
                ..ProviderSpec::default()
            };
            for who in (part..PROVIDERS).step_by(20).map(numbered) {
                roster.put_provider(&who, &spec).await.unwrap();
                roster.online(&who).await.unwrap();
            }
        });
    }
    while let Some(arrived) = arriving.join_next().await {
        arrived.unwrap();
    }

    let next = Arc::new(AtomicUsize::new(0));
    let counts: Arc<[AtomicU64; 3]> = Arc::default();
    let mut callers = JoinSet::new();
    for caller in 0..AT_ONCE {
        let (roster, next) = (processes[caller % 2].roster.clone(), Arc::clone(&next));
        let counts = Arc::clone(&counts);
        callers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::SeqCst);
                if n >= CALLS {
                    return;
                }
                let wanted = NewEngagement {
                    status: Status::Active,
                    ..NewEngagement::new(engagement(&format!("e{n}")))
                };
                let counted = loop {
                    match roster.reserve(&wanted).await {
                        Ok(Reservation::Reserved(_)) => break 0,
                        Ok(Reservation::NoneAvailable) => break 1,
                        Ok(Reservation::Conflict(there)) => panic!("{there:?} is in the way"),
                        // Repeating the same name gives the same answer.
                        Err(error) if error.kind() == ErrorKind::Unavailable => {
                            counts[2].fetch_add(1, Ordering::SeqCst);
                        }
                        Err(error) => panic!("{error:?}"),
                    }
                };
                counts[counted].fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    let [reserved, refused, again] = [0, 1, 2].map(|n: usize| counts[n].load(Ordering::SeqCst));
    println!("{reserved} reserved, {refused} refused, {again} asked again");
    assert_eq!((reserved, refused), (PLACES, CALLS as u64 - PLACES));

    let sql = Sql::connect(&database).await;
    let taken = "SELECT count(*), count(DISTINCT provider) FROM tenure.engagements WHERE status = 'active'";
    assert_eq!(sql.rows(taken).await, [format!("{PLACES}|{PROVIDERS}")]);
    let over = "SELECT count(*) FROM tenure.providers p WHERE occupancy > capacity OR occupancy <> \
                (SELECT count(*) FROM tenure.engagements e WHERE e.roster = p.roster AND e.provider = p.provider \
                 AND e.status IN ('pending', 'active'))";
    assert_eq!(sql.number(over).await, 0, "no provider is above its capacity");
    for process in &processes {
        process.until_they_agree().await;
        assert_eq!(process.free().await, (vec![], Source::Mirror));
    }
}
