//! Rosters in memory: of every row what a heartbeat has to know, and in order who can take work.
//!
//! It lies beside the live table, under the same lock, and follows transactions as that does: `pending` holds what the
//! open one has changed, committing folds it in, undoing drops it. Where a provider belongs follows from its row and
//! from the current tenure of its member, and is found anew whenever one of the two was committed. So the counts and the
//! order are nowhere in the file and cannot disagree with it; they are made from the rows when the file is opened.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use tenure_core::ledger::{Provider, RosterStats, Version};
use tenure_core::{MemberId, ProviderId, StoreTime, TenureId};

use crate::live::Entry;

/// A row, as far as memory needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: Version,
    pub(crate) active: bool,
    /// The tenure it is online under; a row can only name one of its own provider's.
    pub(crate) online: Option<TenureId>,
    pub(crate) capacity: u32,
    pub(crate) occupancy: u32,
    pub(crate) revoked_before: Option<StoreTime>,
}

/// Where a committed provider belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Place {
    active: bool,
    /// Its row names the current tenure of its member.
    seated: bool,
    /// Seated, active and with room, at this occupancy.
    free: Option<u32>,
}

/// A committed provider.
#[derive(Debug)]
struct Listed {
    head: Head,
    place: Place,
}

/// How many there are.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    rows: u64,
    active: u64,
    seated: u64,
    seated_and_active: u64,
}

/// The available, counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot {
    pub(super) as_of: StoreTime,
    pub(super) count: u64,
    pub(super) complete: bool,
    /// Something has changed since.
    pub(super) changed: bool,
}

/// One group's roster.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// As committed.
    rows: BTreeMap<ProviderId, Listed>,
    /// What the open transaction has changed; `None` for what it has removed.
    pending: HashMap<ProviderId, Option<Head>>,
    free: BTreeSet<(u32, ProviderId)>,
    counts: Counts,
    pub(super) snapshot: Option<Snapshot>,
}

impl Head {
    pub(super) fn of(row: &Provider) -> Self {
        Self {
            version: row.version,
            active: row.active,
            online: named(row).cloned(),
            capacity: row.capacity,
            occupancy: row.occupancy,
            revoked_before: row.revoked_before,
        }
    }

    fn place(&self, provider: &ProviderId, members: &HashMap<MemberId, Entry>) -> Place {
        let current = members.get(&provider.member()).map(|entry| entry.term);
        let seated = self
            .online
            .as_ref()
            .is_some_and(|tenure| current == Some(tenure.term()));
        let has_room = self.active && self.occupancy < self.capacity;
        Place {
            active: self.active,
            seated,
            free: (seated && has_room).then_some(self.occupancy),
        }
    }
}

/// The tenure that a row names, when it is one of its own provider's; no ledger writes another.
pub(super) fn named(row: &Provider) -> Option<&TenureId> {
    let online = row.online.as_ref();
    online.filter(|tenure| tenure.member().as_str() == row.provider.as_str())
}

impl Counts {
    fn add(&mut self, place: Place) {
        self.rows += 1;
        self.active += u64::from(place.active);
        self.seated += u64::from(place.seated);
        self.seated_and_active += u64::from(place.seated && place.active);
    }

    fn remove(&mut self, place: Place) {
        self.rows -= 1;
        self.active -= u64::from(place.active);
        self.seated -= u64::from(place.seated);
        self.seated_and_active -= u64::from(place.seated && place.active);
    }
}

impl Roster {
    /// Takes over what the file says; `members` are the committed ones.
    pub(crate) fn load(&mut self, rows: Vec<(ProviderId, Head)>, members: &HashMap<MemberId, Entry>) {
        *self = Self::default();
        for (provider, head) in rows {
            self.put(provider, head, members);
        }
    }

    /// Drops what the open transaction has changed.
    pub(crate) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    /// Changes what the open transaction says of a provider, or takes it back with nothing. Answers what was there.
    pub(crate) fn rewrite(&mut self, provider: &ProviderId, head: Option<Option<Head>>) -> Option<Option<Head>> {
        match head {
            Some(head) => self.pending.insert(provider.clone(), head),
            None => self.pending.remove(provider),
        }
    }

    /// Whether no row is there, committed or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.pending.is_empty()
    }

    /// Whether the open transaction has changed a provider's row.
    pub(super) fn is_pending(&self, provider: &ProviderId) -> bool {
        !self.pending.is_empty() && self.pending.contains_key(provider)
    }

    /// A row as committed.
    pub(super) fn committed(&self, provider: &ProviderId) -> Option<&Head> {
        self.rows.get(provider).map(|listed| &listed.head)
    }

    /// The writer's view of a row: the open transaction first.
    pub(super) fn head(&self, provider: &ProviderId) -> Option<&Head> {
        match self.pending.get(provider) {
            Some(pending) => pending.as_ref(),
            None => self.committed(provider),
        }
    }

    /// The names of the writer's view after one, at most so many.
    pub(super) fn names(&self, after: Option<&ProviderId>, limit: usize) -> Vec<ProviderId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let committed = self.rows.range((from, Bound::Unbounded)).map(|(name, _)| name);
        let there = committed.filter(|name| self.head(name).is_some());
        there.take(limit).cloned().collect()
    }

    /// Folds the committed transaction in: its rows, and the members whose tenures it began or ended. The live table has
    /// those already.
    pub(crate) fn fold(&mut self, ended_or_begun: &[MemberId], members: &HashMap<MemberId, Entry>) {
        for (provider, head) in std::mem::take(&mut self.pending) {
            match head {
                Some(head) => self.put(provider, head, members),
                None => drop(self.remove(&provider)),
            }
        }
        for member in ended_or_begun {
            let provider = ProviderId::from(member);
            if let Some(listed) = self.remove(&provider) {
                self.put(provider, listed.head, members);
            }
        }
    }

    /// Notes that something has changed since the available were counted.
    pub(crate) fn note_change(&mut self) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.changed = true;
        }
    }

    fn put(&mut self, provider: ProviderId, head: Head, members: &HashMap<MemberId, Entry>) {
        self.remove(&provider);
        let place = head.place(&provider, members);
        self.counts.add(place);
        if let Some(occupancy) = place.free {
            self.free.insert((occupancy, provider.clone()));
        }
        self.rows.insert(provider, Listed { head, place });
    }

    fn remove(&mut self, provider: &ProviderId) -> Option<Listed> {
        let listed = self.rows.remove(provider)?;
        self.counts.remove(listed.place);
        if let Some(occupancy) = listed.place.free {
            self.free.remove(&(occupancy, provider.clone()));
        }
        Some(listed)
    }

    /// Those with room in order, from the first after a place on, as far as the file knows: they may have lapsed.
    pub(super) fn free_after(&self, after: Option<&(u32, ProviderId)>) -> impl Iterator<Item = (&ProviderId, &Head)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let free = self.free.range((from, Bound::Unbounded));
        free.filter_map(|(_, provider)| Some((provider, self.committed(provider)?)))
    }

    /// Counts of which those are taken off who lapsed, and as many as were not looked at.
    pub(super) fn count(&self, lapsed: impl Iterator<Item = ProviderId>, unseen: u64) -> RosterStats {
        let (mut counts, mut free) = (self.counts, self.free.len() as u64);
        let places = lapsed.filter_map(|provider| self.rows.get(&provider).map(|listed| listed.place));
        for place in places.filter(|place| place.seated) {
            counts.seated -= 1;
            counts.seated_and_active -= u64::from(place.active);
            free -= u64::from(place.free.is_some());
        }
        RosterStats {
            online: counts.seated.saturating_sub(unseen),
            available: free.saturating_sub(unseen),
            busy: (counts.seated - free).saturating_sub(unseen),
            offline: counts.active - counts.seated_and_active,
            deactivated: counts.rows - counts.active,
            dirty: 0,
        }
    }
}
