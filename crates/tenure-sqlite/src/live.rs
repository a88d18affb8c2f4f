//! Who is alive, in memory: one table per group, shared by beats, readers and the writer.
//!
//! A beat must cost no SQL, so deadlines live here alone, and after a restart everyone gets one full ttl anyway. The
//! rest of this file is about the races between a beat, a reader and a transaction that is not committed yet:
//!
//! * `members` is what is committed. `pending` lies over it and holds what the open transaction has changed: a member
//!   that joined or changed its ttl, or `None` for one whose tenure ended. Committing folds it in, undoing drops it.
//! * The writer ends a tenure by putting `None` into `pending` under the lock under which it judged the end time. A beat
//!   that comes later finds the member pending and queues up behind that transaction: it is told `ended` once the end is
//!   durable, or renewed if the transaction failed and nothing ended. A beat that came before has moved the deadline,
//!   and the writer sees that. So a late beat never revives, and no answer runs ahead of its commit.
//! * `revised` lies over `members` as well, for the revision alone.
//! * Readers never see `pending` ends or joins; liveness is by the end time and now. A reader whose rows are newer
//!   than `members` (between a commit and its folding) finds the tenure in `pending`, and there it counts as committed,
//!   since it has a row.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::membership::{Beat, BeatReply, Revision};
use tenure_core::refusal::Refusal;
use tenure_core::settling::{self, GapCause};
use tenure_core::sweep::GroupStatus;
use tenure_core::{MemberId, StoreTime, TenureId, Term};
use tokio::sync::watch;

use crate::clock::StoreClock;
use crate::group::Meta;
use crate::recall::Life;
use crate::revision::marks_a_loss;
use crate::roster::Roster;

/// One member's current tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) term: Term,
    pub(crate) deadline: StoreTime,
    pub(crate) ttl: Duration,
    /// Its place in the lazy index: the earliest time at which it may have lapsed.
    pub(crate) due: StoreTime,
    /// Until when beats were refused during its life; zero for never.
    pub(crate) refused: StoreTime,
    /// The number of what it holds.
    pub(crate) revision: Revision,
}

impl Entry {
    /// The end time *E*.
    ///
    /// A step reads its `now` when it opens, and a beat may have moved the deadline since; such a deadline does not come
    /// from a clock that fell back, so it is judged by the time of that beat.
    pub(crate) fn end(&self, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        let beat_at = self.deadline.minus(self.ttl);
        let now = now.max(beat_at);
        let refusal = Refusal {
            began: StoreTime::ZERO,
            until: self.refused,
        };
        settling::end_of(self.deadline, self.ttl, refusal.or_resumed(resumed_at, now), now)
    }
}

/// One group's live table, and the number of its newest event for those who wait.
#[derive(Debug)]
pub(crate) struct Live {
    /// The id of the group's rows.
    pub(crate) id: i64,
    table: Mutex<Table>,
    /// The newest committed event.
    pub(crate) news: watch::Sender<u64>,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct Table {
    /// As committed.
    pub(crate) meta: Meta,
    /// The last step that was served, also by memory alone.
    pub(crate) tick: StoreTime,
    /// Raised by the writer before its commit: that can only lengthen lives, and nobody is to read as dead meanwhile.
    pub(crate) resumed_at: StoreTime,
    /// Set from opening the file until the first step: deadlines did not survive, so every ttl starts again there.
    pub(crate) restarted: bool,
    /// When beats were refused. In memory alone: after a restart every ttl starts again anyway.
    pub(crate) refusal: Refusal,
    /// Since when every tick has found the group empty. In memory alone, too.
    pub(crate) empty_since: Option<StoreTime>,
    pub(crate) members: HashMap<MemberId, Entry>,
    pub(crate) due: BTreeSet<(StoreTime, MemberId)>,
    pub(crate) pending: HashMap<MemberId, Option<Entry>>,
    /// The revisions that the open transaction has changed, by member and term.
    pub(crate) revised: HashMap<MemberId, (Term, Revision)>,
    /// The rows of providers, when the group is a roster.
    pub(crate) roster: Roster,
}

impl Live {
    pub(crate) fn new(id: i64, meta: Meta, tick: StoreTime, restarted: bool) -> Self {
        let table = Table {
            meta,
            tick,
            resumed_at: meta.resumed_at,
            restarted,
            refusal: Refusal::default(),
            empty_since: None,
            members: HashMap::new(),
            due: BTreeSet::new(),
            pending: HashMap::new(),
            revised: HashMap::new(),
            roster: Roster::default(),
        };
        Self {
            id,
            table: Mutex::new(table),
            news: watch::Sender::new(meta.last_event),
        }
    }

    /// The table. A panic under this lock was undone by the writer, so a poisoned lock is no reason to stop.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads with the store's time, taken under the lock so that no beat of the table is later.
    pub(crate) fn look<T>(&self, clock: &StoreClock, look: impl FnOnce(&Table, StoreTime) -> T) -> T {
        let table = self.lock();
        let now = clock.now();
        look(&table, now)
    }

    /// Serves beats from memory. Leaves `None` for those that have to change a row: unknown, ended, past their end, with
    /// a new ttl, or met by a transaction that is not committed yet. All of them,
    /// when the group has a gap to record.
    pub(crate) fn beat(&self, clock: &StoreClock, life: &Life, beats: &[Beat]) -> (StoreTime, Vec<Option<BeatReply>>) {
        let mut table = self.lock();
        let now = clock.now();
        // A number that was never given out may mark an older copy, which changes the end times of all others.
        let seq = table.meta.seq;
        let unknown = |beat: &Beat| beat.tenure.term().get() > seq || marks_a_loss(beat.revision, seq, now);
        let lost = beats.iter().any(unknown) && life.believes(now);
        if lost || table.observe(now).is_some() {
            return (now, vec![None; beats.len()]);
        }
        table.tick = now;
        let resumed_at = table.resumed_at;
        // A beat with a new ttl goes to the writer, and so do the later ones of that tenure: they count from the new ttl.
        let mut changing = HashSet::new();
        let replies = beats.iter().map(|beat| {
            if !changing.is_empty() && changing.contains(&beat.tenure) {
                return None;
            }
            let reply = table.extend(beat, resumed_at, now);
            if reply.is_none() && beat.ttl.is_some() {
                changing.insert(&beat.tenure);
            }
            reply
        });
        (now, replies.collect())
    }
}

impl Table {
    /// Whether the store did not serve this group since the last tick.
    pub(crate) fn observe(&self, now: StoreTime) -> Option<GapCause> {
        let seen = settling::observe(self.tick, now, self.meta.gap());
        seen.or(self.restarted.then_some(GapCause::Silent))
    }

    /// For reads, which write nothing: an unnoticed gap counts as if service resumed now.
    pub(crate) fn resumed_for_reading(&self, now: StoreTime) -> StoreTime {
        match self.observe(now) {
            Some(_) => now,
            None => self.resumed_at,
        }
    }

    /// Puts the age of an empty group into the status that a tick answers.
    pub(crate) fn note_empty(&mut self, status: &mut GroupStatus, has_roster: bool) {
        let since = self.empty_since.unwrap_or(status.as_of);
        self.empty_since = (!status.is_occupied() && !has_roster).then_some(since);
        status.empty_since = self.empty_since;
    }

    /// Restarts every ttl, since beats are refused.
    pub(crate) fn spare(&mut self, now: StoreTime, max_ttl: Duration) {
        self.refusal = self.refusal.noted(now, max_ttl);
        let pending = self.pending.values_mut().flatten();
        for entry in self.members.values_mut().chain(pending) {
            entry.refused = self.refusal.until;
        }
    }

    fn extend(&mut self, beat: &Beat, resumed_at: StoreTime, now: StoreTime) -> Option<BeatReply> {
        let member = beat.tenure.member();
        if !self.pending.is_empty() && self.pending.contains_key(member) {
            return None;
        }
        let entry = self
            .members
            .get_mut(member)
            .filter(|entry| entry.term == beat.tenure.term())?;
        let same_ttl = beat.ttl.is_none_or(|ttl| ttl == entry.ttl);
        if !same_ttl || now >= entry.end(resumed_at, now) {
            return None;
        }
        entry.deadline = now + entry.ttl;
        Some(BeatReply::Renewed {
            expires_in: entry.ttl,
            revision: entry.revision,
        })
    }

    /// The entry of a tenure whose row was read: committed, or committed and not folded in yet.
    pub(crate) fn seen(&self, tenure: &TenureId) -> Option<Entry> {
        let is_it = |entry: &Entry| entry.term == tenure.term();
        let committed = self.members.get(tenure.member()).copied().filter(is_it);
        committed.or_else(|| self.pending.get(tenure.member()).copied().flatten().filter(is_it))
    }

    /// Whether a tenure whose row was read is alive.
    pub(crate) fn is_alive(&self, tenure: &TenureId, now: StoreTime) -> bool {
        let resumed_at = self.resumed_for_reading(now);
        self.seen(tenure).is_some_and(|entry| now < entry.end(resumed_at, now))
    }

    /// The writer's view of a member: the open transaction first.
    pub(crate) fn head(&self, member: &MemberId) -> Option<Entry> {
        let mut entry = match self.pending.get(member) {
            Some(pending) => (*pending)?,
            None => *self.members.get(member)?,
        };
        if let Some((_, revision)) = self.revised.get(member).filter(|(term, _)| *term == entry.term) {
            entry.revision = *revision;
        }
        Some(entry)
    }

    /// Changes the entry of a member outside of any transaction (a deadline, a place in the lazy index).
    pub(crate) fn head_mut(&mut self, member: &MemberId) -> Option<&mut Entry> {
        match self.pending.get_mut(member) {
            Some(pending) => pending.as_mut(),
            None => self.members.get_mut(member),
        }
    }

    /// Folds the committed transaction in.
    pub(crate) fn fold(&mut self, meta: Meta) {
        if self.meta.roster.changes != meta.roster.changes {
            self.roster.note_change();
        }
        self.meta = meta;
        self.resumed_at = meta.resumed_at;
        let begun_or_ended: Vec<MemberId> = match self.roster.is_empty() {
            true => Vec::new(),
            false => self.pending.keys().cloned().collect(),
        };
        for (member, entry) in std::mem::take(&mut self.pending) {
            let before = match entry {
                Some(entry) => self.members.insert(member.clone(), entry),
                None => self.members.remove(&member),
            };
            if before.map(|entry| entry.due) == entry.map(|entry| entry.due) {
                continue;
            }
            if let Some(before) = before {
                self.due.remove(&(before.due, member.clone()));
            }
            if let Some(entry) = entry {
                self.due.insert((entry.due, member));
            }
        }
        for (member, (term, revision)) in std::mem::take(&mut self.revised) {
            if let Some(entry) = self.members.get_mut(&member).filter(|entry| entry.term == term) {
                entry.revision = revision;
            }
        }
        self.roster.fold(&begun_or_ended, &self.members);
    }

    /// Drops what the open transaction has changed.
    pub(crate) fn drop_pending(&mut self) {
        self.pending.clear();
        self.revised.clear();
        self.roster.drop_pending();
    }
}
