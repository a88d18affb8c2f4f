//! The list of groups: an index of their names for sweepers. It can be lost independently of the groups (a flush, a
//! deletion, one node of a cluster), so every process re-adds the groups that it acts on, and a key scan finds idle
//! ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::store::PROBE_GROUP;

use crate::connection::Connection;
use crate::keys::{self, GROUPS};
use crate::reply::{Read, Reader};
use crate::store::ValkeyStore;
use crate::view::foreign;

/// How many announced and active groups a process remembers, each.
const REMEMBERED: usize = 100_000;
/// How long an announcement is trusted, and how long an act keeps a group active.
const BELIEVED: Duration = Duration::from_secs(30);
/// How many names one command carries.
const NAMES: usize = 500;
/// How many keys one scan step reads, and how many steps one call takes: about 10 ms of the server's time.
const PAGE: u32 = 500;
const PAGES: usize = 50;

/// The state of the group list in a process.
#[derive(Debug, Default)]
pub(crate) struct GroupList {
    announced: Mutex<Announced>,
    acted: Mutex<HashMap<Group, Mono>>,
    /// When the format was last found in the store, by which connection.
    marked: Mutex<Option<(Option<u64>, Mono)>>,
    search: tokio::sync::Mutex<GroupSearch>,
}

/// When each group was added to the list, for one connection: the next connection may lead to another server.
#[derive(Debug, Default)]
struct Announced {
    generation: Option<u64>,
    groups: HashMap<Group, Mono>,
}

/// A scan of the keys of all primaries.
#[derive(Debug, Default)]
struct GroupSearch {
    scans: Vec<PrimaryScan>,
    /// Why a primary was skipped, if one was.
    failed: Option<Error>,
}

/// The position of the scan on one primary.
#[derive(Debug)]
struct PrimaryScan {
    primary: Connection,
    cursor: String,
}

impl GroupList {
    fn act(&self, group: &Group, now: Mono) {
        let mut acted = lock(&self.acted);
        if let Some(at) = acted.get_mut(group) {
            *at = now;
        } else if acted.len() < REMEMBERED {
            acted.insert(group.clone(), now);
        }
    }

    /// The groups with a recent act.
    fn acted(&self, now: Mono) -> Vec<Group> {
        let mut acted = lock(&self.acted);
        acted.retain(|_, at| now.since(*at) <= BELIEVED);
        acted.keys().cloned().collect()
    }

    /// When a group was last announced.
    fn announced_at(&self, group: &Group, generation: Option<u64>) -> Option<Mono> {
        let announced = lock(&self.announced);
        announced
            .groups
            .get(group)
            .filter(|_| announced.generation == generation)
            .copied()
    }

    fn note_announced(&self, group: &Group, generation: Option<u64>, now: Mono) {
        let mut announced = lock(&self.announced);
        if announced.generation != generation || announced.groups.len() >= REMEMBERED {
            *announced = Announced {
                generation,
                groups: HashMap::new(),
            };
        }
        announced.groups.insert(group.clone(), now);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ValkeyStore {
    /// Records an act on a group.
    pub(crate) fn act_on(&self, group: &Group) {
        self.list.act(group, self.connection.clock().mono());
    }

    /// Adds a group to the list before a member joins, so it is swept even if this process dies. Idempotent, so a late
    /// call is harmless.
    pub(crate) async fn announce(&self, group: &Group) -> Result<()> {
        let (generation, now) = (self.connection.generation_of(GROUPS), self.connection.clock().mono());
        let before = self.list.announced_at(group, generation);
        if before.is_some_and(|at| now.since(at) <= BELIEVED) {
            return Ok(());
        }
        match self.put_back(std::slice::from_ref(group)).await {
            // It was on the list and most likely still is: an unreachable list must not refuse a join.
            Err(error) if before.is_none() => return Err(error),
            _ => self.list.note_announced(group, generation, now),
        }
        Ok(())
    }

    /// Removes a group from the list and from this process's memory.
    pub(crate) async fn take_off(&self, group: &Group) -> Result<()> {
        lock(&self.list.acted).remove(group);
        lock(&self.list.announced).groups.remove(group);
        let mut cmd = redis::cmd("SREM");
        cmd.arg(GROUPS).arg(group.as_str());
        self.connection.command_on(GROUPS, cmd).await?;
        Ok(())
    }

    /// Writes the format of the data before the first group, and again after a flush.
    async fn mark_format(&self) -> Result<()> {
        let mark = keys::FORMAT;
        let (generation, now) = (self.connection.generation_of(mark.key), self.connection.clock().mono());
        let is_fresh = |(by, at): (Option<u64>, Mono)| by == generation && now.since(at) <= BELIEVED;
        if lock(&self.list.marked).is_some_and(is_fresh) {
            return Ok(());
        }
        let mut write = redis::cmd("HSETNX");
        write.arg(mark.key).arg(mark.field).arg(mark.value);
        self.connection.command_on(mark.key, write).await?;
        let mut read = redis::cmd("HGET");
        read.arg(mark.key).arg(mark.field);
        let value = self.connection.command_on(mark.key, read).await?;
        let found = Reader::of(value).maybe_lossy_text();
        mark.check(found.map_err(foreign)?.as_deref())?;
        *lock(&self.list.marked) = Some((generation, now));
        Ok(())
    }

    async fn put_back(&self, groups: &[Group]) -> Result<()> {
        // Without the mark a join still works: the slot of the mark may be away, and the groups' slots may not.
        self.mark_format().await.or_else(|error| match error.kind() {
            ErrorKind::Misconfigured => Err(error),
            _ => Ok(()),
        })?;
        for some in groups.chunks(NAMES) {
            let mut cmd = redis::cmd("SADD");
            cmd.arg(GROUPS);
            for group in some {
                cmd.arg(group.as_str());
            }
            self.connection.command_on(GROUPS, cmd).await?;
        }
        Ok(())
    }

    /// The groups of the list and the recently active groups of this process, which are re-added if missing.
    pub(crate) async fn list_groups(&self) -> Result<Vec<Group>> {
        // The order matters: a join announces its group before it acts.
        let acted = self.list.acted(self.connection.clock().mono());
        let mut groups = self.read_list().await?;
        let lost: Vec<_> = acted.into_iter().filter(|group| !groups.contains(group)).collect();
        if !lost.is_empty() {
            tracing::warn!(groups = lost.len(), first = %lost[0], "groups in use were missing from the group list and are added again");
            self.put_back(&lost).await?;
            groups.extend(lost);
        }
        Ok(groups.into_iter().collect())
    }

    async fn read_list(&self) -> Result<BTreeSet<Group>> {
        let (mut cursor, mut groups) = ("0".to_owned(), BTreeSet::new());
        loop {
            let mut cmd = redis::cmd("SSCAN");
            cmd.arg(GROUPS).arg(&cursor).arg("COUNT").arg(NAMES);
            let value = self.connection.command_on(GROUPS, cmd).await?;
            let (next, names) = read_scan(value).map_err(foreign)?;
            // An invalid name was added by another program.
            groups.extend(names.iter().filter_map(|name| Group::new(name).ok()));
            if next == "0" {
                return Ok(groups);
            }
            cursor = next;
        }
    }

    /// Scans a part of the keys for groups and adds them to the list. Returns whether the scan continues. A failed
    /// primary is skipped, and reported after the others are scanned.
    pub(crate) async fn search_groups(&self) -> Result<bool> {
        let mut search = self.list.search.lock().await;
        if search.scans.is_empty() {
            let from = |primary| PrimaryScan {
                primary,
                cursor: "0".to_owned(),
            };
            search.scans = self.connection.primaries().into_iter().map(from).collect();
        }
        let found = search.some().await;
        if let Err(error) = self.put_back(&found).await {
            // The groups found are not on the list, so the next scan must find them again.
            *search = GroupSearch::default();
            return Err(error);
        }
        let is_over = search.scans.is_empty();
        match search.failed.take_if(|_| is_over) {
            Some(error) => Err(error),
            None => Ok(!is_over),
        }
    }
}

impl GroupSearch {
    /// Reads some more pages and returns the groups found.
    async fn some(&mut self) -> Vec<Group> {
        let mut found = Vec::new();
        for _ in 0..PAGES {
            let Some(scan) = self.scans.last_mut() else { break };
            match scan.page().await {
                Ok((groups, is_last)) => {
                    found.extend(groups);
                    if is_last {
                        self.scans.pop();
                    }
                }
                Err(error) => {
                    self.failed.get_or_insert(error);
                    self.scans.pop();
                }
            }
        }
        found
    }
}

impl PrimaryScan {
    /// The groups of the next page, and whether it was the last one.
    async fn page(&mut self) -> Result<(Vec<Group>, bool)> {
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(&self.cursor)
            .arg("MATCH")
            .arg(keys::ALL_META)
            .arg("COUNT")
            .arg(PAGE);
        let (next, names) = read_scan(self.primary.command(cmd).await?).map_err(foreign)?;
        self.cursor = next;
        let groups = names.iter().filter_map(|name| keys::group_of_meta(name));
        // Groups of the write probe are never listed.
        let groups = groups
            .filter(|group| !group.as_str().starts_with(PROBE_GROUP))
            .collect();
        Ok((groups, self.cursor == "0"))
    }
}

fn read_scan(value: Value) -> Read<(String, Vec<String>)> {
    let mut reader = Reader::new(value)?;
    Ok((reader.text()?, reader.array()?.texts()?))
}
