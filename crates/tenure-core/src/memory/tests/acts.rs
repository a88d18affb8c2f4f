//! Random calls, encoded as numbers, on a small set of names.

use std::time::Duration;

use serde_json::{Value, json};

use crate::call::{Op, Reply};
use crate::id::{Alias, ConnectionId, Key, LeaseName, MemberId, ProviderId, RegistryName, SessionId, TenureId, Term};
use crate::lease::{Acquire, AcquireOutcome, LeaseOf, Leases, LeasesOf, ReleaseLeases, Token};
use crate::ledger::{Provider, RosterSettings, Version};
use crate::membership::{Beat, Beats, End, EndBy, Join, Labels, MemberOf, Members, Revision};
use crate::registry::{ClaimKeys, ClaimMode, ClaimOf, Claims, ReleaseClaim};
use crate::roster::{
    BeatProviders, CountRoster, EndTurn, EnsureTenures, Heartbeat, ListAvailable, ListPending, ListRows, LookUp,
    MarkSeeded, MirrorEntry, OfflineDone, Overwrite, Put, PutProviders, PutRosterSettings, ReadMirrorStatus,
    ReadSettings, Retime, Task, TurnRequest, VerifyRoster,
};
use crate::session::{
    Attach, Attaches, CountSessions, Data, DeleteSession, Detach, Detaches, ListOrphans, PatchSession, SessionByAlias,
    SessionOf, SessionState, Sessions,
};
use crate::store::PageRequest;
use crate::sweep::{
    EndLapsed, ListDoomed, Reap, Reconcile, ReconcileRequest, Release, ReleaseRequest, Spare, Status, Tick,
};
use crate::target::{PutTarget, RemoveTarget, TargetOf, TargetSpec, Targets};
use crate::time::StoreTime;

/// One call, encoded as numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Act {
    pub(super) what: u8,
    pub(super) one: u16,
    pub(super) two: u8,
    pub(super) three: u8,
}

/// The values that a history has received.
#[derive(Debug, Clone)]
pub(super) struct Met {
    pub(super) now: StoreTime,
    pub(super) resumed_at: StoreTime,
    pub(super) tenures: Vec<TenureId>,
    granted: Vec<(TenureId, LeaseName, Token)>,
    passes: u32,
}

pub(super) fn member(n: u8) -> MemberId {
    MemberId::new(format!("m{n}")).unwrap()
}

fn registry(n: u8) -> RegistryName {
    RegistryName::new(["devices", "dev"][usize::from(n % 2)]).unwrap()
}

fn key(n: u8) -> Key {
    Key::new(format!("k{n}")).unwrap()
}

fn lease(n: u8) -> LeaseName {
    LeaseName::new(format!("l{n}")).unwrap()
}

pub(super) fn session(n: u8) -> SessionId {
    SessionId::new(format!("s{}", n % 4)).unwrap()
}

fn connection(n: u8) -> ConnectionId {
    ConnectionId::new(format!("c{}", n % 3)).unwrap()
}

fn alias(n: u8) -> Alias {
    Alias::new(format!("a{}", n % 3)).unwrap()
}

fn data(n: u8) -> Data {
    let field = |name: &str, value: Value| Data::from([(name.to_owned(), value)]);
    match n {
        0 => field("x", json!(1)),
        1 => field("x", Value::Null),
        2 => field("y", json!([1, "two"])),
        _ => Data::new(),
    }
}

fn ttl(n: u8) -> Duration {
    Duration::from_millis([1_000, 2_500, 6_000, 20_000][usize::from(n % 4)])
}

pub(super) fn page(limit: u32) -> PageRequest {
    PageRequest { after: None, limit }
}

impl Act {
    fn yes(self, bit: u8) -> bool {
        self.one >> bit & 1 == 1
    }

    /// The time between the previous call and this one.
    pub(super) fn pause(self) -> Duration {
        let millis = match self.one % 16 {
            0..=8 => 7,
            9..=11 => 300,
            12 | 13 => 900,
            14 => 2_500,
            _ => 9_000,
        };
        Duration::from_millis(millis)
    }
}

impl Met {
    pub(super) fn new(now: StoreTime) -> Self {
        Self {
            now,
            resumed_at: now,
            tenures: Vec::new(),
            granted: Vec::new(),
            passes: 0,
        }
    }

    /// A received tenure, usually the last.
    fn tenure(&self, act: Act) -> TenureId {
        let most = if act.yes(3) { 4 } else { self.tenures.len() };
        let back = usize::from(act.one >> 4) % most.clamp(1, self.tenures.len().max(1));
        let known = self.tenures.iter().rev().nth(back).cloned();
        known.unwrap_or_else(|| TenureId::new(member(0), Term::new(7).unwrap()))
    }

    /// Records the values of a reply.
    pub(super) fn learn(&mut self, op: &Op, reply: &Reply) {
        match (op, reply) {
            (_, Reply::Join(joined)) => self.tenures.push(joined.tenure.clone()),
            (_, Reply::EnsureTenures(seated)) => {
                let new = seated.iter().filter(|seated| seated.new);
                self.tenures.extend(new.map(|seated| seated.tenure.clone()));
            }
            (Op::Acquire(asked), Reply::Acquire(acquired)) => {
                for (lease, outcome) in asked.leases.iter().zip(&acquired.outcomes) {
                    if let AcquireOutcome::Granted { token, .. } = outcome {
                        self.granted.push((asked.tenure.clone(), lease.clone(), *token));
                    }
                }
            }
            (_, Reply::Status(status) | Reply::Tick(status)) => self.resumed_at = status.resumed_at,
            _ => {}
        }
    }

    /// The decoded call.
    pub(super) fn op(&mut self, act: Act) -> Op {
        match act.what {
            0..50 => self.about_holdings(act),
            50..64 => self.about_sessions(act),
            64..82 => self.about_sweeps(act),
            _ => self.about_rosters(act),
        }
    }

    fn about_holdings(&mut self, act: Act) -> Op {
        let (tenure, two, three) = (self.tenure(act), act.two, act.three);
        match act.what {
            0..10 => Op::Join(Join {
                member: member(two),
                ttl: ttl(three),
                labels: Labels::default(),
            }),
            10..18 => Op::Beat(Beats {
                beats: vec![Beat {
                    tenure,
                    ttl: (three == 0).then(|| ttl(two)),
                    revision: Revision::NONE,
                    seen: Revision::NONE,
                }],
            }),
            18..22 => Op::End(End {
                tenure,
                by: match three % 4 {
                    0 => EndBy::NoProgress { stopped: act.yes(2) },
                    _ if act.yes(5) => EndBy::Leave,
                    _ => EndBy::Expel,
                },
                text: None,
            }),
            22..31 => Op::Claim(ClaimKeys {
                registry: registry(three),
                tenure,
                keys: (0..=two % 4).map(|n| key(n + three)).collect(),
                mode: if act.yes(6) {
                    ClaimMode::IfAbsent
                } else {
                    ClaimMode::Take
                },
            }),
            31..34 => Op::ReleaseClaim(ReleaseClaim {
                registry: registry(three),
                key: key(two),
                tenure,
            }),
            34..42 => Op::Acquire(Acquire::new(
                tenure,
                (0..=two % 3).map(|n| lease((n + three) % 6)).collect(),
            )),
            42..46 => {
                let granted = self.granted.iter().rev().nth(usize::from(three % 3)).cloned();
                let (tenure, name, token) = granted.unwrap_or((tenure, lease(0), Token::new(5).unwrap()));
                Op::ReleaseLeases(ReleaseLeases {
                    tenure,
                    leases: vec![(name, token)],
                    to: act.yes(7).then(|| self.tenure(act).member().clone()),
                    seen: Revision::NONE,
                })
            }
            46..49 => Op::PutTarget(PutTarget {
                target: lease(two % 4),
                spec: TargetSpec {
                    paused: act.yes(8),
                    weight: u32::from(three) + 1,
                },
            }),
            _ => Op::RemoveTarget(RemoveTarget { target: lease(two % 4) }),
        }
    }

    fn about_sessions(&mut self, act: Act) -> Op {
        let (tenure, two, three) = (self.tenure(act), act.two, act.three);
        match act.what {
            50..57 => Op::Attach(Attaches {
                tenure,
                attaches: vec![Attach {
                    session: session(two),
                    connection: connection(three),
                    alias: act.yes(5).then(|| alias(three)),
                    data: data(three),
                    grace: act.yes(6).then(|| ttl(two)),
                    resume_only: act.yes(7) && act.yes(8),
                }],
            }),
            57..61 => Op::Detach(Detaches {
                tenure,
                detaches: vec![Detach {
                    session: session(two),
                    connection: connection(three),
                    epoch: None,
                }],
            }),
            61 | 62 => Op::PatchSession(PatchSession {
                session: session(two),
                tenure: act.yes(5).then_some(tenure),
                data: data(three),
            }),
            _ => Op::DeleteSession(DeleteSession { session: session(two) }),
        }
    }

    fn about_sweeps(&mut self, act: Act) -> Op {
        self.passes += 1;
        let request = ReleaseRequest {
            pass: format!("p{}", self.passes),
            limit: u32::from(act.two) + 1,
            force: act.three == 0,
        };
        match act.what {
            64..68 => Op::Tick(Tick::default()),
            68..72 => Op::EndLapsed(EndLapsed { limit: request.limit }),
            72 => Op::Spare(Spare { limit: request.limit }),
            73..78 => Op::Release(Release(request)),
            78..81 => Op::Reap(Reap(request)),
            _ => Op::Reconcile(Reconcile(ReconcileRequest { after: None, limit: 5 })),
        }
    }

    fn about_rosters(&mut self, act: Act) -> Op {
        let (two, three) = (act.two, act.three);
        let provider = ProviderId::from(&member(two));
        match act.what {
            82..87 => Op::PutProviders(PutProviders {
                puts: vec![self.put(act, provider)],
            }),
            87 | 88 => Op::EnsureTenures(EnsureTenures {
                providers: vec![provider, ProviderId::from(&member(three))],
                stale_after: ttl(three),
                beat: act.yes(5),
            }),
            89 | 90 => Op::Heartbeat(BeatProviders {
                heartbeats: vec![Heartbeat {
                    provider,
                    issued_at: None,
                }],
            }),
            91 => Op::PendingOffline(ListPending {
                limit: u32::from(two) + 1,
                force: three == 0,
            }),
            92 => Op::OfflineDone(OfflineDone {
                tenures: vec![
                    self.tenure(act),
                    self.tenure(Act {
                        one: act.one ^ 16,
                        ..act
                    }),
                ],
            }),
            93 => Op::PutRosterSettings(PutRosterSettings {
                settings: RosterSettings {
                    stale_after: ttl(two),
                    require_heartbeat: three > 1,
                    version: Version(u64::from(act.one)),
                    ..RosterSettings::default()
                },
                over: Overwrite::Older,
            }),
            94 => Op::Retime(Retime { limit: 3 }),
            95 => Op::TakeTurn(TurnRequest {
                task: Task::ALL[usize::from(two % 2)],
                holder: format!("h{}", three % 2),
                lasts: ttl(three),
                every: ttl(two),
            }),
            96 => Op::EndTurn(EndTurn {
                task: Task::ALL[usize::from(two % 2)],
                holder: format!("h{}", three % 2),
                done: act.yes(5),
            }),
            97 => Op::MarkSeeded(MarkSeeded { since: self.resumed_at }),
            _ => Op::VerifyRoster(VerifyRoster(ReconcileRequest { after: None, limit: 5 })),
        }
    }

    fn put(&self, act: Act, provider: ProviderId) -> Put {
        let version = Version(u64::from(act.one >> 4));
        if act.three == 0 {
            return Put::newer(MirrorEntry::Gone { provider, version });
        }
        let member = provider.member();
        let online = self.tenures.iter().rev().find(|tenure| *tenure.member() == member);
        Put::newer(MirrorEntry::Row(Provider {
            online: online.filter(|_| act.three > 2).cloned(),
            provider,
            display_name: None,
            active: act.three > 1,
            capacity: 3,
            occupancy: u32::from(act.three % 4),
            last_online_at: None,
            last_offline_at: None,
            last_heartbeat_at: None,
            revoked_before: None,
            version,
        }))
    }

    /// Reads of every kind, on all names.
    pub(super) fn reads(&self) -> Vec<Op> {
        let mut reads = vec![
            Op::Members(Members { page: page(5) }),
            Op::Members(Members { page: page(100) }),
            Op::Leases(Leases {
                holder: None,
                page: page(100),
            }),
            Op::Targets(Targets { page: page(100) }),
            Op::Orphans(ListOrphans {
                overdue: Duration::ZERO,
                limit: 9,
            }),
            Op::SessionStats(CountSessions),
            Op::Status(Status),
            Op::Doomed(ListDoomed { limit: 50 }),
            Op::Available(ListAvailable { page: page(3) }),
            Op::Rows(ListRows { page: page(100) }),
            Op::RosterStats(CountRoster),
            Op::MirrorStatus(ReadMirrorStatus),
            Op::RosterSettings(ReadSettings),
        ];
        for n in 0..14 {
            reads.push(Op::Member(MemberOf { member: member(n) }));
            reads.push(Op::Look(LookUp {
                providers: vec![ProviderId::from(&member(n))],
            }));
            reads.push(Op::Leases(Leases {
                holder: Some(member(n)),
                page: page(2),
            }));
            for of in [Some(member(n)), None] {
                reads.push(Op::Claims(Claims {
                    registry: registry(n),
                    owner: of,
                    page: page(4),
                }));
            }
            for registry in [registry(0), registry(1)] {
                reads.push(Op::ClaimOf(ClaimOf { registry, key: key(n) }));
            }
        }
        for n in 0..6 {
            reads.push(Op::LeaseOf(LeaseOf { lease: lease(n) }));
            reads.push(Op::Target(TargetOf { target: lease(n) }));
            reads.push(Op::Session(SessionOf { session: session(n) }));
            reads.push(Op::SessionByAlias(SessionByAlias { alias: alias(n) }));
        }
        for state in SessionState::ALL.into_iter().map(Some).chain([None]) {
            reads.push(Op::Sessions(Sessions {
                state,
                older_than: Duration::ZERO,
                page: page(3),
            }));
        }
        for tenure in self.tenures.iter().rev().take(8) {
            reads.push(Op::HeldLeases(LeasesOf {
                tenure: tenure.clone(),
                page: page(2),
            }));
        }
        reads
    }
}
