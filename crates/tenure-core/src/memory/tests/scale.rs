//! The durations of steps and reads on a large group, and its memory. Run it manually in a release build: `cargo test
//! --release -p tenure-core memory::tests::scale -- --ignored --nocapture`.

use std::time::Duration;

use super::acts::page;
use crate::call::Op;
use crate::id::{Key, LeaseName, MemberId, ProviderId, RegistryName, TenureId};
use crate::lease::{Acquire, Leases};
use crate::ledger::{Provider, Version};
use crate::membership::{Beat, Beats, End, EndBy, Join, Labels, MemberOf, Members, Revision};
use crate::memory::GroupModel;
use crate::memory::rows::RowKey;
use crate::registry::{ClaimKeys, ClaimMode, Claims};
use crate::roster::{
    CountAvailable, CountRoster, ListAvailable, ListPending, ListRows, MirrorEntry, Put, PutProviders, VerifyRoster,
};
use crate::session::{CountSessions, Sessions};
use crate::store::{Call, StoreOptions};
use crate::sweep::{EndLapsed, ListDoomed, Reap, ReconcileRequest, Release, ReleaseRequest, Status, Tick};
use crate::time::StoreTime;

const MEMBERS: usize = 100_000;
const CLAIMS: usize = 1_000_000;
/// Ended tenures that were expelled and hold a lease, whose release must wait.
const WAITING: usize = 50_000;
const TTL: Duration = Duration::from_secs(60);

struct Large {
    model: GroupModel,
    now: StoreTime,
    step: u64,
    worst: Vec<(Duration, String)>,
}

impl Large {
    fn timed(&mut self, what: &str, op: &Op) {
        self.now = self.now + Duration::from_micros(200);
        let begun = cpu();
        let read = op.is_read() && !matches!(op, Op::Availability(_));
        match read {
            true => drop(std::hint::black_box(self.model.look_up(op, self.now))),
            false => {
                self.step += 1;
                self.model.begin_step(self.step);
                drop(std::hint::black_box(self.model.decide(op, Call::default(), self.now)));
            }
        }
        let took = cpu().saturating_sub(begun);
        self.worst.push((took, what.to_owned()));
    }

    fn commit(&mut self) {
        let begun = cpu();
        let taken = self.model.take();
        let took = cpu().saturating_sub(begun);
        let rows = taken.rows.len();
        drop(std::hint::black_box(taken.rows));
        let number = taken.number;
        let begun = cpu();
        self.model.durable(number);
        let marked = cpu().saturating_sub(begun);
        if rows <= 1_000 {
            self.worst.push((took, "take of up to 1,000 rows".to_owned()));
            self.worst.push((marked, "durable of up to 1,000 rows".to_owned()));
        }
    }

    /// The slowest operation of each kind since the last call.
    fn report(&mut self, title: &str) {
        let mut kinds: Vec<(String, Vec<Duration>)> = Vec::new();
        for (took, what) in std::mem::take(&mut self.worst) {
            match kinds.iter_mut().find(|(kind, _)| *kind == what) {
                Some((_, all)) => all.push(took),
                None => kinds.push((what, vec![took])),
            }
        }
        println!("{title}");
        for (what, mut all) in kinds {
            all.sort();
            let (middle, worst) = (all[all.len() / 2], all[all.len() - 1]);
            let mark = if worst > Duration::from_millis(2) {
                "  <-- slow"
            } else {
                ""
            };
            println!(
                "  {what:<44} {:>6} x  p50 {middle:>10.1?}  max {worst:>10.1?}{mark}",
                all.len()
            );
        }
    }
}

/// The CPU time of this thread, so that other processes do not count.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

fn name(kind: &str, n: usize) -> String {
    format!("{kind}-{n:0>width$}", width = 23 - kind.len())
}

fn member(n: usize) -> MemberId {
    MemberId::new(name("member", n)).unwrap()
}

fn join(n: usize) -> Op {
    Op::Join(Join {
        member: member(n),
        ttl: TTL,
        labels: Labels::default(),
    })
}

fn beats(tenures: &[TenureId], from: usize) -> Op {
    let some = tenures.iter().cycle().skip(from).take(200);
    let beat = |tenure: &TenureId| Beat {
        tenure: tenure.clone(),
        ttl: None,
        revision: Revision::NONE,
        seen: Revision::NONE,
    };
    Op::Beat(Beats {
        beats: some.map(beat).collect(),
    })
}

fn tenure_of(model: &GroupModel, n: usize) -> TenureId {
    let member = member(n);
    let term = model.lives.get(&member).unwrap().term;
    TenureId::new(member, term)
}

fn release(large: &mut Large) -> Op {
    let pass = format!("p{}", large.step);
    Op::Release(Release(ReleaseRequest {
        pass,
        limit: 200,
        force: false,
    }))
}

fn looks(now: StoreTime) -> Vec<(&'static str, Op)> {
    let owner = Some(member(77));
    let far = |text: String| crate::store::PageRequest {
        after: Some(text),
        limit: 200,
    };
    let registry = || RegistryName::new("devices").unwrap();
    vec![
        ("read status", Op::Status(Status)),
        ("read member", Op::Member(MemberOf { member: member(5) })),
        (
            "read members, page in the middle",
            Op::Members(Members {
                page: far(name("member", MEMBERS / 2)),
            }),
        ),
        (
            "read claims, page in the middle",
            Op::Claims(Claims {
                registry: registry(),
                owner: None,
                page: far(name("key", CLAIMS / 2)),
            }),
        ),
        (
            "read claims of an owner",
            Op::Claims(Claims {
                registry: registry(),
                owner: owner.clone(),
                page: page(200),
            }),
        ),
        (
            "read leases of a holder",
            Op::Leases(Leases {
                holder: owner,
                page: page(200),
            }),
        ),
        (
            "read leases",
            Op::Leases(Leases {
                holder: None,
                page: page(200),
            }),
        ),
        ("read doomed", Op::Doomed(ListDoomed { limit: 200 })),
        (
            "read sessions",
            Op::Sessions(Sessions {
                state: None,
                older_than: Duration::ZERO,
                page: page(200),
            }),
        ),
        ("read session stats", Op::SessionStats(CountSessions)),
        ("read available", Op::Available(ListAvailable { page: page(200) })),
        (
            "count available",
            Op::Availability(CountAvailable {
                snapshot: Duration::ZERO,
            }),
        ),
        (
            "read rows of providers",
            Op::Rows(ListRows {
                page: far(name("member", MEMBERS / 2)),
            }),
        ),
        ("read roster stats", Op::RosterStats(CountRoster)),
        (
            "verify roster",
            Op::VerifyRoster(VerifyRoster(ReconcileRequest {
                after: None,
                limit: 200,
            })),
        ),
        (
            "pending offline",
            Op::PendingOffline(ListPending {
                limit: 200,
                force: false,
            }),
        ),
        ("tick", Op::Tick(Tick::default())),
        ("end lapsed", Op::EndLapsed(EndLapsed { limit: 200 })),
        (
            "reap",
            Op::Reap(Reap(ReleaseRequest {
                pass: format!("r{}", now.micros()),
                limit: 200,
                force: false,
            })),
        ),
    ]
}

fn reads(large: &mut Large) {
    for (what, op) in &looks(large.now) {
        for _ in 0..5 {
            large.timed(what, op);
        }
    }
    for _ in 0..5 {
        let op = release(large);
        large.timed("release", &op);
    }
}

#[test]
#[ignore = "a measurement, for a release build"]
fn steps_on_a_large_group_take_less_than_two_milliseconds() {
    let now = StoreTime::from_micros(1_700_000_000_000_000);
    let options = StoreOptions::default();
    let mut large = Large {
        model: GroupModel::new(options.clone(), now).kept(),
        now,
        step: 0,
        worst: Vec::new(),
    };
    let empty = resident();
    for n in 0..MEMBERS {
        large.timed("join", &join((n * 7_919) % MEMBERS));
        if n % 500 == 0 {
            large.commit();
        }
    }
    large.commit();
    let joined = resident();
    println!("{} B per member", (joined - empty) / MEMBERS);
    let tenures: Vec<TenureId> = (0..MEMBERS).map(|n| tenure_of(&large.model, n)).collect();
    let (registry, before) = (RegistryName::new("devices").unwrap(), resident());
    for n in 0..CLAIMS / 200 {
        let keys = (0..200).map(|key| Key::new(name("key", (n * 200 + key) * 7_919 % CLAIMS)).unwrap());
        let claim = ClaimKeys {
            registry: registry.clone(),
            tenure: tenures[n * 13 % MEMBERS].clone(),
            keys: keys.collect(),
            mode: ClaimMode::Take,
        };
        large.timed("claim 200 keys", &Op::Claim(claim));
        large.commit();
        if n % 10 == 0 {
            large.timed("beat 200", &beats(&tenures, n * 200));
        }
    }
    println!("{} B per claim", (resident() - before) / CLAIMS);
    large.report("filled");
    leases_and_providers(&mut large, &tenures);
    large.commit();
    reads(&mut large);
    large.report("leases and providers");
    for n in 0..WAITING {
        let tenure = tenures[n].clone();
        large.timed(
            "expel",
            &Op::End(End {
                tenure,
                by: EndBy::Expel,
                text: None,
            }),
        );
        if n % 200 == 0 {
            large.timed("beat 200", &beats(&tenures[WAITING..], n));
            large.commit();
        }
    }
    large.now = large.now + Duration::from_secs(1);
    reads(&mut large);
    large.report("50,000 ended and waiting");
    large.now = large.now + TTL * 2;
    large.timed("tick after a gap", &Op::Tick(Tick::default()));
    large.now = large.now + Duration::from_secs(1);
    let mut ended = 0;
    while large.now < now + TTL * 9 && ended < 200 {
        large.now = large.now + Duration::from_secs(1);
        large.timed("tick", &Op::Tick(Tick::default()));
        large.timed("end lapsed", &Op::EndLapsed(EndLapsed { limit: 200 }));
        ended += 1;
        large.commit();
    }
    for _ in 0..300 {
        large.timed("end lapsed", &Op::EndLapsed(EndLapsed { limit: 200 }));
        large.commit();
    }
    reads(&mut large);
    large.report("everyone lapsed, braked");
    for second in 0..400 {
        large.now = large.now + Duration::from_secs(1);
        large.timed("tick", &Op::Tick(Tick::default()));
        let op = release(&mut large);
        large.timed(if second < 350 { "release" } else { "release later" }, &op);
        large.commit();
    }
    reads(&mut large);
    large.report("after the brake");
    reload(&mut large, options);
}

fn leases_and_providers(large: &mut Large, tenures: &[TenureId]) {
    for n in 0..WAITING {
        let acquire = Acquire::new(tenures[n].clone(), vec![LeaseName::new(name("lease", n)).unwrap()]);
        large.timed("acquire", &Op::Acquire(acquire));
        let put = Put::newer(MirrorEntry::Row(provider(n, &tenures[n])));
        large.timed("put provider", &Op::PutProviders(PutProviders { puts: vec![put] }));
        if n % 200 == 0 {
            large.timed("beat 200", &beats(tenures, MEMBERS - n));
            large.commit();
        }
    }
    for (n, tenure) in tenures.iter().enumerate().skip(WAITING) {
        let put = Put::newer(MirrorEntry::Row(provider(n, tenure)));
        large.timed("put provider", &Op::PutProviders(PutProviders { puts: vec![put] }));
        if n % 200 == 0 {
            large.commit();
        }
    }
}

fn reload(large: &mut Large, options: StoreOptions) {
    let group = large.model.group_row();
    let rows = large.model.claims.iter().map(|((registry, key), tenure)| {
        let key = RowKey::Claim(registry.clone(), key.clone());
        (key, crate::memory::rows::Row::Claim(tenure.clone()))
    });
    let rows = rows.collect::<Vec<_>>();
    let (count, begun) = (rows.len(), cpu());
    let loaded = GroupModel::load(options, group, rows, large.now);
    println!("load of {count} claims: {:.1?}", cpu().saturating_sub(begun));
    drop(std::hint::black_box(loaded));
}

fn provider(n: usize, tenure: &TenureId) -> Provider {
    Provider {
        provider: ProviderId::from(&member(n)),
        display_name: None,
        active: true,
        online: Some(tenure.clone()),
        capacity: 5,
        occupancy: u32::try_from(n % 6).unwrap(),
        last_online_at: None,
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version: Version(1),
    }
}
