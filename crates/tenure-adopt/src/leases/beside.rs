//! Old keys and Tenure's leases side by side, and what each pair means.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tenure_core::Store;
use tenure_core::clock::Clock;
use tenure_core::error::{ErrorKind, Result};
use tenure_core::id::{Group, TenureId};
use tenure_core::lease::Lease;
use tenure_core::store::{MAX_PAGE, Page, PageRequest};

use super::{OldLease, StoredKeys};
use crate::targets::ForeignReader;

/// How often it looks while it waits.
const LOOK: Duration = Duration::from_secs(1);

/// What a target's old key and its lease mean together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldBy {
    /// An old instance holds it; whoever holds Tenure's lease waits.
    OldNode,
    /// A node of Tenure has the old key, and another one, or nobody, has the lease. It is moving, or its node has died.
    Conflict,
    /// One node of Tenure has both.
    Both,
    /// There is no old key, only a lease.
    TenureOnly,
    /// There is neither.
    Free,
}

impl HeldBy {
    /// In words, for a table.
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
        // A node holds old keys by its tenure and a number, or by an id that it was told to use: that of its member.
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
pub struct Row {
    /// Its name, as the keys have it.
    pub target: Vec<u8>,
    /// Whether the key that names it says that it is paused, or cannot be understood. `None` without such a key.
    pub paused: Option<bool>,
    /// The old key, if there is one.
    pub old: Option<OldLease>,
    /// Tenure's lease, if somebody has it.
    pub lease: Option<Lease>,
    /// What the two mean together.
    pub held_by: HeldBy,
}

/// How many targets there are of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// [`HeldBy::OldNode`].
    pub old_node: usize,
    /// [`HeldBy::Conflict`].
    pub conflict: usize,
    /// [`HeldBy::Both`].
    pub both: usize,
    /// [`HeldBy::TenureOnly`].
    pub tenure_only: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} held by old nodes, {} in conflict, {} held both ways, {} by Tenure only",
            self.old_node, self.conflict, self.both, self.tenure_only
        )
    }
}

/// All targets that are held in either way.
#[derive(Debug)]
pub struct Beside {
    /// One row each, those that old instances hold first.
    pub rows: Vec<Row>,
    /// How many targets are named by keys of their own, when these were looked at.
    pub named: Option<usize>,
    /// How many of them count as paused because their key cannot be understood.
    pub unclear: usize,
}

/// The keys of other programs.
#[derive(Debug)]
pub struct MovingKeys {
    /// Those that old instances hold.
    pub old: StoredKeys,
    /// Those that name the targets.
    pub targets: Option<ForeignReader>,
}

/// What is known of one target.
#[derive(Default)]
struct Known {
    paused: Option<bool>,
    old: Option<OldLease>,
    lease: Option<Lease>,
}

impl Beside {
    /// Looks at both. The two are not one moment: what moves meanwhile may show as a conflict.
    ///
    /// # Errors
    /// Those of either store.
    pub async fn look(keys: &MovingKeys, store: &dyn Store, group: &Group) -> Result<Self> {
        let members = all(async |page| store.members(group, &page).await).await?;
        let members = members.into_iter().map(|member| member.member.to_string()).collect();
        let leases = all(async |page| store.leases(group, None, &page).await).await?;
        let mut targets: BTreeMap<Vec<u8>, Known> = BTreeMap::new();
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
        for old in keys.old.list().await? {
            let target = old.target.clone();
            targets.entry(target).or_default().old = Some(old);
        }
        let rows = targets.into_iter().map(|(target, known)| Row {
            held_by: HeldBy::of(known.old.as_ref(), known.lease.as_ref(), &members),
            target,
            paused: known.paused,
            old: known.old,
            lease: known.lease,
        });
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_by(|one, two| (one.held_by, &one.target).cmp(&(two.held_by, &two.target)));
        Ok(Self {
            rows,
            named: found.as_ref().map(|found| found.targets.len()),
            unclear: found.map_or(0, |found| found.unclear),
        })
    }

    /// Looks again and again until nothing is left to wait for, or the time is over. `told` hears of the counts whenever they
    /// are others. A store that is away for a while is waited for as well.
    ///
    /// # Errors
    /// Those of either store.
    pub async fn wait_until_done(
        keys: &MovingKeys,
        store: &dyn Store,
        group: &Group,
        (wait, clock): (Duration, &dyn Clock),
        mut told: impl FnMut(Counts),
    ) -> Result<Self> {
        let end = clock.mono() + wait;
        let mut last = None;
        loop {
            let looked = Self::look(keys, store, group).await;
            let is_last = clock.mono() >= end;
            match looked {
                Ok(beside) if beside.is_done() || is_last => return Ok(beside),
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

    /// How many there are of each kind.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
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

    /// Whether no old key is held but by the node that holds the lease.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let counts = self.counts();
        counts.old_node == 0 && counts.conflict == 0
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
    use tenure_core::id::{LeaseName, MemberId, Term};
    use tenure_core::lease::Token;

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
        Lease {
            lease: LeaseName::new("t").unwrap(),
            holder: member.clone(),
            tenure: TenureId::new(member, Term::new(term).unwrap()),
            token: Token::new(1).unwrap(),
            alive,
            expires_in: Duration::ZERO,
        }
    }

    #[test]
    fn every_pair_has_its_verdict() {
        let members = BTreeSet::from(["new-a".to_owned(), "new-b".to_owned()]);
        let a = lease("new-a", 7, true);
        for (value, lease, held_by) in [
            ("old-1", None, HeldBy::OldNode),
            ("old-1", Some(&a), HeldBy::OldNode),
            ("", Some(&a), HeldBy::OldNode),
            ("old-1#7", None, HeldBy::OldNode),
            ("new-a@7#0", Some(&a), HeldBy::Both),
            ("new-a", Some(&a), HeldBy::Both),
            // An earlier life of it, another node, nobody.
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
