//! Random operations on the mirror of a roster. Its providers have the names of the members of the other operations.

use proptest::prelude::*;

use super::{ALL, Pair, same};
use crate::error::Result;
use crate::id::{MemberId, ProviderId, TenureId, Term};
use crate::ledger::{Provider, RosterSettings, Version};
use crate::roster::{
    BeatProviders, CountAvailable, CountRoster, EndTurn, EnsureTenures, Heartbeat, ListAvailable, ListPending,
    ListRows, LookUp, MarkSeeded, MirrorEntry, OfflineDone, Overwrite, Put, PutProviders, PutRosterSettings,
    ReadMirrorStatus, ReadSettings, Retime, RosterMirror, Task, TurnRequest,
};
use crate::store::Call;
use crate::sweep::ReconcileRequest;
use crate::time::StoreTime;

use super::super::world::{member, ms, s};

/// A put, as numbers.
#[derive(Debug, Clone)]
pub(super) struct PutSpec {
    provider: u8,
    version: u8,
    online: u8,
    active: bool,
    capacity: u8,
    occupancy: u8,
    revoked: bool,
    exactly: Option<u8>,
    gone: bool,
}

/// One operation.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Put(Vec<PutSpec>),
    EnsureTenures(Vec<u8>, bool),
    Hear(Vec<(u8, Option<bool>)>),
    Pending(u8, bool),
    Done(u8),
    Settings(u8, u8),
    Turn(u8, u8, bool),
    Seeded,
    Count(u16),
    Read,
    Verify,
}

pub(super) fn operation() -> impl Strategy<Value = Op> {
    let asked = (
        (0..14u8, 1..40u8, 0..8u8, prop::bool::weighted(0.85)),
        (0..4u8, 0..4u8, prop::bool::weighted(0.2)),
        (prop::option::weighted(0.1, 0..40u8), prop::bool::weighted(0.1)),
    );
    let asked = asked.prop_map(
        |((provider, version, online, active), (capacity, occupancy, revoked), (exactly, gone))| PutSpec {
            provider,
            version,
            online,
            active,
            capacity,
            occupancy,
            revoked,
            exactly,
            gone,
        },
    );
    let snapshot = prop_oneof![Just(0u16), Just(500), Just(3_000), Just(10_000)];
    let heard = (0..14u8, prop::option::weighted(0.3, any::<bool>()));
    prop_oneof![
        6 => prop::collection::vec(asked, 1..6).prop_map(Op::Put),
        4 => (prop::collection::vec(0..14u8, 1..5), any::<bool>()).prop_map(|(p, beat)| Op::EnsureTenures(p, beat)),
        4 => prop::collection::vec(heard, 0..6).prop_map(Op::Hear),
        3 => (1..4u8, prop::bool::weighted(0.1)).prop_map(|(limit, force)| Op::Pending(limit, force)),
        2 => (0..4u8).prop_map(Op::Done),
        1 => (1..6u8, 0..4u8).prop_map(|(version, stale)| Op::Settings(version, stale)),
        1 => (0..2u8, 0..2u8, any::<bool>()).prop_map(|(task, holder, end)| Op::Turn(task, holder, end)),
        1 => Just(Op::Seeded),
        2 => snapshot.prop_map(Op::Count),
        4 => Just(Op::Read),
        1 => Just(Op::Verify),
    ]
}

fn named(n: u8) -> MemberId {
    member(&format!("m{n}"))
}

fn provider(n: u8) -> ProviderId {
    ProviderId::from(&named(n))
}

impl Pair {
    pub(super) async fn roster(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Put(asked) => {
                let puts = asked.iter().map(|asked| self.entry(asked)).collect();
                self.both(PutProviders { puts }).await.map(drop)
            }
            Op::EnsureTenures(names, beat) => self.seat(names, *beat).await,
            Op::Hear(heard) => {
                let heard = heard.iter().map(|(n, late)| Heartbeat {
                    provider: provider(*n),
                    issued_at: late.map(|late| StoreTime::from_micros(if late { 999 } else { 1_000 })),
                });
                let heartbeats = heard.collect();
                self.both(BeatProviders { heartbeats }).await.map(drop)
            }
            Op::Pending(limit, force) => self.pending(u32::from(*limit), *force).await,
            Op::Done(count) => {
                let tenures = self.pending.iter().take(usize::from(*count)).cloned().collect();
                self.both(OfflineDone { tenures }).await.map(drop)
            }
            Op::Settings(version, stale) => self.settings(*version, *stale).await,
            Op::Turn(task, holder, end) => self.turn_at(*task, *holder, *end).await,
            Op::Seeded => {
                let Ok(stamp) = self.both(ReadMirrorStatus).await? else {
                    return Ok(());
                };
                let since = stamp.resumed_at;
                self.both(MarkSeeded { since }).await.map(drop)
            }
            Op::Count(snapshot) => {
                let snapshot = ms(u64::from(*snapshot));
                self.both(CountAvailable { snapshot }).await.map(drop)
            }
            Op::Read => self.read_roster().await,
            Op::Verify => self.verify().await,
        }
    }

    /// Mostly online under the provider's own tenure; sometimes under one that the store cannot know.
    fn entry(&self, asked: &PutSpec) -> Put {
        let (name, version) = (named(asked.provider), Version(u64::from(asked.version)));
        let own: Vec<_> = self
            .seen
            .iter()
            .rev()
            .filter(|tenure| *tenure.member() == name)
            .collect();
        let online = match asked.online {
            0 => None,
            1 => Some(TenureId::new(name, Term::new(77).expect("a term"))),
            2 => own.last().copied().cloned(),
            _ => own.first().copied().cloned(),
        };
        let row = Provider {
            provider: provider(asked.provider),
            display_name: (!asked.version.is_multiple_of(3)).then(|| format!("m|{}\u{e9}", asked.provider)),
            active: asked.active,
            online,
            capacity: u32::from(asked.capacity),
            occupancy: u32::from(asked.occupancy),
            last_online_at: asked.revoked.then(|| StoreTime::from_micros(5)),
            last_offline_at: (!asked.active).then(|| StoreTime::from_micros(6)),
            last_heartbeat_at: None,
            revoked_before: asked.revoked.then(|| StoreTime::from_micros(1_000)),
            version,
        };
        let entry = match asked.gone {
            true => MirrorEntry::Gone {
                provider: row.provider,
                version,
            },
            false => MirrorEntry::Row(row),
        };
        let over = asked
            .exactly
            .map_or(Overwrite::Older, |over| Overwrite::Exactly(Version(u64::from(over))));
        Put { entry, over }
    }

    async fn seat(&mut self, names: &[u8], beat: bool) -> Result<(), String> {
        let (providers, stale_after) = (names.iter().map(|n| provider(*n)).collect(), s(6));
        let request = EnsureTenures {
            providers,
            stale_after,
            beat,
        };
        for seated in self
            .both(request)
            .await?
            .into_iter()
            .flatten()
            .filter(|seated| seated.new)
        {
            self.seen.push(seated.tenure);
        }
        Ok(())
    }

    async fn pending(&mut self, limit: u32, force: bool) -> Result<(), String> {
        if let Ok(pending) = self.both(ListPending { limit, force }).await? {
            self.pending = pending.items.into_iter().map(|item| item.tenure).collect();
        }
        Ok(())
    }

    /// Puts new settings and applies their ttl to every provider: stores differ in the order in which they would apply
    /// it.
    async fn settings(&mut self, version: u8, stale: u8) -> Result<(), String> {
        let settings = RosterSettings {
            stale_after: s([2, 6, 9, 15][usize::from(stale)]),
            require_heartbeat: version != 3,
            version: Version(u64::from(version)),
            ..RosterSettings::default()
        };
        let over = match stale {
            3 => Overwrite::Exactly(Version(u64::from(version) + 1)),
            _ => Overwrite::Older,
        };
        self.both(PutRosterSettings { settings, over }).await?.ok();
        self.both(Retime { limit: 1_000 }).await.map(drop)
    }

    async fn turn_at(&self, task: u8, holder: u8, end: bool) -> Result<(), String> {
        let (task, holder) = (Task::ALL[usize::from(task)], format!("h-{holder}"));
        if end {
            let done = true;
            return self.both(EndTurn { task, holder, done }).await.map(drop);
        }
        let request = TurnRequest {
            task,
            holder,
            lasts: s(2),
            every: s(5),
        };
        self.both(request).await.map(drop)
    }

    async fn read_roster(&self) -> Result<(), String> {
        let providers = (0..14).map(provider).collect();
        self.both(ListAvailable { page: ALL }).await?.ok();
        self.both(LookUp { providers }).await?.ok();
        self.both(CountRoster).await?.ok();
        self.both(ReadSettings).await?.ok();
        self.both(ListRows { page: ALL }).await.map(drop)
    }

    async fn verify(&self) -> Result<(), String> {
        let group = &self.world.group;
        let mirror = self.world.store.mirror().expect("the store mirrors rosters");
        let (ours, theirs) = (
            gone_through(&*self.model, group).await,
            gone_through(mirror, group).await,
        );
        same("verify_roster", &theirs, &ours)
    }
}

async fn gone_through(mirror: &dyn RosterMirror, group: &crate::id::Group) -> Result<Vec<(MirrorEntry, bool)>> {
    let mut entries = Vec::new();
    let mut request = ReconcileRequest {
        after: None,
        limit: 100,
    };
    loop {
        let part = mirror.verify_roster(group, &request, Call::default()).await?;
        let mended = !part.repaired.is_empty();
        entries.extend(part.entries.into_iter().map(|entry| (entry, mended)));
        request.after = part.next;
        if request.after.is_none() {
            break;
        }
    }
    entries.sort_by(|(a, _), (b, _)| a.provider().cmp(b.provider()));
    entries.dedup();
    Ok(entries)
}
