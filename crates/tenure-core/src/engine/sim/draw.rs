//! Random calls of every kind, on few names, so that they meet.

use std::time::Duration;

use super::known::Known;
use crate::call::Op;
use crate::conformance::Chance;
use crate::event::{EventId, EventQuery};
use crate::id::{Key, LeaseName, MemberId, RegistryName, TenureId, Term};
use crate::lease::{Acquire, Holders, LeaseOf, Leases, LeasesOf, ReleaseLeases, Token};
use crate::membership::{Beat, Beats, End, EndBy, Join, Labels, MemberOf, Members, Revision, SetLabels};
use crate::registry::{ClaimKeys, ClaimMode, ClaimOf, Claims, ReleaseClaim};
use crate::settling::GapCause;
use crate::store::PageRequest;
use crate::sweep::{
    EndLapsed, ForgetGroup, ListDoomed, Reap, Reconcile, ReconcileRequest, Release, ReleaseRequest, Settle, Status,
};
use crate::target::{PutTarget, RemoveTarget, TargetOf, TargetSpec, Targets};

/// Ttls of members. The shortest makes the gap 416 ms.
const TTLS: [u64; 4] = [1_000, 1_000, 2_500, 6_000];
/// The whole of what there is.
pub(super) const ALL: PageRequest = PageRequest {
    after: None,
    limit: 1_000,
};

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn member(n: usize) -> MemberId {
    MemberId::new(format!("m{n}")).expect("a name")
}

const ENDS: [EndBy; 4] = [
    EndBy::Leave,
    EndBy::Expel,
    EndBy::NoProgress { stopped: false },
    EndBy::NoProgress { stopped: true },
];

fn registry(n: usize) -> RegistryName {
    RegistryName::new(format!("r{n}")).expect("a name")
}

pub(super) fn key(n: usize) -> Key {
    Key::new(format!("k{n}")).expect("a name")
}

pub(super) fn lease(n: usize) -> LeaseName {
    LeaseName::new(format!("l{n}")).expect("a name")
}

/// One of the tenures that are known, most often a late one; sometimes one that never was.
pub(super) fn tenure(chance: &mut Chance, known: &Known) -> TenureId {
    let back = match chance.below(3) {
        0 => chance.below(known.tenures.len() + 1),
        _ => chance.below(known.tenures.len().min(6) + 1),
    };
    let found = known.tenures.iter().rev().nth(back).cloned();
    found.unwrap_or_else(|| TenureId::new(member(99), Term::new(3).expect("a term")))
}

fn labels(n: usize) -> Labels {
    let label = |n: usize| (format!("label{n}"), n.to_string());
    Labels::new((0..n).map(label).collect()).expect("good labels")
}

/// A call that may change something.
pub(super) fn step(chance: &mut Chance, known: &mut Known) -> Op {
    match chance.below(31) {
        0..=3 => Op::Join(Join {
            member: member(chance.below(8)),
            ttl: ms(*chance.of(&TTLS)),
            labels: labels(chance.below(2)),
        }),
        4..=7 => beats(chance, known),
        8 => Op::End(End {
            tenure: tenure(chance, known),
            by: *chance.of(&ENDS),
            text: None,
        }),
        9..=11 => claims(chance, known),
        12..=14 => acquire(chance, known),
        15 | 16 => release(chance, known),
        17..=20 => super::draw_session::step(chance, known),
        21..=24 => super::draw_roster::step(chance, known),
        25 => Op::SetLabels(SetLabels {
            tenure: tenure(chance, known),
            labels: labels(chance.below(3)),
        }),
        _ => sweep(chance, known),
    }
}

/// The number of holders of a lease: the last two are shared.
pub(super) fn holders(lease: &LeaseName) -> Holders {
    let is_shared = (4..6).any(|n| *lease == self::lease(n));
    Holders::new(if is_shared { 2 } else { 1 }).expect("a valid number")
}

fn acquire(chance: &mut Chance, known: &Known) -> Op {
    let first = lease(chance.below(6));
    let holders = holders(&first);
    let among = if holders.is_one() { 0..4 } else { 4..6 };
    let more = (0..chance.below(3)).map(|_| lease(among.start + chance.below(among.len())));
    let leases = std::iter::once(first).chain(more).collect();
    Op::Acquire(Acquire {
        holders,
        ..Acquire::new(tenure(chance, known), leases)
    })
}

fn beats(chance: &mut Chance, known: &Known) -> Op {
    let beat = |chance: &mut Chance| Beat {
        tenure: tenure(chance, known),
        ttl: (chance.below(8) == 0).then(|| ms(*chance.of(&TTLS))),
        revision: match chance.below(3) {
            0 => known.revisions.last().copied().unwrap_or_default(),
            _ => Revision::NONE,
        },
        seen: Revision::NONE,
    };
    let mut beats: Vec<Beat> = (0..=chance.below(3)).map(|_| beat(chance)).collect();
    let mut seen = std::collections::BTreeSet::new();
    beats.retain(|beat| seen.insert(beat.tenure.clone()));
    Op::Beat(Beats { beats })
}

fn claims(chance: &mut Chance, known: &Known) -> Op {
    let (tenure, registry) = (tenure(chance, known), registry(chance.below(2)));
    match chance.below(4) {
        0 => Op::ReleaseClaim(ReleaseClaim {
            registry,
            key: key(chance.below(8)),
            tenure,
        }),
        _ => Op::Claim(ClaimKeys {
            registry,
            tenure,
            keys: (0..=chance.below(3)).map(|_| key(chance.below(8))).collect(),
            mode: *chance.of(&[ClaimMode::Take, ClaimMode::IfAbsent]),
        }),
    }
}

/// Mostly what was granted; sometimes to a member that is to have it next.
fn release(chance: &mut Chance, known: &Known) -> Op {
    let to = (chance.below(2) == 0).then(|| member(chance.below(8)));
    let back = chance.below(4);
    let granted = known.granted.iter().rev().nth(back).cloned();
    let (tenure, name, token) =
        granted.unwrap_or_else(|| (tenure(chance, known), lease(0), Token::new(1).expect("a token")));
    let leases = vec![(name, token)];
    Op::ReleaseLeases(ReleaseLeases {
        tenure,
        leases,
        to,
        seen: Revision::NONE,
    })
}

/// A request of a pass of its own.
pub(super) fn pass(chance: &mut Chance, known: &mut Known) -> ReleaseRequest {
    known.passes += 1;
    ReleaseRequest {
        pass: format!("p{}", known.passes),
        limit: u32::try_from(1 + chance.below(4)).unwrap_or(1),
        force: chance.below(8) == 0,
    }
}

fn sweep(chance: &mut Chance, known: &mut Known) -> Op {
    match chance.below(12) {
        // All of them: which come first depends on an index that is not stored.
        0..=2 => Op::EndLapsed(EndLapsed { limit: 50 }),
        3..=5 => Op::Release(Release(pass(chance, known))),
        6 => Op::Reap(Reap(pass(chance, known))),
        // A refusal lengthens lives in memory alone, durable or not; the judge does not follow that.
        7 | 8 => Op::Reconcile(Reconcile(ReconcileRequest {
            after: None,
            limit: 1_000,
        })),
        9 => Op::Settle(Settle {
            cause: (chance.below(2) == 0).then_some(GapCause::Silent),
        }),
        10 => match chance.below(3) {
            0 => Op::RemoveTarget(RemoveTarget {
                target: lease(chance.below(4)),
            }),
            _ => Op::PutTarget(PutTarget {
                target: lease(chance.below(4)),
                spec: TargetSpec {
                    paused: chance.below(2) == 0,
                    weight: u32::try_from(1 + chance.below(3)).unwrap_or(1),
                },
            }),
        },
        _ => Op::ForgetGroup(ForgetGroup),
    }
}

/// A call that changes nothing.
pub(super) fn look(chance: &mut Chance, known: &Known) -> Op {
    let (m, registry, page) = (chance.below(8), registry(chance.below(2)), ALL);
    let some = |chance: &mut Chance| (chance.below(2) == 0).then(|| member(m));
    match chance.below(26) {
        0 | 1 => Op::Member(MemberOf { member: member(m) }),
        2 => Op::Members(Members { page }),
        3 | 4 => Op::ClaimOf(ClaimOf { registry, key: key(m) }),
        5 | 6 => Op::Claims(Claims {
            registry,
            owner: some(chance),
            page,
        }),
        7 | 8 => Op::LeaseOf(LeaseOf { lease: lease(m % 6) }),
        9 | 10 => Op::Leases(Leases {
            holder: some(chance),
            page,
        }),
        11 => Op::HeldLeases(LeasesOf {
            tenure: tenure(chance, known),
            page,
        }),
        12 => Op::Target(TargetOf { target: lease(m % 4) }),
        13 => Op::Targets(Targets { page }),
        14 => Op::Status(Status),
        15 => Op::Doomed(ListDoomed { limit: 50 }),
        16 => Op::Events(EventQuery {
            after: Some(EventId(0)),
            limit: 1_000,
            ..EventQuery::default()
        }),
        17..=20 => super::draw_session::look(chance),
        _ => super::draw_roster::look(chance),
    }
}
