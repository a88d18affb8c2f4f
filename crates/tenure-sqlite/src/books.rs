//! The writer's books: the uncommitted state of every group, and how a transaction is undone or published.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};
use tenure_core::membership::Revision;
use tenure_core::store::StoreOptions;
use tenure_core::{Error, Group, MemberId, StoreTime, Term};

use crate::clock::StoreClock;
use crate::error::Cause;
use crate::group::Meta;
use crate::live::{Entry, Live};
use crate::recall::Life;
use crate::roster::read_heads;
use crate::sql::{read_instant, read_name, read_number, read_span, statements};
use crate::step::{Step, Undo};
use crate::store::Groups;

statements! { "group.sql":
    FORGET_EVENTS = "forget_events",
    FORGET = "forget",
}
statements! { "sweep.sql":
    CLEAR_LAPSES = "clear_lapses",
}
statements! { "membership.sql":
    ALL_MEMBERS = "all",
}

/// One group as the open transaction has it.
#[derive(Debug)]
struct Head {
    meta: Meta,
    live: Arc<Live>,
    /// Set while the open transaction has touched the group.
    saved: Option<Saved>,
    lists_changed: bool,
    /// Goes with the commit, unless a later step of the transaction acts on it.
    forgotten: bool,
}

/// A group before the open transaction.
#[derive(Debug, Clone, Copy)]
struct Saved {
    meta: Meta,
    /// The group was made in this transaction.
    fresh: bool,
    /// The tick before the first gap that the transaction recorded, and whether the group was fresh from the file.
    gap: Option<(StoreTime, bool)>,
}

/// How to undo the step in progress.
#[derive(Debug)]
struct Current {
    group: Group,
    undo: Undo,
    /// The step made the group.
    made: bool,
}

/// All groups, as the writer has them.
#[derive(Debug, Default)]
pub(crate) struct Books {
    heads: HashMap<Group, Head>,
    touched: Vec<Group>,
    current: Option<Current>,
}

/// What a step needs besides its group.
pub(crate) struct Context<'a> {
    pub(crate) sql: &'a Connection,
    pub(crate) clock: &'a StoreClock,
    pub(crate) options: &'a StoreOptions,
    pub(crate) life: &'a Life,
}

impl Books {
    /// Reads everything from the file.
    ///
    /// With `before`, deadlines of tenures that go on are kept: the file does not know the beats since their joins.
    ///
    /// A group that comes fresh from the file counts as served until now: what was granted before is in the file.
    pub(crate) fn load(sql: &Connection, clock: &StoreClock, before: Option<&Self>) -> Result<Self, Cause> {
        let mut heads = HashMap::new();
        for (id, group, mut meta) in Meta::all(sql)? {
            let mut members = read_members(sql, id)?;
            meta.members = members.len() as u64;
            let live = match before.and_then(|books| books.heads.get(&group)) {
                Some(head) => Arc::clone(&head.live),
                None => Arc::new(Live::new(id, meta, clock.now(), true)),
            };
            let mut table = live.lock();
            let earliest = clock.now();
            for (member, entry) in &mut members {
                match table.members.get(member).filter(|old| old.term == entry.term) {
                    Some(old) => {
                        *entry = Entry {
                            ttl: entry.ttl,
                            revision: entry.revision,
                            ..*old
                        };
                    }
                    // It gets one full ttl from the first step on, and that is not before now.
                    None => entry.due = earliest + entry.ttl,
                }
            }
            table.due = members
                .iter()
                .map(|(member, entry)| (entry.due, member.clone()))
                .collect();
            table.roster.load(read_heads(sql, id)?, &members);
            table.members = members;
            table.drop_pending();
            table.fold(meta);
            drop(table);
            heads.insert(
                group,
                Head {
                    meta,
                    live,
                    saved: None,
                    lists_changed: false,
                    forgotten: false,
                },
            );
        }
        Ok(Self {
            heads,
            ..Self::default()
        })
    }

    /// The live tables, for readers and beats.
    pub(crate) fn groups(&self) -> Groups {
        let live = |(group, head): (&Group, &Head)| (group.clone(), Arc::clone(&head.live));
        self.heads.iter().map(live).collect()
    }

    /// Opens a step on a group: refuses one that comes too late, makes a group that is missing, looks for a gap, and
    /// writes the tick. Then runs the work.
    pub(crate) fn run<T>(
        &mut self,
        context: &Context<'_>,
        group: &Group,
        not_after: Option<StoreTime>,
        work: impl FnOnce(&mut Step<'_>) -> Result<tenure_core::Result<T>, Cause>,
    ) -> Result<tenure_core::Result<T>, Cause> {
        let too_late = |now| not_after.is_some_and(|limit| now > limit);
        let missing = !self.heads.contains_key(group);
        if missing {
            let now = context.clock.now();
            if too_late(now) {
                return Ok(Err(Error::too_late()));
            }
            self.create(context.sql, group, now)?;
        }
        let Some(head) = self.heads.get_mut(group) else {
            return Err(Cause::Strange(format!("no group {group}")));
        };
        let current = self.current.insert(Current {
            group: group.clone(),
            undo: Undo::new(head.meta),
            made: missing,
        });
        let undo = &mut current.undo;
        head.forgotten = false;
        let mut table = head.live.lock();
        let now = context.clock.now();
        if too_late(now) {
            return Ok(Err(Error::too_late()));
        }
        if head.saved.is_none() {
            head.saved = Some(Saved {
                meta: head.meta,
                fresh: false,
                gap: None,
            });
            self.touched.push(group.clone());
        }
        // The transaction's own view of the ttls decides how long a silence may be.
        let (tick, restarted) = (table.tick, table.restarted);
        let gap = tenure_core::settling::observe(tick, now, head.meta.gap());
        table.tick = now;
        if gap.is_some() || restarted {
            table.restarted = false;
            undo.gap = Some((tick, restarted));
            if let Some(saved) = &mut head.saved {
                saved.gap.get_or_insert((tick, restarted));
            }
        }
        drop(table);
        let mut step = Step {
            sql: context.sql,
            options: context.options,
            life: context.life,
            now,
            id: head.live.id,
            meta: &mut head.meta,
            live: &head.live,
            undo,
            lists_changed: &mut head.lists_changed,
            forgotten: &mut head.forgotten,
        };
        match gap {
            Some(cause) => step.record_gap(cause, tick)?,
            None if restarted => step.resume(),
            None => {}
        }
        if let Some(wait) = context.life.wait(now) {
            step.wait(wait)?;
        }
        work(&mut step)
    }

    fn create(&mut self, sql: &Connection, group: &Group, now: StoreTime) -> Result<(), Cause> {
        let (id, meta) = Meta::insert(sql, group, now)?;
        let saved = Saved {
            meta,
            fresh: true,
            gap: None,
        };
        let head = Head {
            meta,
            live: Arc::new(Live::new(id, meta, now, false)),
            saved: Some(saved),
            lists_changed: false,
            forgotten: false,
        };
        self.heads.insert(group.clone(), head);
        self.touched.push(group.clone());
        Ok(())
    }

    /// Keeps the step that ran.
    pub(crate) fn keep(&mut self) {
        self.current = None;
    }

    /// Takes the step that ran out of memory again. Its savepoint is rolled back by the caller.
    pub(crate) fn undo(&mut self) {
        let Some(Current { group, undo, made }) = self.current.take() else {
            return;
        };
        let Some(head) = self.heads.get_mut(&group) else { return };
        head.meta = undo.apply(&mut head.live.lock());
        head.forgotten = false;
        if made {
            self.heads.remove(&group);
            self.touched.retain(|touched| *touched != group);
        }
    }

    /// Writes the rows of the groups that changed. Answers their longest ttl. The last act before the commit.
    pub(crate) fn flush(&mut self, sql: &Connection) -> Result<Duration, Cause> {
        let mut longest = Duration::ZERO;
        for group in &self.touched {
            let Some(head) = self.heads.get_mut(group) else {
                continue;
            };
            longest = longest.max(head.meta.longest_ttl());
            if head.forgotten {
                for rows in [FORGET_EVENTS, CLEAR_LAPSES, FORGET] {
                    sql.prepare_cached(rows)?.execute([head.live.id])?;
                }
                continue;
            }
            if head.lists_changed {
                head.meta.refresh_visits(sql, head.live.id)?;
            }
            if let Some(before) = head.saved.map(|saved| saved.meta).filter(|before| *before != head.meta) {
                let tick = head.live.lock().tick;
                head.meta.update(sql, head.live.id, tick)?;
                head.meta.roster.save(sql, head.live.id, &before.roster)?;
            }
        }
        Ok(longest)
    }

    /// The file fell back behind what was served: its groups begin as after a restart.
    pub(crate) fn restart(&mut self) {
        for head in self.heads.values() {
            head.live.lock().restarted = true;
        }
    }

    /// Publishes what was committed. Answers the groups that are new, and those that are gone.
    pub(crate) fn publish(&mut self) -> (Vec<(Group, Arc<Live>)>, Vec<Group>) {
        let (mut born, mut gone) = (Vec::new(), Vec::new());
        for group in std::mem::take(&mut self.touched) {
            let Some(head) = self.heads.get_mut(&group) else {
                continue;
            };
            if head.forgotten {
                self.heads.remove(&group);
                gone.push(group);
                continue;
            }
            head.lists_changed = false;
            let Some(saved) = head.saved.take() else { continue };
            head.live.lock().fold(head.meta);
            if saved.fresh {
                born.push((group, Arc::clone(&head.live)));
            }
            if saved.fresh || saved.meta.last_event != head.meta.last_event {
                head.live.news.send_replace(head.meta.last_event);
            }
        }
        (born, gone)
    }

    /// Takes the whole transaction out of memory again, after its rows were rolled back.
    pub(crate) fn roll_back(&mut self) {
        self.current = None;
        for group in std::mem::take(&mut self.touched) {
            let Some(head) = self.heads.get_mut(&group) else {
                continue;
            };
            head.lists_changed = false;
            head.forgotten = false;
            let Some(saved) = head.saved.take() else { continue };
            if saved.fresh {
                self.heads.remove(&group);
                continue;
            }
            head.meta = saved.meta;
            let mut table = head.live.lock();
            table.drop_pending();
            table.resumed_at = saved.meta.resumed_at;
            if let Some((tick, restarted)) = saved.gap {
                // The gap has to be seen again, by a step that can record it.
                table.tick = tick;
                table.restarted = restarted;
            }
        }
    }
}

fn read_members(sql: &Connection, id: i64) -> Result<HashMap<MemberId, Entry>, Cause> {
    let mut select = sql.prepare_cached(ALL_MEMBERS)?;
    let mut rows = select.query(params![id])?;
    let mut members = HashMap::new();
    while let Some(row) = rows.next()? {
        let term = Term::new(read_number(row, 1)?).map_err(|error| Cause::Strange(error.to_string()))?;
        let entry = Entry {
            term,
            ttl: read_span(row, 2)?,
            deadline: read_instant(row, 3)?,
            due: StoreTime::ZERO,
            refused: StoreTime::ZERO,
            revision: Revision(read_number(row, 4)?),
        };
        members.insert(read_name(row, 0)?, entry);
    }
    Ok(members)
}
