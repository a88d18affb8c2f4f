//! The list of groups: an index of their names, so that a sweeper finds them, and no more. It can be lost without the groups
//! (a flush, a deletion, one node of a cluster), so every process puts back the groups that it acts on, and a search
//! through the keys finds idle ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use redis::Value;
use tenure_core::clock::Mono;
use tenure_core::error::{Error, Result};
use tenure_core::event::EventId;
use tenure_core::id::Group;
use tenure_core::store::PROBE_GROUP;

use crate::connection::Connection;
use crate::keys::{self, GROUPS};
use crate::reply::{Read, Reader};
use crate::store::ValkeyStore;
use crate::view::foreign;

/// How many groups a process remembers, of those announced and of those acted on.
const REMEMBERED: usize = 100_000;
/// How long an announcement is believed, and an act counts as a reason to put a group back.
const BELIEVED: Duration = Duration::from_secs(30);
/// How many names one command carries.
const NAMES: usize = 500;
/// How many keys one step of a search looks at, and how many steps one call takes: some 10 ms of the server's time.
const PAGE: u32 = 500;
const PAGES: usize = 50;
/// How many groups are asked for their newest event at once.
const LOOKS: usize = 64;

/// What a process knows of the list.
#[derive(Debug, Default)]
pub(crate) struct GroupList {
    announced: Mutex<Announced>,
    acted: Mutex<HashMap<Group, Mono>>,
    search: tokio::sync::Mutex<Search>,
}

/// The groups that were put into the list, and when, as of one connection: what comes after it may be another server.
#[derive(Debug, Default)]
struct Announced {
    life: Option<u64>,
    groups: HashMap<Group, Mono>,
}

/// A search through the keys of all primaries.
#[derive(Debug, Default)]
struct Search {
    places: Vec<Place>,
    /// Why a primary was left out, if one was.
    failed: Option<Error>,
}

/// How far the keys of one primary have been searched.
#[derive(Debug)]
struct Place {
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

    /// The groups that were acted on lately.
    fn acted(&self, now: Mono) -> Vec<Group> {
        let mut acted = lock(&self.acted);
        acted.retain(|_, at| now.since(*at) <= BELIEVED);
        acted.keys().cloned().collect()
    }

    /// When a group was announced last.
    fn announced_at(&self, group: &Group, life: Option<u64>) -> Option<Mono> {
        let announced = lock(&self.announced);
        announced.groups.get(group).filter(|_| announced.life == life).copied()
    }

    fn note_announced(&self, group: &Group, life: Option<u64>, now: Mono) {
        let mut announced = lock(&self.announced);
        if announced.life != life || announced.groups.len() >= REMEMBERED {
            *announced = Announced {
                life,
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
    /// Notes an act on a group.
    pub(crate) fn act_on(&self, group: &Group) {
        self.list.act(group, self.connection.clock().mono());
    }

    /// Puts a group into the list before a member joins, so that it is swept whatever happens to this process. Idempotent,
    /// so a late one is harmless.
    pub(crate) async fn announce(&self, group: &Group) -> Result<()> {
        let (life, now) = (self.connection.life_of(GROUPS), self.connection.clock().mono());
        let before = self.list.announced_at(group, life);
        if before.is_some_and(|at| now.since(at) <= BELIEVED) {
            return Ok(());
        }
        match self.put_back(std::slice::from_ref(group)).await {
            // It was there, and most likely still is: a list that is away must not refuse a join.
            Err(error) if before.is_none() => return Err(error),
            _ => self.list.note_announced(group, life, now),
        }
        Ok(())
    }

    /// Takes a group off the list, and forgets that this process knows it.
    pub(crate) async fn take_off(&self, group: &Group) -> Result<()> {
        lock(&self.list.acted).remove(group);
        lock(&self.list.announced).groups.remove(group);
        let mut cmd = redis::cmd("SREM");
        cmd.arg(GROUPS).arg(group.as_str());
        self.connection.command_on(GROUPS, cmd).await?;
        Ok(())
    }

    async fn put_back(&self, groups: &[Group]) -> Result<()> {
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

    /// The groups of the list, and those that this process has acted on lately: they are put back if the list lacks them.
    pub(crate) async fn list_groups(&self) -> Result<Vec<Group>> {
        // In this order: a join announces its group before it acts.
        let acted = self.list.acted(self.connection.clock().mono());
        let mut groups = self.read_list().await?;
        let lost: Vec<_> = acted.into_iter().filter(|group| !groups.contains(group)).collect();
        if !lost.is_empty() {
            tracing::warn!(groups = lost.len(), first = %lost[0], "the list of groups lacks some that are in use; they are put back");
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
            // An invalid name was put there by another program; it is no group of ours.
            groups.extend(names.iter().filter_map(|name| Group::new(name).ok()));
            if next == "0" {
                return Ok(groups);
            }
            cursor = next;
        }
    }

    /// The number of the newest event of each group that can be asked.
    pub(crate) async fn look_for_events(&self, groups: &[Group]) -> Result<Vec<(Group, EventId)>> {
        let look = async |group: &Group| {
            let key = keys::meta(group);
            let mut cmd = redis::cmd("HMGET");
            cmd.arg(&key).arg("events");
            let value = self.connection.command_on(&key, cmd).await?;
            let newest = Reader::new(value).and_then(|mut reply| reply.maybe_number());
            Ok((group.clone(), EventId(newest.map_err(foreign)?.unwrap_or(0))))
        };
        let mut looks = stream::iter(groups).map(look).buffer_unordered(LOOKS);
        let (mut newest, mut failed) = (Vec::new(), None);
        while let Some(looked) = looks.next().await {
            match looked {
                Ok(one) => newest.push(one),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if newest.is_empty() => Err(error),
            _ => Ok(newest),
        }
    }

    /// Searches a part of the keys for groups, and puts those that it finds into the list. `true` when there is more to
    /// search. A primary that fails is left out, and reported when the others were searched.
    pub(crate) async fn search_groups(&self) -> Result<bool> {
        let mut search = self.list.search.lock().await;
        if search.places.is_empty() {
            let from = |primary| Place {
                primary,
                cursor: "0".to_owned(),
            };
            search.places = self.connection.primaries().into_iter().map(from).collect();
        }
        let found = search.some().await;
        if let Err(error) = self.put_back(&found).await {
            // What was found is not on the list, so the next search has to find it again.
            *search = Search::default();
            return Err(error);
        }
        let is_over = search.places.is_empty();
        match search.failed.take_if(|_| is_over) {
            Some(error) => Err(error),
            None => Ok(!is_over),
        }
    }
}

impl Search {
    /// Reads some more pages. Answers the groups that were found.
    async fn some(&mut self) -> Vec<Group> {
        let mut found = Vec::new();
        for _ in 0..PAGES {
            let Some(place) = self.places.last_mut() else { break };
            match place.page().await {
                Ok((groups, is_last)) => {
                    found.extend(groups);
                    if is_last {
                        self.places.pop();
                    }
                }
                Err(error) => {
                    self.failed.get_or_insert(error);
                    self.places.pop();
                }
            }
        }
        found
    }
}

impl Place {
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
        // Those that only show whether the store takes writes are on no list.
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
