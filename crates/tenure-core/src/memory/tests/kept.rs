//! A model with simulated storage, whose commits can be delayed and can fail.

use std::collections::BTreeMap;
use std::time::Duration;

use super::acts::{Act, Met};
use crate::brake::BrakeSettings;
use crate::call::Op;
use crate::event::Event;
use crate::id::TenureId;
use crate::memory::GroupModel;
use crate::memory::lives::Live;
use crate::memory::log::Log;
use crate::memory::rows::{GroupRow, Row, RowKey, Taken};
use crate::store::{Call, StoreOptions};
use crate::time::StoreTime;

/// The stored rows.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) group: GroupRow,
    pub(super) rows: BTreeMap<RowKey, Row>,
    pub(super) events: Vec<Event>,
}

/// The model and its stored rows.
pub(super) struct Kept {
    pub(super) model: GroupModel,
    pub(super) stored: Stored,
    pub(super) met: Met,
    pub(super) applied: u64,
    under_way: Option<Taken>,
    /// The last beat of every tenure.
    pub(super) beats: BTreeMap<TenureId, StoreTime>,
}

pub(super) fn options() -> StoreOptions {
    StoreOptions {
        max_ttl: Duration::from_secs(20),
        brake: BrakeSettings {
            floor: 3,
            hold: Duration::from_secs(5),
            ..BrakeSettings::default()
        },
        ..StoreOptions::default()
    }
}

impl Kept {
    pub(super) fn new() -> Self {
        let now = StoreTime::from_micros(1_000_000_000);
        let model = GroupModel::new(options(), now).kept();
        let stored = Stored {
            group: model.group_row(),
            rows: BTreeMap::new(),
            events: Vec::new(),
        };
        Self {
            model,
            stored,
            met: Met::new(now),
            applied: 0,
            under_way: None,
            beats: BTreeMap::new(),
        }
    }

    /// Takes a step after a pause.
    pub(super) fn act(&mut self, act: Act) {
        self.met.now = self.met.now + act.pause();
        let op = self.met.op(act);
        self.decide(&op);
    }

    /// Takes a step now.
    pub(super) fn decide(&mut self, op: &Op) {
        self.model.begin_step(self.applied + 1);
        let reply = self.model.decide(op, Call::default(), self.met.now);
        self.applied = self.applied.max(self.model.touched());
        if let Ok(reply) = &reply {
            self.met.learn(op, reply);
        }
        self.note_beats();
    }

    pub(super) fn note_beats(&mut self) {
        for (member, live) in self.model.lives.table.iter() {
            let tenure = TenureId::new(member.clone(), live.term);
            self.beats.insert(tenure, live.deadline.minus(live.ttl));
        }
    }

    /// Begins a commit, unless one is in progress.
    pub(super) fn take(&mut self) {
        if self.under_way.is_none() {
            self.under_way = Some(self.model.take());
        }
    }

    /// Completes the current commit, if there is one.
    pub(super) fn commit(&mut self) {
        let Some(taken) = self.under_way.take() else { return };
        for (key, row) in taken.rows {
            match row {
                Some(row) => drop(self.stored.rows.insert(key, row)),
                None => drop(self.stored.rows.remove(&key)),
            }
        }
        self.stored.group = taken.group;
        self.stored.events.extend(taken.events);
        self.model.durable(taken.number);
    }

    pub(super) fn commit_all(&mut self) {
        self.commit();
        self.take();
        self.commit();
    }

    /// Loses everything that is not stored.
    pub(super) fn lose(&mut self) {
        self.under_way = None;
        let keys = self.model.undurable();
        let rows = keys.into_iter().map(|key| {
            let row = self.stored.rows.get(&key).cloned();
            (key, row)
        });
        let rows = rows.collect();
        self.model.put_back(rows, self.stored.group);
    }

    /// A model of only the stored rows at the same time. Its unstored state is that of the other model.
    pub(super) fn of_stored(&self) -> GroupModel {
        let now = self.met.now;
        let rows = self.stored.rows.clone();
        let mut model = GroupModel::load(options(), self.stored.group, rows, now);
        model.service = self.model.service;
        (model.pulse, model.announced, model.failed_at) =
            (self.model.pulse, self.model.announced, self.model.failed_at);
        model.tick = self.model.tick;
        model.seq = self.model.seq;
        model.refused = self.model.refused;
        model.empty_since = self.model.empty_since;
        model.log = Log::beginning_at(self.stored.group.last_event);
        model.log.used = self.model.log.used;
        let members: Vec<_> = model
            .lives
            .table
            .iter()
            .map(|(member, live)| (member.clone(), live.clone()))
            .collect();
        for (member, live) in members {
            let tenure = TenureId::new(member.clone(), live.term);
            let deadline = self.beats[&tenure] + live.ttl;
            model.lives.set(
                member,
                Some(Live {
                    deadline,
                    due: deadline,
                    ..live
                }),
            );
        }
        model
    }
}
