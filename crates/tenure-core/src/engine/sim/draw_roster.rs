//! Random calls on the mirror of a roster. Its providers have the names of members.

use super::draw::{ALL, member, ms};
use super::known::Known;
use crate::call::Op;
use crate::conformance::Chance;
use crate::id::{ProviderId, TenureId, Term};
use crate::ledger::{Provider, RosterSettings, Version};
use crate::roster::{
    BeatProviders, CountAvailable, CountRoster, EndTurn, EnsureTenures, Heartbeat, ListAvailable, ListPending,
    ListRows, LookUp, MarkSeeded, MirrorEntry, OfflineDone, Overwrite, Put, PutProviders, PutRosterSettings,
    ReadMirrorStatus, ReadSettings, Retime, Task, TurnRequest, VerifyRoster,
};
use crate::sweep::ReconcileRequest;

fn provider(n: usize) -> ProviderId {
    ProviderId::from(&member(n))
}

fn put(chance: &mut Chance, known: &Known) -> Put {
    let n = chance.below(8);
    let version = Version(1 + chance.below(30) as u64);
    if chance.below(8) == 0 {
        let provider = provider(n);
        return Put::newer(MirrorEntry::Gone { provider, version });
    }
    let own = known
        .tenures
        .iter()
        .rev()
        .find(|tenure| *tenure.member() == member(n))
        .cloned();
    let online = match chance.below(5) {
        0 => None,
        1 => Some(TenureId::new(member(n), Term::new(77).expect("a term"))),
        _ => own,
    };
    Put::newer(MirrorEntry::Row(Provider {
        provider: provider(n),
        display_name: (chance.below(2) == 0).then(|| "name".to_owned()),
        active: chance.below(6) > 0,
        online,
        capacity: u32::try_from(chance.below(3)).unwrap_or(0),
        occupancy: 0,
        last_online_at: None,
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version,
    }))
}

pub(super) fn step(chance: &mut Chance, known: &Known) -> Op {
    let limit = u32::try_from(1 + chance.below(4)).unwrap_or(1);
    match chance.below(16) {
        0..=3 => Op::PutProviders(PutProviders {
            puts: (0..=chance.below(2)).map(|_| put(chance, known)).collect(),
        }),
        4..=6 => Op::EnsureTenures(EnsureTenures {
            providers: vec![provider(chance.below(8))],
            stale_after: ms(2_000),
            beat: chance.below(2) == 0,
        }),
        7..=9 => Op::Heartbeat(BeatProviders {
            heartbeats: vec![Heartbeat::of(provider(chance.below(8)))],
        }),
        10 => Op::PendingOffline(ListPending {
            limit,
            force: chance.below(8) == 0,
        }),
        11 => Op::OfflineDone(OfflineDone {
            tenures: known.pending.iter().take(1).cloned().collect(),
        }),
        12 => Op::PutRosterSettings(PutRosterSettings {
            settings: RosterSettings {
                stale_after: ms(*chance.of(&[2_000, 6_000])),
                version: Version(1 + chance.below(6) as u64),
                ..RosterSettings::default()
            },
            over: Overwrite::Older,
        }),
        13 => turn(chance),
        14 => match chance.below(2) {
            0 => Op::Retime(Retime { limit }),
            _ => Op::MarkSeeded(MarkSeeded {
                since: known.resumed_at,
            }),
        },
        _ => Op::VerifyRoster(VerifyRoster(ReconcileRequest {
            after: None,
            limit: 100,
        })),
    }
}

fn turn(chance: &mut Chance) -> Op {
    let (task, holder) = (*chance.of(&Task::ALL), format!("h-{}", chance.below(2)));
    match chance.below(3) {
        0 => Op::EndTurn(EndTurn {
            task,
            holder,
            done: true,
        }),
        _ => Op::TakeTurn(TurnRequest {
            task,
            holder,
            lasts: ms(2_000),
            every: ms(5_000),
        }),
    }
}

pub(super) fn look(chance: &mut Chance) -> Op {
    match chance.below(8) {
        0 | 1 => Op::Available(ListAvailable { page: ALL }),
        2 => Op::Look(LookUp {
            providers: (0..8).map(provider).collect(),
        }),
        3 => Op::Rows(ListRows { page: ALL }),
        4 => Op::RosterStats(CountRoster),
        5 => Op::MirrorStatus(ReadMirrorStatus),
        6 => Op::Availability(CountAvailable {
            snapshot: ms(*chance.of(&[0, 500, 3_000])),
        }),
        _ => Op::RosterSettings(ReadSettings),
    }
}
