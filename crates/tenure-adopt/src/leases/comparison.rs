//! Compares old keys with Tenure's leases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tenure_core::Store;
use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, LeaseName, TenureId};
use tenure_core::lease::Lease;
use tenure_core::store::{MAX_PAGE, Page, PageRequest};

use super::{OldLease, StoredKeys};
use crate::targets::ForeignReader;

/// How many names without a use are listed.
const NAMED: usize = 3;
/// The poll interval of a wait.
const LOOK: Duration = Duration::from_secs(1);

/// The holders of a target, by its old key and its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldBy {
    /// An old instance; a holder of Tenure's lease waits.
    OldNode,
    /// A Tenure node has the old key, but another node, or none, has the lease. The target is moving, or its node has
    /// died.
    Conflict,
    /// One Tenure node has both.
    Both,
    /// There is only a lease.
    TenureOnly,
    /// There is neither.
    Free,
}

impl HeldBy {
    /// The words for a table.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OldNode => "old node",
            Self::Conflict => "conflict",
            Self::Both => "both",
            Self::TenureOnly => "tenure only",
            Self::Free => "free",
        }
    }

    fn of(old: Option<&OldLease>, lease: Option<&Lease>, members: &BTreeSet<String>) -> Self {
        let Some(old) = old else {
            return lease.map_or(Self::Free, |_| Self::TenureOnly);
        };
        let value = std::str::from_utf8(&old.value).unwrap_or_default();
        let lease = lease.filter(|lease| lease.alive);
        // A node's value of an old key is its tenure and a number, or its configured instance id, which is its member
        // name.
        let tenure = value
            .rsplit_once('#')
            .and_then(|(tenure, _)| tenure.parse::<TenureId>().ok());
        let is_holders = lease.is_some_and(|lease| match &tenure {
            Some(tenure) => lease.tenure == *tenure,
            None => lease.holder.as_str() == value,
        });
        if is_holders {
            Self::Both
        } else if tenure.is_some() || members.contains(value) {
            Self::Conflict
        } else {
            Self::OldNode
        }
    }
}

/// One target.
#[derive(Debug)]
pub struct TargetRow {
    /// Its name, as in the keys.
    pub target: Vec<u8>,
    /// Whether the target's own key pauses it, or is unreadable. `None` without such a key.
    pub paused: Option<bool>,
    /// The old key, if there is one.
    pub old: Option<OldLease>,
    /// Tenure's lease, if it is held.
    pub lease: Option<Lease>,
    /// The holders.
    pub held_by: HeldBy,
}

/// When a migration, or a step of it, is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Until {
    /// No old instance holds a key.
    #[default]
    NoOld,
    /// Every target that is not paused is held both ways by a new node.
    Both,
}

impl Until {
    /// Parses `no-old` or `both`.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn parse(until: &str) -> Result<Self> {
        match until {
            "no-old" => Ok(Self::NoOld),
            "both" => Ok(Self::Both),
            _ => Err(Error::invalid(format!("{until:?} is neither no-old nor both"))),
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoOld => "no-old",
            Self::Both => "both",
        })
    }
}

/// The number of targets per kind of holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HolderCounts {
    /// [`HeldBy::OldNode`].
    pub old_node: usize,
    /// [`HeldBy::Conflict`].
    pub conflict: usize,
    /// [`HeldBy::Both`].
    pub both: usize,
    /// [`HeldBy::TenureOnly`].
    pub tenure_only: usize,
    /// [`HeldBy::Free`] and not paused; `None` if the keys of the targets were not read.
    pub free: Option<usize>,
}

impl fmt::Display for HolderCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} held by old nodes, {} in conflict, {} held both ways, {} by Tenure only",
            self.old_node, self.conflict, self.both, self.tenure_only
        )?;
        self.free.map_or(Ok(()), |free| write!(f, ", {free} held by none"))
    }
}

/// All targets that are held in either way.
#[derive(Debug)]
pub struct LeaseComparison {
    /// One row per target, those of old instances first.
    pub rows: Vec<TargetRow>,
    /// The number of targets that have their own key, if these keys were read.
    pub named: Option<usize>,
    /// How many of them are paused because their key is unreadable.
    pub unclear: usize,
    /// How many of them have the field that pauses.
    pub with_field: usize,
    /// Keys of targets whose name no target of Tenure can have.
    pub nameless: NamesWithoutUse,
    /// Old keys of this kind: no new node ever takes them.
    pub old_nameless: NamesWithoutUse,
}

/// Names in other programs' keys that Tenure cannot use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamesWithoutUse {
    /// How many.
    pub count: usize,
    /// The first of them.
    pub first: Vec<Vec<u8>>,
}

impl NamesWithoutUse {
    fn add(&mut self, name: &[u8]) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(name.to_vec());
        }
    }
}

/// The foreign keys of a migration.
#[derive(Debug)]
pub struct MovingKeys {
    /// The keys that old instances hold.
    pub old: StoredKeys,
    /// The keys that define the targets.
    pub targets: Option<ForeignReader>,
}

/// The data of one target.
#[derive(Default)]
struct TargetLeases {
    paused: Option<bool>,
    old: Option<OldLease>,
    lease: Option<Lease>,
}

impl LeaseComparison {
    /// Reads both. The reads are not atomic: a moving target may appear as a conflict.
    ///
    /// # Errors
    /// Those of either store.
    pub async fn look(keys: &MovingKeys, store: &dyn Store, group: &Group) -> Result<Self> {
        let members = all(async |page| store.members(group, &page).await).await?;
        let members = members.into_iter().map(|member| member.member.to_string()).collect();
        let leases = all(async |page| store.leases(group, None, &page).await).await?;
        let mut targets: BTreeMap<Vec<u8>, TargetLeases> = BTreeMap::new();
        let found = match &keys.targets {
            Some(reader) => Some(reader.read().await?),
            None => None,
        };
        for (target, spec) in found.iter().flat_map(|found| &found.targets) {
            let target = target.as_str().as_bytes().to_vec();
            targets.entry(target).or_default().paused = Some(spec.paused);
        }
        for lease in leases {
            let target = lease.lease.as_str().as_bytes().to_vec();
            targets.entry(target).or_default().lease = Some(lease);
        }
        let mut old_nameless = NamesWithoutUse::default();
        for old in keys.old.list().await? {
            let is_name = std::str::from_utf8(&old.target).is_ok_and(|name| LeaseName::new(name).is_ok());
            if !is_name {
                old_nameless.add(&old.target);
            }
            let target = old.target.clone();
            targets.entry(target).or_default().old = Some(old);
        }
        let rows = targets.into_iter().map(|(target, known)| TargetRow {
            held_by: HeldBy::of(known.old.as_ref(), known.lease.as_ref(), &members),
            target,
            paused: known.paused,
            old: known.old,
            lease: known.lease,
        });
        let mut rows: Vec<TargetRow> = rows.collect();
        rows.sort_by(|one, two| (one.held_by, &one.target).cmp(&(two.held_by, &two.target)));
        Ok(Self {
            rows,
            named: found.as_ref().map(|found| found.targets.len()),
            unclear: found.as_ref().map_or(0, |found| found.unclear),
            with_field: found.as_ref().map_or(0, |found| found.with_field),
            nameless: found.map_or_else(NamesWithoutUse::default, |found| NamesWithoutUse {
                count: found.nameless,
                first: found.nameless_first,
            }),
            old_nameless,
        })
    }

    /// Compares repeatedly until the migration is done or the wait is over. `told` is called when the counts change.
    /// Tolerates an unreachable store.
    ///
    /// # Errors
    /// Those of either store.
    pub async fn wait_until_done(
        keys: &MovingKeys,
        store: &dyn Store,
        group: &Group,
        (until, wait, clock): (Until, Duration, &dyn Clock),
        mut told: impl FnMut(HolderCounts),
    ) -> Result<Self> {
        let end = clock.mono() + wait;
        let mut last = None;
        loop {
            let looked = Self::look(keys, store, group).await;
            let is_last = clock.mono() >= end;
            match looked {
                Ok(beside) if beside.is_done(until) || is_last => return Ok(beside),
                Ok(beside) => {
                    let counts = beside.counts();
                    if last.replace(counts) != Some(counts) {
                        told(counts);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Unavailable && !is_last => {}
                Err(error) => return Err(error),
            }
            clock.sleep(LOOK.min(end.since(clock.mono()))).await;
        }
    }

    /// The number of targets per kind of holder.
    #[must_use]
    pub fn counts(&self) -> HolderCounts {
        let mut counts = HolderCounts::default();
        let free = self
            .rows
            .iter()
            .filter(|row| row.held_by == HeldBy::Free && row.paused == Some(false));
        counts.free = self.named.map(|_| free.count());
        for row in &self.rows {
            let count = match row.held_by {
                HeldBy::Free => continue,
                HeldBy::OldNode => &mut counts.old_node,
                HeldBy::Conflict => &mut counts.conflict,
                HeldBy::Both => &mut counts.both,
                HeldBy::TenureOnly => &mut counts.tenure_only,
            };
            *count += 1;
        }
        counts
    }

    /// Whether every old key is held by the node that holds the lease, and with [`Until::Both`] every target that is not
    /// paused has such a node.
    #[must_use]
    pub fn is_done(&self, until: Until) -> bool {
        let counts = self.counts();
        let is_free_of_old = counts.old_node == 0 && counts.conflict == 0;
        let mut wanted = self.rows.iter().filter(|row| row.paused == Some(false));
        is_free_of_old && (until == Until::NoOld || wanted.all(|row| row.held_by == HeldBy::Both))
    }
}

/// Reads all pages of a listing.
async fn all<T>(mut read: impl AsyncFnMut(PageRequest) -> Result<Page<T>>) -> Result<Vec<T>> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let page = read(PageRequest::new(after, MAX_PAGE)?).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::id::{MemberId, Term};
    use tenure_core::lease::{LeaseHolder, Place, Token};

    use super::*;

    fn old(value: &str) -> OldLease {
        OldLease {
            target: b"t".to_vec(),
            value: value.as_bytes().to_vec(),
            free_in: None,
        }
    }

    fn lease(member: &str, term: u64, alive: bool) -> Lease {
        let member = MemberId::new(member).unwrap();
        let holder = LeaseHolder {
            holder: member.clone(),
            tenure: TenureId::new(member, Term::new(term).unwrap()),
            token: Token::new(1).unwrap(),
            place: Place::FIRST,
            generation: Token::new(1).unwrap(),
            alive,
            revoked: false,
            expires_in: Duration::ZERO,
        };
        Lease::of_one(LeaseName::new("t").unwrap(), holder)
    }

    #[test]
    fn holders_are_derived_from_key_and_lease() {
        let members = BTreeSet::from(["new-a".to_owned(), "new-b".to_owned()]);
        let a = lease("new-a", 7, true);
        for (value, lease, held_by) in [
            ("old-1", None, HeldBy::OldNode),
            ("old-1", Some(&a), HeldBy::OldNode),
            ("", Some(&a), HeldBy::OldNode),
            ("old-1#7", None, HeldBy::OldNode),
            ("new-a@7#0", Some(&a), HeldBy::Both),
            ("new-a", Some(&a), HeldBy::Both),
            // An earlier tenure of the member, another node, and no lease.
            ("new-a@6#0", Some(&a), HeldBy::Conflict),
            ("new-b@7#0", Some(&a), HeldBy::Conflict),
            ("new-b", Some(&a), HeldBy::Conflict),
            ("new-a@7#0", None, HeldBy::Conflict),
            ("new-a@7#0", Some(&self::lease("new-a", 7, false)), HeldBy::Conflict),
        ] {
            assert_eq!(
                HeldBy::of(Some(&old(value)), lease, &members),
                held_by,
                "{value} {lease:?}"
            );
        }
        assert_eq!(HeldBy::of(None, Some(&a), &members), HeldBy::TenureOnly);
        assert_eq!(HeldBy::of(None, None, &members), HeldBy::Free);
    }
}
