//! Random operations on sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ALL, Pair, same};
use crate::error::Result;
use crate::id::{Alias, ConnectionId, SessionId};
use crate::session::{
    Attach, AttachOutcome, Attaches, CountSessions, Data, DeleteSession, Detach, Detaches, ListOrphans, PatchSession,
    SessionByAlias, SessionOf, SessionState, Sessions,
};
use crate::store::Call;
use crate::sweep::{Reap, ReconcileRequest, SweepSteps};

/// An attach, as numbers.
#[derive(Debug, Clone)]
pub(super) struct AttachSpec {
    session: u8,
    connection: u8,
    alias: Option<u8>,
    data: u8,
    grace: Option<u16>,
    resume_only: bool,
}

/// One operation.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Attach(u16, Vec<AttachSpec>),
    Detach(u16, Vec<(u8, u8, u8)>),
    Patch(Option<u16>, u8, u8),
    Delete(u8),
    Reap(u8, bool),
    Reconcile,
    Read(u8),
}

pub(super) fn operation() -> impl Strategy<Value = Op> {
    let tenure = || prop_oneof![3 => 0..4u16, 2 => any::<u16>()];
    let grace = prop::option::weighted(0.3, prop_oneof![Just(1000u16), Just(2000), Just(8000)]);
    let alias = prop::option::weighted(0.3, 0..4u8);
    let asked = (0..4u8, 0..3u8, alias, 0..7u8, grace, prop::bool::weighted(0.2));
    let asked = asked.prop_map(|(session, connection, alias, data, grace, resume_only)| AttachSpec {
        session,
        connection,
        alias,
        data,
        grace,
        resume_only,
    });
    prop_oneof![
        5 => (tenure(), prop::collection::vec(asked, 0..4)).prop_map(|(t, asked)| Op::Attach(t, asked)),
        4 => (any::<u16>(), prop::collection::vec((0..4u8, 0..3u8, 0..6u8), 0..3)).prop_map(|(t, asked)| Op::Detach(t, asked)),
        1 => (prop::option::of(tenure()), 0..4u8, 0..7u8).prop_map(|(t, s, d)| Op::Patch(t, s, d)),
        1 => (0..4u8).prop_map(Op::Delete),
        3 => (1..4u8, prop::bool::weighted(0.1)).prop_map(|(limit, force)| Op::Reap(limit, force)),
        1 => Just(Op::Reconcile),
        3 => any::<u8>().prop_map(Op::Read),
    ]
}

fn session(n: u8) -> SessionId {
    SessionId::new(format!("s{n}")).expect("a name")
}

fn connection(n: u8) -> ConnectionId {
    ConnectionId::new(format!("c{n}")).expect("a name")
}

fn alias(n: u8) -> Alias {
    Alias::new(format!("a{n}")).expect("a name")
}

/// A change to the data: empty, values of several types, or a removal.
fn data(n: u8) -> Data {
    let fields: Vec<(&str, Value)> = match n {
        0 => vec![("x", json!(1))],
        1 => vec![("x", Value::Null)],
        2 => vec![("y", json!({"b": [1, 2.5, "é\n"], "a": {}})), ("x", json!(true))],
        3 => vec![("y", Value::Null), ("z", json!(""))],
        _ => Vec::new(),
    };
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

impl Pair {
    pub(super) async fn session(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Attach(t, asked) => self.attach(*t, asked).await,
            Op::Detach(t, asked) => self.detach(*t, asked).await,
            Op::Patch(t, s, d) => {
                let (tenure, session, data) = (t.map(|t| self.tenure(t)), session(*s), data(*d));
                self.both(PatchSession { session, tenure, data }).await.map(drop)
            }
            Op::Delete(s) => {
                let session = session(*s);
                self.both(DeleteSession { session }).await.map(drop)
            }
            Op::Reap(limit, force) => {
                let request = self.pass_of(u32::from(*limit), *force);
                self.both(Reap(request)).await.map(drop)
            }
            Op::Reconcile => self.reconcile().await,
            Op::Read(n) => self.read_sessions(*n).await,
        }
    }

    async fn attach(&mut self, t: u16, asked: &[AttachSpec]) -> Result<(), String> {
        let tenure = self.tenure(t);
        let attach = |asked: &AttachSpec| Attach {
            alias: asked.alias.map(alias),
            data: data(asked.data),
            grace: asked.grace.map(|ms| Duration::from_millis(u64::from(ms))),
            resume_only: asked.resume_only,
            ..Attach::new(session(asked.session), connection(asked.connection))
        };
        let attaches: Vec<_> = asked.iter().map(attach).collect();
        let request = Attaches {
            tenure: tenure.clone(),
            attaches: attaches.clone(),
        };
        let Ok(attached) = self.both(request).await? else {
            return Ok(());
        };
        self.revisions.push(attached.revision);
        for (attach, outcome) in attaches.into_iter().zip(&attached.outcomes) {
            if let AttachOutcome::Attached { session, .. } = outcome {
                self.epochs.push(session.epoch);
                let known = Detach {
                    session: attach.session,
                    connection: attach.connection,
                    epoch: session.epoch.get().is_multiple_of(2).then_some(session.epoch),
                };
                self.attached.push((tenure.clone(), known));
            }
        }
        Ok(())
    }

    /// Mostly starts with a connection that was attached, by any tenure: it is often the session's last one.
    async fn detach(&self, t: u16, asked: &[(u8, u8, u8)]) -> Result<(), String> {
        let epoch = |e: u8| match e {
            0..=2 => None,
            back => self.epochs.iter().rev().nth(usize::from(back) - 3).copied(),
        };
        let detach = |(s, c, e): &(u8, u8, u8)| Detach {
            session: session(*s),
            connection: connection(*c),
            epoch: epoch(*e),
        };
        let mut detaches: Vec<_> = asked.iter().map(detach).collect();
        let back = usize::from(t / 4) % 6;
        let tenure = match self.attached.iter().rev().nth(back).filter(|_| !t.is_multiple_of(4)) {
            Some((tenure, known)) => {
                detaches.insert(0, known.clone());
                tenure.clone()
            }
            None => self.tenure(t),
        };
        self.both(Detaches { tenure, detaches }).await.map(drop)
    }

    /// Stores cut the parts differently, but find the same in total.
    async fn reconcile(&self) -> Result<(), String> {
        let sweeper = self.world.sweeper();
        let steps: &dyn SweepSteps = sweeper.steps().expect("the sweeping store has steps");
        let ours = self.whole_reconcile(&*self.model).await;
        same("reconcile", &self.whole_reconcile(steps).await, &ours)
    }

    async fn whole_reconcile(&self, steps: &dyn SweepSteps) -> Result<BTreeMap<String, u64>> {
        let (mut after, mut repaired) = (None, BTreeMap::new());
        loop {
            let request = ReconcileRequest { after, limit: 1_000 };
            let part = steps.reconcile(&self.world.group, &request, Call::default()).await?;
            for (kind, count) in part.repaired {
                *repaired.entry(kind).or_default() += count;
            }
            after = part.next;
            if after.is_none() {
                return Ok(repaired);
            }
        }
    }

    pub(super) async fn read_sessions(&self, n: u8) -> Result<(), String> {
        let (session, alias) = (session(n % 4), alias(n % 4));
        self.both(SessionOf { session }).await?.ok();
        self.both(SessionByAlias { alias }).await?.ok();
        self.both(CountSessions).await?.ok();
        let (overdue, limit) = (Duration::from_millis(u64::from(n % 3) * 700), 1_000);
        self.both(ListOrphans { overdue, limit }).await?.ok();
        for state in [None].into_iter().chain(SessionState::ALL.map(Some)) {
            for older_than in [Duration::ZERO, overdue] {
                let page = ALL;
                self.both(Sessions {
                    state,
                    older_than,
                    page,
                })
                .await?
                .ok();
            }
        }
        Ok(())
    }
}
