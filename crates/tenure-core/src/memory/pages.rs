//! Sorted, exact pages: the cursor is the key of the last item.

use std::ops::Bound;

use super::decide::Decide;
use super::group::GroupModel;
use crate::error::Result;
use crate::id::{Key, LeaseName, MemberId, SessionId, TenureId};
use crate::lease::{HeldLeases, Lease, LeaseHolder, Leases, LeasesOf, Place};
use crate::membership::{Member, Members};
use crate::registry::{Claim, Claims};
use crate::session::{Session, Sessions};
use crate::store::{Page, PageRequest, bad_cursor};
use crate::target::{Target, Targets};
use crate::time::StoreTime;

impl Decide<Members> for GroupModel {
    /// Members by name.
    fn read(&self, Members { page }: &Members, now: StoreTime) -> Result<Page<Member>> {
        let after = page
            .after
            .as_deref()
            .map(|text| MemberId::new(text).map_err(|_| bad_cursor(text)))
            .transpose()?;
        let names = self.lives.table.range((behind(after), Bound::Unbounded));
        Ok(cut(
            names.map(|(member, _)| member),
            page.limit,
            |member| member.to_string(),
            |member| self.member(member, now),
        ))
    }
}

impl Decide<Claims> for GroupModel {
    /// Claims by key, or of one owner by tenure and key.
    fn read(&self, Claims { registry, owner, page }: &Claims, now: StoreTime) -> Result<Page<Claim>> {
        let Some(owner) = owner else {
            let after = page
                .after
                .as_deref()
                .map(|text| Key::new(text).map_err(|_| bad_cursor(text)))
                .transpose()?;
            let from = match after {
                Some(after) => Bound::Excluded((registry.clone(), after)),
                None => Bound::Included((registry.clone(), Key::first())),
            };
            let claims = self.claims.range((from, Bound::Unbounded));
            let claims = claims.take_while(|((of, _), _)| of == registry);
            return Ok(cut(
                claims,
                page.limit,
                |((_, key), _)| key.to_string(),
                |((_, key), tenure)| Some(self.claim_view(key, tenure, now)),
            ));
        };
        let after = page
            .after
            .as_deref()
            .map(|text| owner_cursor(text).ok_or_else(|| bad_cursor(text)))
            .transpose()?;
        let (from, last) = after.unzip();
        let owned = self.held.tenures_of(owner, from.as_ref()).flat_map(|tenure| {
            let last = last.as_ref().filter(|_| from.as_ref() == Some(tenure));
            let keys = self.held.keys(tenure, registry, last);
            keys.filter(move |key| Some(*key) != last).map(move |key| (tenure, key))
        });
        Ok(cut(
            owned,
            page.limit,
            |(tenure, key)| format!("{tenure}/{key}"),
            |(tenure, key)| Some(self.claim_view(key, tenure, now)),
        ))
    }
}

impl Decide<Leases> for GroupModel {
    /// Leases by name, or of one holder by tenure and name.
    fn read(&self, Leases { holder, page }: &Leases, now: StoreTime) -> Result<Page<Lease>> {
        let Some(holder) = holder else {
            let after = lease_cursor(page)?;
            let from = match after {
                Some(after) => Bound::Excluded((after, Place::LAST)),
                None => Bound::Unbounded,
            };
            let mut last = None;
            let names = self
                .leases
                .table
                .range((from, Bound::Unbounded))
                .map(|((lease, _), _)| lease);
            let names = names.filter(move |lease| last.replace(*lease) != Some(*lease));
            return Ok(cut(
                names,
                page.limit,
                |lease| lease.to_string(),
                |lease| self.lease_of(lease, None, now),
            ));
        };
        let after = page
            .after
            .as_deref()
            .map(|text| holder_cursor(text).ok_or_else(|| bad_cursor(text)))
            .transpose()?;
        let (from, last) = after.unzip();
        let held = self.held.tenures_of(holder, from.as_ref()).flat_map(|tenure| {
            let last = last.as_ref().filter(|_| from.as_ref() == Some(tenure));
            let leases = self.held.leases(tenure, last);
            leases
                .filter(move |lease| Some(*lease) != last)
                .map(move |lease| (tenure, lease))
        });
        Ok(cut(
            held,
            page.limit,
            |(tenure, lease)| format!("{tenure}/{lease}"),
            |(tenure, lease)| self.lease_of(lease, Some(tenure), now),
        ))
    }
}

impl Decide<LeasesOf> for GroupModel {
    /// What one tenure holds, by name.
    fn read(&self, LeasesOf { tenure, page }: &LeasesOf, now: StoreTime) -> Result<HeldLeases> {
        let after = lease_cursor(page)?;
        self.held.counts.get(tenure);
        let leased = self.held.leases(tenure, after.as_ref());
        let leased = leased.filter(|lease| Some(*lease) != after.as_ref());
        let page = cut(
            leased,
            page.limit,
            |lease| lease.to_string(),
            |lease| self.unrevoked(tenure, lease, now),
        );
        Ok(HeldLeases {
            page,
            revision: self.revision_of(tenure),
        })
    }
}

impl GroupModel {
    /// What a tenure may act under. A lease that an operator released is not among it.
    fn unrevoked(&self, tenure: &TenureId, lease: &LeaseName, now: StoreTime) -> Option<Lease> {
        let read = self.lease_of(lease, Some(tenure), now)?;
        let is_revoked = |holder: &LeaseHolder| holder.tenure == *tenure && holder.revoked;
        (!read.holders.iter().any(is_revoked)).then_some(read)
    }
}

impl Decide<Targets> for GroupModel {
    /// Targets by name.
    fn read(&self, Targets { page }: &Targets, _: StoreTime) -> Result<Page<Target>> {
        let after = lease_cursor(page)?;
        let names = self.targets.range((behind(after), Bound::Unbounded));
        Ok(cut(
            names.map(|(target, _)| target),
            page.limit,
            |target| target.to_string(),
            |target| self.target(target),
        ))
    }
}

impl Decide<Sessions> for GroupModel {
    /// Sessions by name, or disconnected ones by the end of their grace.
    fn read(&self, request: &Sessions, now: StoreTime) -> Result<Page<Session>> {
        let Sessions { state, page, .. } = request;
        let seen = |session: &SessionId| self.session(session, now).filter(|session| request.has(session, now));
        if !request.is_by_grace() {
            let after = page
                .after
                .as_deref()
                .map(|text| SessionId::new(text).map_err(|_| bad_cursor(text)))
                .transpose()?;
            let names = self.sessions.names(state.is_some(), behind(after));
            return Ok(cut(names, page.limit, |name| name.to_string(), seen));
        }
        let after = page
            .after
            .as_deref()
            .map(|text| away_cursor(text).ok_or_else(|| bad_cursor(text)))
            .transpose()?;
        let away = self.sessions.away_after(behind(after));
        Ok(cut(
            away,
            page.limit,
            |(at, session)| format!("{}/{session}", at.micros()),
            |(_, session)| seen(session),
        ))
    }
}

fn away_cursor(text: &str) -> Option<(StoreTime, SessionId)> {
    let (at, session) = text.split_once('/')?;
    Some((StoreTime::from_micros(at.parse().ok()?), SessionId::new(session).ok()?))
}

fn lease_cursor(page: &PageRequest) -> Result<Option<LeaseName>> {
    page.after
        .as_deref()
        .map(|text| LeaseName::new(text).map_err(|_| bad_cursor(text)))
        .transpose()
}

fn holder_cursor(text: &str) -> Option<(TenureId, LeaseName)> {
    let (tenure, lease) = text.split_once('/')?;
    Some((tenure.parse().ok()?, LeaseName::new(lease).ok()?))
}

fn owner_cursor(text: &str) -> Option<(TenureId, Key)> {
    let (tenure, key) = text.split_once('/')?;
    Some((tenure.parse().ok()?, Key::new(key).ok()?))
}

/// The start of a page, after the cursor.
pub(super) fn behind<K>(after: Option<K>) -> Bound<K> {
    after.map_or(Bound::Unbounded, Bound::Excluded)
}

pub(super) fn cut<I, T>(
    items: impl Iterator<Item = I>,
    limit: u32,
    cursor: impl Fn(&I) -> String,
    view: impl Fn(I) -> Option<T>,
) -> Page<T> {
    let mut items = items.peekable();
    let mut page = Page::default();
    for nth in 1..=limit {
        let Some(item) = items.next() else { break };
        if nth == limit && items.peek().is_some() {
            page.next = Some(cursor(&item));
        }
        page.items.extend(view(item));
    }
    page
}
