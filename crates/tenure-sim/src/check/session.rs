//! Sessions: none is reaped while it has a connection or before its grace is over, each orphan is reaped once, epochs
//! rise, and a late detach changes nothing.

use tenure::{DeleteOutcome, DetachOutcome, Epoch, Event, EventKind, How, PatchOutcome, Session, SessionId, TenureId};
use tenure_core::call::{Op, Reply};
use tenure_core::session::{Attach, AttachOutcome, Attaches, DeleteSession, Detach, Detaches, PatchSession};
use tenure_core::sweep::{Reap, Release};

use super::outage::LONGEST_GAP;
use super::session_record::{Link, SessionRecord};
use super::{Checked, Checker, LATE, must};
use crate::step::Step;
use crate::world::GRACE;

impl Checker {
    /// The event of a session, before the replies are compared.
    pub(super) fn session_event(&mut self, step: &Step, event: &Event) -> Checked {
        let Some(session) = &event.session else {
            return must(false, "an event names its session", || format!("{event:?}"));
        };
        match (event.kind, &step.op) {
            (EventKind::SessionReaped, _) => self.reaped(step, event, session),
            (EventKind::SessionDeleted, Op::DeleteSession(DeleteSession { session: named })) => {
                let record = self.shadow.sessions.remove(session);
                let idle = record.is_some_and(|record| named == session && record.connections.is_empty());
                must(idle, "only a session without connections is deleted", || {
                    session.to_string()
                })
            }
            // The reply tells what the call made of the session.
            (EventKind::SessionCreated | EventKind::SessionResumed, Op::Attach(_))
            | (EventKind::SessionDisconnected, Op::Detach(_)) => Ok(()),
            (EventKind::SessionDisconnected, Op::Release(_)) => {
                let record = self.shadow.sessions.get(session);
                let away = record.and_then(|record| record.away);
                must(
                    away.is_some_and(|away| away.since == step.now),
                    "a session is disconnected when its last connection is released",
                    || format!("{session}: {record:?}"),
                )
            }
            _ => must(false, "a session changes only by a call on it", || {
                format!("{} of {session} by {:?}", event.kind.as_str(), step.op)
            }),
        }
    }

    fn reaped(&mut self, step: &Step, event: &Event, session: &SessionId) -> Checked {
        let Some(record) = self.shadow.sessions.remove(session) else {
            return must(false, "an orphan is reaped once", || session.to_string());
        };
        let alive = |(tenure, _): &&(TenureId, Epoch)| self.shadow.is_alive(tenure, self.shadow.resumed_at, step.now);
        let holder = record.connections.values().find(alive);
        must(
            holder.is_none(),
            "no session is reaped while a living tenure holds a connection",
            || format!("{session} has a connection of {holder:?}"),
        )?;
        must(
            record.connections.is_empty(),
            "a session is reaped after its connections are released",
            || format!("{session}: {:?}", record.connections),
        )?;
        let over = record
            .away
            .is_some_and(|away| step.now >= away.end(self.shadow.resumed_at, step.now));
        must(over, "no session is reaped before its grace is over", || {
            format!("{session} at {}: {record:?}", step.now)
        })?;
        if let Some(away) = record.away {
            let outage = self.outages.cut_short(away.since, away.lasts, LONGEST_GAP, step.now);
            must(
                outage.is_none(),
                "no session is reaped because of an outage of the store",
                || format!("{session} at {}: {away:?}, {outage:?}", step.now),
            )?;
        }
        let named = event.epoch == Some(record.epoch) && event.alias == record.alias;
        must(named, "a reaped session is named with epoch and alias", || {
            format!("{event:?}, not {record:?}")
        })?;
        let by_reaper = match &step.op {
            Op::Reap(Reap(request)) => !self.shadow.braked && event.pass.as_ref() == Some(&request.pass),
            Op::Attach(_) | Op::PatchSession(_) => true,
            _ => false,
        };
        must(
            by_reaper,
            "a session is reaped by a pass without a brake, or by a late client",
            || format!("{session} by {:?}, braked: {}", step.op, self.shadow.braked),
        )
    }

    /// The janitor has released the connections of an ended tenure.
    pub(super) fn evicted_connections(&mut self, step: &Step, event: &Event, tenure: &TenureId) -> Checked {
        if event.connections == 0 {
            return Ok(());
        }
        let held: Vec<Link> = self
            .shadow
            .sessions
            .iter()
            .flat_map(|(session, record)| {
                let ours = record.connections.iter().filter(|(_, (holder, _))| holder == tenure);
                ours.map(|(connection, _)| (session.clone(), connection.clone()))
            })
            .collect();
        must(
            matches!(step.op, Op::Release(Release(_))) && held.len() as u64 == event.connections,
            "each connection of an ended tenure is released once",
            || format!("{} of {tenure}, which held {held:?}", event.connections),
        )?;
        for (session, connection) in held {
            if let Some(record) = self.shadow.sessions.get_mut(&session) {
                record.disconnect(&connection, step.now, GRACE);
            }
        }
        Ok(())
    }

    pub(super) fn session_replies(&mut self, step: &Step) -> Checked {
        match (&step.op, &step.reply) {
            (Op::Attach(Attaches { tenure, attaches }), Ok(Reply::Attach(attached))) => {
                must(
                    attaches.len() == attached.outcomes.len(),
                    "each attach has an outcome",
                    || format!("{} for {}", attached.outcomes.len(), attaches.len()),
                )?;
                let pairs = attaches.iter().zip(&attached.outcomes);
                pairs
                    .into_iter()
                    .try_for_each(|(attach, outcome)| self.attached(step, tenure, attach, outcome))
            }
            (Op::Detach(Detaches { tenure, detaches }), Ok(Reply::Detach(outcomes))) => {
                must(detaches.len() == outcomes.len(), "each detach has an outcome", || {
                    format!("{} for {}", outcomes.len(), detaches.len())
                })?;
                let pairs = detaches.iter().zip(outcomes);
                pairs
                    .into_iter()
                    .try_for_each(|(detach, outcome)| self.detached(step, tenure, detach, outcome))
            }
            (Op::PatchSession(PatchSession { session, data, .. }), Ok(Reply::PatchSession(outcome))) => {
                let record = self.shadow.sessions.get_mut(session);
                match (outcome, record) {
                    (PatchOutcome::Patched(seen), Some(record)) => {
                        record.patch(data);
                        self.seen_session(step, self.shadow.resumed_at, seen)
                    }
                    (outcome, record) => must(
                        record.is_none() && *outcome == PatchOutcome::NotFound,
                        "a patch changes the data of its session",
                        || format!("{session}: {outcome:?}, {record:?}"),
                    ),
                }
            }
            (Op::DeleteSession(DeleteSession { session }), Ok(Reply::DeleteSession(outcome))) => {
                let left = self
                    .shadow
                    .sessions
                    .get(session)
                    .map(|record| record.connections.len() as u64);
                let right = match outcome {
                    DeleteOutcome::Active { connections } => left == Some(*connections) && *connections > 0,
                    _ => left.is_none(),
                };
                must(right, "only a session without connections is deleted", || {
                    format!("{session}: {outcome:?}, {left:?} connections")
                })
            }
            _ => Ok(()),
        }
    }

    fn attached(&mut self, step: &Step, tenure: &TenureId, attach: &Attach, outcome: &AttachOutcome) -> Checked {
        let braked = self.shadow.braked;
        let is_orphan = |record: &SessionRecord| {
            let away = record.away.filter(|_| !braked);
            away.is_some_and(|away| step.now >= away.end(step.resumed_at, step.now))
        };
        let record = self.shadow.sessions.get(&attach.session);
        let named = attach.alias.as_ref();
        let other =
            self.shadow.sessions.iter().find(|(session, record)| {
                named.is_some() && record.alias.as_ref() == named && **session != attach.session
            });
        let expected = match record {
            None => How::Created,
            Some(record) if record.away.is_some() => How::Resumed,
            Some(_) => How::Attached,
        };
        match outcome {
            AttachOutcome::Attached { how, session } => {
                must(
                    record.is_none_or(|record| !is_orphan(record)),
                    "no orphan is resumed",
                    || format!("{}: {record:?}", attach.session),
                )?;
                must(
                    *how == expected && !(attach.resume_only && record.is_none()),
                    "an attach says what became of its session",
                    || format!("{attach:?}: {how:?}, not {expected:?}"),
                )?;
                must(other.is_none(), "an alias belongs to one session", || {
                    format!("{attach:?}, but {other:?}")
                })?;
                self.connect(step, tenure, attach, session)
            }
            AttachOutcome::AliasTaken { by } => must(
                other.is_some_and(|(session, record)| session == by && !is_orphan(record)),
                "an alias is refused only while another session has it",
                || format!("{attach:?}: of {by}, not {other:?}"),
            ),
            AttachOutcome::Gone => must(
                attach.resume_only && record.is_none(),
                "a session that can be resumed is resumed",
                || format!("{attach:?}: {record:?}"),
            ),
            AttachOutcome::Full { of } => must(false, "a limit is named only when it is reached", || {
                format!("{attach:?}: {of}")
            }),
        }
    }

    fn connect(&mut self, step: &Step, tenure: &TenureId, attach: &Attach, seen: &Session) -> Checked {
        let epoch = seen.epoch;
        // As for terms: all data lost, and a clock behind the lost numbers, are two faults.
        let behind = self.wiped && step.now.micros() <= self.highest_epoch;
        must(
            epoch.get() > self.highest_epoch || behind,
            "epochs rise for ever",
            || format!("{} {epoch} after {}", attach.session, self.highest_epoch),
        )?;
        self.highest_epoch = self.highest_epoch.max(epoch.get());
        let record = self.shadow.sessions.entry(attach.session.clone());
        let record = record.or_insert_with(|| SessionRecord {
            epoch,
            created_at: step.now,
            alias: None,
            data: tenure::Data::new(),
            grace: None,
            connections: std::collections::BTreeMap::new(),
            away: None,
        });
        record.epoch = epoch;
        record.away = None;
        record.grace = attach.grace.or(record.grace);
        record.alias = attach.alias.clone().or(record.alias.take());
        record.patch(&attach.data);
        let before = record
            .connections
            .insert(attach.connection.clone(), (tenure.clone(), epoch));
        let link = (attach.session.clone(), attach.connection.clone());
        if let Some((holder, _)) = before.filter(|(holder, _)| holder.member() != tenure.member()) {
            self.moved.insert((link.clone(), holder.member().clone()));
        }
        if step.at.since(step.sent_at) > LATE {
            // As for a late release of a claim: the store's clock had fallen back, and its sender may have given it up.
            self.returned.insert(link.clone());
        } else {
            self.returned.remove(&link);
        }
        self.moved.remove(&(link, tenure.member().clone()));
        self.seen_session(step, step.resumed_at, seen)
    }

    fn detached(&mut self, step: &Step, tenure: &TenureId, detach: &Detach, outcome: &DetachOutcome) -> Checked {
        let record = self.shadow.sessions.get_mut(&detach.session);
        let held = record
            .as_ref()
            .and_then(|record| record.connections.get(&detach.connection).cloned());
        let (rule, refused) = match held {
            None => ("a connection is detached once", Some(DetachOutcome::NotAttached)),
            Some((by, _)) if by != *tenure => {
                ("a detach names the exact tenure", Some(DetachOutcome::NotHolder { by }))
            }
            Some((_, epoch)) if detach.epoch.is_some_and(|of| of < epoch) => {
                ("a late detach changes nothing", Some(DetachOutcome::Stale { epoch }))
            }
            Some(_) => ("a detach says what became of its session", None),
        };
        let expected = match (refused, record) {
            (None, Some(record)) => DetachOutcome::Detached {
                reap_in: record.disconnect(&detach.connection, step.now, GRACE),
            },
            (refused, _) => refused.unwrap_or(DetachOutcome::NotAttached),
        };
        must(*outcome == expected, rule, || {
            format!("{detach:?} of {tenure}: {outcome:?}, not {expected:?}")
        })
    }

    pub(super) fn session_reads(&self, step: &Step) -> Checked {
        let resumed_at = self.shadow.resumed(step.now, step.gap);
        let found = |session: Option<&SessionId>, seen: &Option<Session>| {
            let same = seen.as_ref().map(|seen| &seen.session) == session;
            must(same, "a look-up returns the session", || {
                format!("{seen:?}, not {session:?}")
            })
        };
        match (&step.op, &step.reply) {
            (Op::Session(look), Ok(Reply::Session(seen))) => {
                let known = self.shadow.sessions.get_key_value(&look.session);
                found(known.map(|(session, _)| session), seen)?;
                seen.iter()
                    .try_for_each(|seen| self.seen_session(step, resumed_at, seen))
            }
            (Op::SessionByAlias(look), Ok(Reply::SessionByAlias(seen))) => {
                let named = |(_, record): &(&SessionId, &SessionRecord)| record.alias.as_ref() == Some(&look.alias);
                found(
                    self.shadow.sessions.iter().find(named).map(|(session, _)| session),
                    seen,
                )?;
                seen.iter()
                    .try_for_each(|seen| self.seen_session(step, resumed_at, seen))
            }
            (_, Ok(Reply::Sessions(page))) => page
                .items
                .iter()
                .try_for_each(|seen| self.seen_session(step, resumed_at, seen)),
            (_, Ok(Reply::Orphans(orphans))) => orphans.orphans.iter().try_for_each(|orphan| {
                let away = self.shadow.sessions.get(&orphan.session).and_then(|record| record.away);
                let over = away.is_some_and(|away| step.now >= away.end(resumed_at, step.now));
                must(over, "only sessions past their grace are orphans", || {
                    format!("{orphan:?}, {away:?}")
                })
            }),
            (_, Ok(Reply::SessionStats(stats))) => {
                let (all, shown) = (
                    self.shadow.sessions.len() as u64,
                    stats.active + stats.disconnected + stats.orphans,
                );
                must(all == shown, "every session is counted", || {
                    format!("{stats:?}, not {all}")
                })
            }
            _ => Ok(()),
        }
    }

    /// A session as the store shows it agrees with the record, and counts no connection of an ended tenure.
    fn seen_session(&self, step: &Step, resumed_at: tenure::StoreTime, seen: &Session) -> Checked {
        let Some(record) = self.shadow.sessions.get(&seen.session) else {
            return must(false, "a reaped session is not shown", || format!("{seen:?}"));
        };
        let alive = |(tenure, _): &&(TenureId, Epoch)| self.shadow.is_alive(tenure, resumed_at, step.now);
        let connections = record.connections.values().filter(alive).count() as u64;
        let end = record.away.map(|away| away.end(resumed_at, step.now));
        must(
            seen.connections == connections && seen.reap_in == end.map(|end| end.since(step.now)),
            "reads never show a ghost",
            || format!("{seen:?} with {connections} connections alive, end {end:?}"),
        )?;
        let same = seen.epoch == record.epoch
            && seen.created_at == record.created_at
            && seen.alias == record.alias
            && seen.data == record.data
            && seen.grace == record.grace;
        must(same, "a session keeps what its clients gave it", || {
            format!("{seen:?}, not {record:?}")
        })
    }
}
