//! Registries: which tenure owns which key. Claims live in rows alone; only liveness comes from memory.

use std::collections::BTreeSet;

use async_trait::async_trait;
use rusqlite::{Connection, params};
use tenure_core::call::Serve;
use tenure_core::membership::Revision;
use tenure_core::registry::{Claim, ClaimKeys, ClaimMode, ClaimOf, ClaimOutcome, Claimed, Claims, ReleaseClaim};
use tenure_core::store::{Call, Page, bad_cursor};
use tenure_core::{Error, ErrorKind, Group, Key, MemberId, RegistryName, Result, TenureId};

use crate::error::Cause;
use crate::page::{Listing, cursor, cut, place, place_of, walk};
use crate::sql::{read_name, statements};
use crate::step::{Answer, Step};
use crate::store::SqliteStore;

statements! { "registry.sql":
    OWNER = "owner",
    UPSERT = "upsert",
    DELETE = "delete",
    PAGE = "page",
    NEXT_TENURE = "next_tenure",
    OWNED_PAGE = "owned_page",
}

/// The registry as its column has it: with the slash that ends it in the text of a holding.
pub(crate) fn column(registry: &RegistryName) -> String {
    format!("{registry}/")
}

fn owner_of(sql: &Connection, id: i64, registry: &str, key: &Key) -> Result<Option<TenureId>, Cause> {
    let mut look = sql.prepare_cached(OWNER)?;
    let mut rows = look.query(params![id, registry, key.as_str()])?;
    rows.next()?.map(|row| read_name(row, 0)).transpose()
}

impl Step<'_> {
    /// Claims one part of the keys.
    fn claim(&mut self, registry: &str, tenure: &TenureId, keys: &[Key], mode: ClaimMode) -> Answer<Claimed> {
        if let Err(ended) = self.require_alive(tenure)? {
            self.engage_brake()?;
            return Ok(Err(ended));
        }
        let (text, before) = (tenure.to_string(), self.revision_of(tenure));
        let mut outcomes = Vec::with_capacity(keys.len());
        let (mut gained, mut losers) = (false, BTreeSet::new());
        for key in keys {
            let outcome = self.claim_one(registry, tenure, key, mode)?;
            if matches!(outcome, ClaimOutcome::New | ClaimOutcome::Moved { .. }) {
                gained = true;
                self.sql
                    .prepare_cached(UPSERT)?
                    .execute(params![self.id, registry, key.as_str(), text])?;
            }
            if let ClaimOutcome::Moved { from } = &outcome {
                losers.insert(from.to_string());
            }
            outcomes.push(outcome);
        }
        for loser in losers {
            self.strike_if_empty(&loser)?;
        }
        if gained {
            let number = self.next_number();
            self.revise(tenure, Revision(number))?;
        }
        self.engage_brake()?;
        Ok(Ok(Claimed {
            outcomes,
            revision: self.revision_of(tenure),
            before,
        }))
    }

    fn claim_one(
        &mut self,
        registry: &str,
        tenure: &TenureId,
        key: &Key,
        mode: ClaimMode,
    ) -> Result<ClaimOutcome, Cause> {
        let owner = match owner_of(self.sql, self.id, registry, key)? {
            None => return Ok(ClaimOutcome::New),
            Some(owner) if owner == *tenure => return Ok(ClaimOutcome::Kept),
            Some(owner) => owner,
        };
        if owner.member() != tenure.member() {
            self.end_if_past(&owner)?;
            if mode == ClaimMode::IfAbsent && self.is_current(&owner) {
                return Ok(ClaimOutcome::Held { by: owner });
            }
        }
        Ok(ClaimOutcome::Moved { from: owner })
    }

    /// Gives one up.
    fn release_claim(&mut self, registry: &RegistryName, key: &Key, tenure: &TenureId) -> Answer<()> {
        if let Err(ended) = self.require_alive(tenure)? {
            self.engage_brake()?;
            return Ok(Err(ended));
        }
        let done = match owner_of(self.sql, self.id, &column(registry), key)? {
            None => Ok(()),
            Some(owner) if owner == *tenure => {
                self.remove_claim(&column(registry), key.as_str(), &tenure.to_string())?;
                Ok(())
            }
            Some(owner) => Err(Error::new(
                ErrorKind::NotOwner,
                format!("{key} in the registry {registry} is owned by {owner}, not by {tenure}"),
            )),
        };
        self.engage_brake()?;
        Ok(done)
    }

    /// Compare-and-delete. Tells whether there was something to remove.
    pub(crate) fn remove_claim(&self, registry: &str, key: &str, tenure: &str) -> Result<bool, Cause> {
        let mut delete = self.sql.prepare_cached(DELETE)?;
        Ok(delete.execute(params![self.id, registry, key, tenure])? > 0)
    }
}

/// A claim as its row tells.
type ClaimRow = (Key, TenureId);

fn claims_after(sql: &Connection, id: i64, registry: &str, after: &str, limit: u32) -> Result<Vec<ClaimRow>, Cause> {
    let mut select = sql.prepare_cached(PAGE)?;
    let mut rows = select.query(params![id, registry, after, limit])?;
    let mut claims = Vec::new();
    while let Some(row) = rows.next()? {
        claims.push((read_name(row, 0)?, read_name(row, 1)?));
    }
    Ok(claims)
}

/// The claims of one owner, from tenure to tenure.
fn owned_after(
    sql: &Connection,
    id: i64,
    registry: &str,
    owner: &MemberId,
    after: Option<(TenureId, String)>,
    limit: u32,
) -> Result<Vec<ClaimRow>, Cause> {
    let snapshot = sql.unchecked_transaction()?;
    let next = |from: &str, end: &str| {
        let mut select = snapshot.prepare_cached(NEXT_TENURE)?;
        let mut rows = select.query(params![id, from, end])?;
        rows.next()?.map(|row| read_name(row, 0)).transpose()
    };
    let keys = |tenure: &TenureId, after: &str, limit: u32| {
        let mut select = snapshot.prepare_cached(OWNED_PAGE)?;
        let mut rows = select.query(params![id, tenure.to_string(), registry, after, limit])?;
        let mut claims = Vec::new();
        while let Some(row) = rows.next()? {
            claims.push((read_name(row, 0)?, tenure.clone()));
        }
        Ok(claims)
    };
    walk(owner, after, limit, next, keys)
}

/// The tenure and key of a cursor among the claims of one owner.
fn owned_place(cursor: &str, owner: &MemberId) -> Option<(TenureId, String)> {
    let (tenure, key) = place_of(Listing::Owned, cursor, owner)?;
    Key::new(key).ok()?;
    Some((tenure, key.to_owned()))
}

#[async_trait]
impl Serve<ClaimKeys> for SqliteStore {
    async fn serve(&self, group: &Group, ask: ClaimKeys, call: Call) -> Result<Claimed> {
        let registry = column(&ask.registry);
        self.step(group, call, move |step| {
            step.claim(&registry, &ask.tenure, &ask.keys, ask.mode)
        })
        .await
    }
}

#[async_trait]
impl Serve<ReleaseClaim> for SqliteStore {
    async fn serve(&self, group: &Group, ask: ReleaseClaim, call: Call) -> Result<()> {
        self.step(group, call, move |step| {
            step.release_claim(&ask.registry, &ask.key, &ask.tenure)
        })
        .await
    }
}

#[async_trait]
impl Serve<ClaimOf> for SqliteStore {
    async fn serve(&self, group: &Group, ask: ClaimOf, _: Call) -> Result<Option<Claim>> {
        let Some(live) = self.live(group)? else { return Ok(None) };
        let (id, registry, key) = (live.id, column(&ask.registry), ask.key.clone());
        let owner = self.read(move |sql| owner_of(sql, id, &registry, &key)).await?;
        Ok(owner.map(|tenure| Claim {
            key: ask.key,
            owner: tenure.member().clone(),
            alive: live.look(self.clock(), |table, now| table.is_alive(&tenure, now)),
            tenure,
        }))
    }
}

#[async_trait]
impl Serve<Claims> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Claims, _: Call) -> Result<Page<Claim>> {
        let Claims { registry, owner, page } = ask;
        let limit = page.limit;
        let after = page.after.as_deref();
        let bad = |text| bad_cursor(text);
        let (key_after, owned) = match (&owner, after) {
            (_, None) => (String::new(), None),
            (None, Some(text)) => {
                let key = place(Listing::Claims, text).filter(|key| Key::new(key).is_ok());
                (key.ok_or_else(|| bad(text))?.to_owned(), None)
            }
            (Some(owner), Some(text)) => (String::new(), Some(owned_place(text, owner).ok_or_else(|| bad(text))?)),
        };
        let Some(live) = self.live(group)? else {
            return Ok(Page::default());
        };
        let (id, registry) = (live.id, column(&registry));
        let listing = if owner.is_some() {
            Listing::Owned
        } else {
            Listing::Claims
        };
        let rows = self
            .read(move |sql| match &owner {
                None => claims_after(sql, id, &registry, &key_after, limit + 1),
                Some(owner) => owned_after(sql, id, &registry, owner, owned, limit + 1),
            })
            .await?;
        let items = live.look(self.clock(), |table, now| {
            let view = |(key, tenure): ClaimRow| Claim {
                key,
                owner: tenure.member().clone(),
                alive: table.is_alive(&tenure, now),
                tenure,
            };
            rows.into_iter().map(view).collect()
        });
        Ok(cut(items, limit, |claim: &Claim| match listing {
            Listing::Owned => cursor(listing, &format!("{}/{}", claim.tenure, claim.key)),
            _ => cursor(listing, claim.key.as_str()),
        }))
    }
}
