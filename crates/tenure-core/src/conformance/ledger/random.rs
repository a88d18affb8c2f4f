//! Random steps on a ledger and on the reference: every reply must be equal, and finally the log.
//!
//! Each ledger draws its own versions, so the test compares their effects: the order of the outbox, and which rows a
//! clean removes.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Make, World, engagement, provider, tenure};
use crate::clock::{Clock, ManualClock};
use crate::conformance::cases::Cases;
use crate::conformance::world::s;
use crate::error::Result;
use crate::id::ProviderId;
use crate::ledger::{
    Candidates, Capacity, EndedTenure, Expiry, Follow, Ledger, MemoryLedger, Move, NewEngagement, ProviderSpec,
    ProviderState, Reassign, SettingsPatch, Status, Version,
};
use crate::membership::EndReason;
use crate::store::PageRequest;
use crate::time::StoreTime;

/// One step. Numbers map to names and times.
#[derive(Debug, Clone)]
enum Op {
    Put(u8, Option<u8>),
    Remove(u8),
    Activate(u8, bool),
    Online(u8, Option<u8>),
    Offline(u8, Option<u8>),
    Ended(Vec<(u8, u8, i8)>),
    Follow(Vec<(u8, u8, u8)>),
    Beats(Vec<(u8, i8)>),
    Create(u8, Option<u8>, bool, Option<u8>, Option<u8>),
    Move(u8, Option<u8>, Option<u8>, Option<u8>),
    Reserve(u8, Option<u8>, bool, Vec<u8>, Option<u8>),
    Expire(u8),
    RemoveClosed(u8, u8),
    Clean(Vec<u8>),
    Settings(Option<u8>, Option<u8>),
    Pass(u8),
    Read(u8, u8),
}

const NAMES: std::ops::Range<u8> = 0..6;

fn operation() -> impl Strategy<Value = Op> {
    let term = || prop::option::weighted(0.8, 1..6u8);
    prop_oneof![
        3 => (NAMES, prop::option::of(0..4u8)).prop_map(|(p, c)| Op::Put(p, c)),
        1 => NAMES.prop_map(Op::Remove),
        2 => (NAMES, prop::bool::weighted(0.6)).prop_map(|(p, on)| Op::Activate(p, on)),
        5 => (NAMES, term()).prop_map(|(p, t)| Op::Online(p, t)),
        2 => (NAMES, term()).prop_map(|(p, t)| Op::Offline(p, t)),
        3 => prop::collection::vec((NAMES, 1..6u8, -9..9i8), 0..6).prop_map(Op::Ended),
        1 => prop::collection::vec((NAMES, 1..6u8, 1..6u8), 0..5).prop_map(Op::Follow),
        2 => prop::collection::vec((NAMES, -9..9i8), 0..6).prop_map(Op::Beats),
        4 => (0..8u8, prop::option::weighted(0.8, NAMES), any::<bool>(), prop::option::of(1..20u8), prop::option::of(1..20u8))
            .prop_map(|(e, p, active, x, a)| Op::Create(e, p, active, x, a)),
        4 => (0..8u8, prop::option::of(0..5u8), prop::option::of(0..8u8), prop::option::weighted(0.3, 0..20u8))
            .prop_map(|(e, status, p, x)| Op::Move(e, status, p, x)),
        5 => (0..12u8, prop::option::weighted(0.3, NAMES), any::<bool>(), prop::collection::vec(NAMES, 0..5),
            prop::option::of(0..20u8))
            .prop_map(|(e, p, among, names, fresh)| Op::Reserve(e, p, among, names, fresh)),
        2 => (1..4u8).prop_map(Op::Expire),
        1 => (0..20u8, 1..4u8).prop_map(|(age, limit)| Op::RemoveClosed(age, limit)),
        2 => prop::collection::vec(any::<u8>(), 0..4).prop_map(Op::Clean),
        2 => (prop::option::of(0..4u8), prop::option::of(1..100u8)).prop_map(|(c, x)| Op::Settings(c, x)),
        3 => (1..8u8).prop_map(Op::Pass),
        3 => (NAMES, 0..20u8).prop_map(|(p, fresh)| Op::Read(p, fresh)),
    ]
}

struct Pair {
    world: World,
    model: Arc<MemoryLedger>,
    clock: Arc<ManualClock>,
    /// Rows that both ledgers had: provider, version there, version here.
    seen: Vec<(ProviderId, Version, Version)>,
}

/// Runs 24 random histories ([`Cases`]).
///
/// # Panics
/// Panics with the shortest history whose replies differ, the step and both replies.
pub async fn the_ledger_agrees_with_the_model(make: Make<'_>) {
    let histories = prop::collection::vec(operation(), 1..120);
    let check = async |history: &Vec<Op>| compare(make, history).await;
    Cases::times(24).check(histories, check).await;
}

async fn compare(make: Make<'_>, history: &[Op]) -> Result<(), String> {
    let world = World::new(make).await;
    let now = world.ledger.now().await.map_err(|error| error.to_string())?;
    let clock = Arc::new(ManualClock::new(now.micros(), 0));
    let model = MemoryLedger::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let mut pair = Pair {
        world,
        model,
        clock,
        seen: Vec::new(),
    };
    for (n, op) in history.iter().enumerate() {
        pair.step(op)
            .await
            .map_err(|difference| format!("step {n} {op:?}: {difference}"))?;
    }
    pair.end().await
}

/// A reply without the numbers that each ledger draws itself.
fn masked<T: std::fmt::Debug>(result: &Result<T>) -> String {
    let text = match result {
        Ok(done) => format!("{done:?}"),
        Err(error) => format!("{:?} {:?}", error.kind(), error.outcome()),
    };
    let mut rest = text.as_str();
    let mut out = String::with_capacity(rest.len());
    while let Some(at) = ["Version(", "LogEntry { id: "]
        .iter()
        .filter_map(|mark| Some(rest.find(mark)? + mark.len()))
        .min()
    {
        out.push_str(&rest[..at]);
        let digits = rest[at..].bytes().take_while(u8::is_ascii_digit).count();
        out.push_str(if &rest[at..at + digits] == "0" { "none" } else { "_" });
        rest = &rest[at + digits..];
    }
    out.push_str(rest);
    out
}

fn same<T: std::fmt::Debug + PartialEq>(what: &str, theirs: &Result<T>, ours: &Result<T>) -> Result<(), String> {
    if let (Ok(theirs), Ok(ours)) = (theirs, ours)
        && theirs == ours
    {
        return Ok(());
    }
    let (theirs, ours) = (masked(theirs), masked(ours));
    match theirs == ours {
        true => Ok(()),
        false => Err(format!("{what} differs\nthe ledger: {theirs}\nthe model:  {ours}")),
    }
}

/// Calls both ledgers and compares.
macro_rules! both {
    ($pair:expr, $what:literal, |$ledger:ident, $roster:ident| $call:expr) => {{
        let $roster = &$pair.world.roster;
        let $ledger = &$pair.model;
        let ours = $call.await;
        let $ledger = &$pair.world.ledger;
        same($what, &$call.await, &ours)
    }};
}

fn name(p: u8) -> ProviderId {
    provider(&format!("p{p}"))
}

impl Pair {
    fn now(&self) -> StoreTime {
        StoreTime::from_micros(self.clock.wall_micros())
    }

    fn at(&self, offset: i8) -> StoreTime {
        let by = s(u64::from(offset.unsigned_abs()));
        if offset < 0 {
            self.now().minus(by)
        } else {
            self.now() + by
        }
    }

    fn ago(&self, seconds: Option<u8>) -> Option<StoreTime> {
        seconds.map(|seconds| self.now().minus(s(u64::from(seconds))))
    }

    async fn step(&mut self, op: &Op) -> Result<(), String> {
        let seconds = |n: &Option<u8>| n.map(|n| s(u64::from(n)));
        match op {
            Op::Pass(n) => {
                let by = Duration::from_millis(u64::from(*n) * 1_500);
                self.world.pass(by).await;
                self.clock.advance(by);
                Ok(())
            }
            Op::Create(e, p, active, expires, active_for) => {
                let new = NewEngagement {
                    engagement: engagement(&format!("e{e}")),
                    provider: p.map(name),
                    status: if *active { Status::Active } else { Status::Pending },
                    expires_in: seconds(expires),
                    active_for: seconds(active_for),
                };
                both!(self, "create", |ledger, roster| ledger.create_engagement(roster, &new))
            }
            Op::Move(e, status, p, expires) => {
                let to = Move {
                    status: status.map(|n| Status::ALL[usize::from(n)]),
                    provider: match p {
                        None => Reassign::Keep,
                        Some(6..) => Reassign::Unassign,
                        Some(p) => Reassign::To(name(*p)),
                    },
                    expiry: match expires {
                        None => Expiry::Keep,
                        Some(0) => Expiry::Never,
                        Some(n) => Expiry::In(s(u64::from(*n))),
                    },
                };
                let e = engagement(&format!("e{e}"));
                both!(self, "move", |ledger, roster| ledger.move_engagement(roster, &e, &to))
            }
            Op::Reserve(e, p, among, names, fresh) => {
                let new = NewEngagement {
                    provider: p.map(name),
                    expires_in: seconds(fresh).filter(|after| !after.is_zero()),
                    ..NewEngagement::new(engagement(&format!("e{e}")))
                };
                let names = names.iter().copied().map(name).collect();
                let candidates = match among {
                    true => Candidates::Among(names),
                    false => Candidates::Any {
                        fresh_since: self.ago(*fresh),
                        except: names,
                    },
                };
                both!(self, "reserve", |ledger, roster| ledger.reserve(
                    roster,
                    &new,
                    &candidates
                ))
            }
            Op::Expire(limit) => {
                let limit = u32::from(*limit);
                both!(self, "expire", |ledger, roster| ledger.expire_due(roster, limit))
            }
            Op::RemoveClosed(age, limit) => {
                let (age, limit) = (s(u64::from(*age)), u32::from(*limit));
                both!(self, "remove closed", |ledger, roster| ledger
                    .remove_closed(roster, age, limit))
            }
            Op::Settings(capacity, stale) => {
                let patch = SettingsPatch {
                    default_capacity: capacity.map(u32::from),
                    stale_after: seconds(stale),
                    ..SettingsPatch::default()
                };
                both!(self, "settings", |ledger, roster| ledger.set_settings(roster, &patch))
            }
            Op::Clean(rows) => self.clean(rows).await,
            Op::Read(p, fresh) => self.read(*p, self.ago(Some(*fresh))).await,
            _ => self.provider_step(op).await,
        }
    }

    async fn provider_step(&mut self, op: &Op) -> Result<(), String> {
        let one = |p: &u8, t: &u8| tenure(&format!("p{p}"), u64::from(*t));
        match op {
            Op::Put(p, capacity) => {
                let spec = ProviderSpec {
                    display_name: capacity.map(|n| format!("{n} é'\"\\")),
                    capacity: match capacity {
                        None => Capacity::Keep,
                        Some(3) => Capacity::Default,
                        Some(n) => Capacity::Own(u32::from(*n)),
                    },
                };
                let p = name(*p);
                both!(self, "put", |ledger, roster| ledger.put_provider(roster, &p, &spec))
            }
            Op::Remove(p) => {
                let p = name(*p);
                both!(self, "remove", |ledger, roster| ledger.remove_provider(roster, &p))
            }
            Op::Activate(p, true) => {
                let p = name(*p);
                both!(self, "activate", |ledger, roster| ledger.activate(roster, &p))
            }
            Op::Activate(p, false) => {
                let p = name(*p);
                both!(self, "deactivate", |ledger, roster| ledger.deactivate(roster, &p))
            }
            Op::Online(p, t) => {
                let (p, t) = (name(*p), t.map(|t| one(p, &t)));
                both!(self, "online", |ledger, roster| ledger.go_online(
                    roster,
                    &p,
                    t.as_ref()
                ))
            }
            Op::Offline(p, t) => {
                let (p, t) = (name(*p), t.map(|t| one(p, &t)));
                both!(self, "offline", |ledger, roster| ledger.go_offline(
                    roster,
                    &p,
                    t.as_ref()
                ))
            }
            Op::Ended(batch) => {
                let reasons = [EndReason::Lapsed, EndReason::Left, EndReason::Expelled];
                let ended = |(p, t, at): &(u8, u8, i8)| EndedTenure {
                    tenure: one(p, t),
                    at: self.at(*at),
                    reason: reasons[usize::from(*t) % 3],
                    heard_at: (t % 2 == 0).then(|| self.at(*at).minus(s(5))),
                };
                let mut batch: Vec<EndedTenure> = batch.iter().map(ended).collect();
                batch.sort_by(|a, b| a.tenure.cmp(&b.tenure));
                batch.dedup_by(|a, b| a.tenure == b.tenure);
                batch.reverse();
                both!(self, "ended", |ledger, roster| ledger.offline_ended(roster, &batch))
            }
            Op::Follow(follows) => {
                let mut follows: Vec<Follow> = follows
                    .iter()
                    .map(|(p, from, to)| Follow {
                        from: one(p, from),
                        to: one(p, to),
                    })
                    .collect();
                follows.sort_by(|a, b| b.from.member().cmp(a.from.member()));
                follows.dedup_by(|a, b| a.from.member() == b.from.member());
                both!(self, "follow", |ledger, roster| ledger.follow_tenures(roster, &follows))
            }
            Op::Beats(beats) => {
                let beats: Vec<_> = beats.iter().map(|(p, at)| (name(*p), self.at(*at))).collect();
                both!(self, "beats", |ledger, roster| ledger.record_heartbeats(roster, &beats))
            }
            _ => Ok(()),
        }
    }

    /// Cleans rows at versions that they have or had.
    async fn clean(&mut self, which: &[u8]) -> Result<(), String> {
        let pick = |n: &u8| self.seen.get(usize::from(*n) % self.seen.len().max(1));
        let picked: Vec<_> = which.iter().filter_map(pick).collect();
        let theirs: Vec<_> = picked.iter().map(|(p, theirs, _)| (p.clone(), *theirs)).collect();
        let ours: Vec<_> = picked.iter().map(|(p, _, ours)| (p.clone(), *ours)).collect();
        let roster = &self.world.roster;
        let ours = self.model.clean(roster, &ours).await;
        let theirs = self.world.ledger.clean(roster, &theirs).await;
        same("clean", &theirs, &ours)
    }

    async fn read(&mut self, p: u8, fresh: Option<StoreTime>) -> Result<(), String> {
        let few = PageRequest { after: None, limit: 3 };
        both!(self, "available", |ledger, roster| ledger
            .available(roster, &few, fresh))?;
        both!(self, "stats", |ledger, roster| ledger.stats(roster, fresh))?;
        both!(self, "settings", |ledger, roster| ledger.settings(roster))?;
        both!(self, "rosters", |ledger, _roster| ledger.rosters())?;
        let e = engagement(&format!("e{p}"));
        both!(self, "engagement", |ledger, roster| ledger.engagement(roster, &e))?;
        let state = ProviderState::ALL.get(usize::from(p)).copied();
        let page = PageRequest::default();
        both!(self, "providers", |ledger, roster| ledger
            .providers(roster, state, &page))?;
        let p = name(p);
        let (ours, theirs) = (
            self.model.provider(&self.world.roster, &p).await,
            self.world.ledger.provider(&self.world.roster, &p).await,
        );
        if let (Ok(Some(ours)), Ok(Some(theirs))) = (&ours, &theirs) {
            self.seen.push((p, theirs.version, ours.version));
        }
        same("provider", &theirs, &ours)?;
        let (roster, by_name) = (&self.world.roster, |dirty: &crate::ledger::Dirty| {
            dirty.provider.clone()
        });
        let mut ours = self.model.dirty(roster, 1_000).await;
        let mut theirs = self.world.ledger.dirty(roster, 1_000).await;
        // Rows of one step get their versions in any order.
        ours.iter_mut().for_each(|dirty| dirty.sort_by_key(by_name));
        theirs.iter_mut().for_each(|dirty| dirty.sort_by_key(by_name));
        same("dirty", &theirs, &ours)
    }

    async fn end(&mut self) -> Result<(), String> {
        for p in NAMES {
            self.read(p, None).await?;
        }
        let (roster, page) = (
            &self.world.roster,
            PageRequest {
                after: None,
                limit: 1_000,
            },
        );
        let mut ours = self.model.log(roster, None, &page).await;
        let mut theirs = self.world.ledger.log(roster, None, &page).await;
        for log in [&mut ours, &mut theirs] {
            // Rows of one step are in any order.
            log.iter_mut()
                .for_each(|log| log.items.sort_by(|a, b| (a.at, &a.provider).cmp(&(b.at, &b.provider))));
        }
        same("the log", &theirs, &ours)
    }
}
