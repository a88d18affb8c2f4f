//! Sorted, exact pages: the cursor is the last item's own key.

use super::decide::Decide;
use super::group::GroupModel;
use crate::error::Result;
use crate::id::{Key, LeaseName, MemberId, SessionId, TenureId};
use crate::lease::{HeldLeases, Lease, Leases, LeasesOf};
use crate::membership::{Member, Members};
use crate::registry::{Claim, Claims};
use crate::session::{Session, SessionState, Sessions};
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
        let names = self
            .members
            .keys()
            .filter(|member| after.as_ref().is_none_or(|after| *member > after));
        Ok(cut(
            names,
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
            let claims = self.claims.get(registry).into_iter().flatten();
            let claims = claims.filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after));
            return Ok(cut(
                claims,
                page.limit,
                |(key, _)| key.to_string(),
                |(key, tenure)| Some(self.claim_view(key, tenure, now)),
            ));
        };
        let after = page
            .after
            .as_deref()
            .map(|text| owner_cursor(text).ok_or_else(|| bad_cursor(text)))
            .transpose()?;
        let mut owned: Vec<(String, &Key, &TenureId)> = self
            .held
            .iter()
            .filter(|(tenure, _)| tenure.member() == owner)
            .flat_map(|(tenure, held)| {
                held.iter()
                    .filter(|(name, _)| name == registry)
                    .map(move |(_, key)| (tenure.to_string(), key, tenure))
            })
            .collect();
        owned.sort();
        let owned = owned
            .into_iter()
            .filter(|(tenure, key, _)| after.as_ref().is_none_or(|(t, k)| (tenure, *key) > (t, k)));
        Ok(cut(
            owned,
            page.limit,
            |(tenure, key, _)| format!("{tenure}/{key}"),
            |(_, key, tenure)| Some(self.claim_view(key, tenure, now)),
        ))
    }
}

impl Decide<Leases> for GroupModel {
    /// Leases by name, or of one holder by tenure and name.
    fn read(&self, Leases { holder, page }: &Leases, now: StoreTime) -> Result<Page<Lease>> {
        let Some(holder) = holder else {
            let after = lease_cursor(page)?;
            let names = self
                .leases
                .keys()
                .filter(|lease| after.as_ref().is_none_or(|after| *lease > after));
            return Ok(cut(
                names,
                page.limit,
                |lease| lease.to_string(),
                |lease| self.lease_of(lease, now),
            ));
        };
        let after = page
            .after
            .as_deref()
            .map(|text| holder_cursor(text).ok_or_else(|| bad_cursor(text)))
            .transpose()?;
        let mut held: Vec<(String, &LeaseName)> = self
            .leased
            .iter()
            .filter(|(tenure, _)| tenure.member() == holder)
            .flat_map(|(tenure, leased)| leased.iter().map(move |lease| (tenure.to_string(), lease)))
            .collect();
        held.sort();
        let held = held
            .into_iter()
            .filter(|(tenure, lease)| after.as_ref().is_none_or(|(t, l)| (tenure, *lease) > (t, l)));
        Ok(cut(
            held,
            page.limit,
            |(tenure, lease)| format!("{tenure}/{lease}"),
            |(_, lease)| self.lease_of(lease, now),
        ))
    }
}

impl Decide<LeasesOf> for GroupModel {
    /// What one tenure holds, by name.
    fn read(&self, LeasesOf { tenure, page }: &LeasesOf, now: StoreTime) -> Result<HeldLeases> {
        let after = lease_cursor(page)?;
        let leased = self.leased.get(tenure).into_iter().flatten();
        let leased = leased.filter(|lease| after.as_ref().is_none_or(|after| *lease > after));
        let page = cut(
            leased,
            page.limit,
            |lease| lease.to_string(),
            |lease| self.lease_of(lease, now),
        );
        Ok(HeldLeases {
            page,
            revision: self.revision_of(tenure),
        })
    }
}

impl Decide<Targets> for GroupModel {
    /// Targets by name.
    fn read(&self, Targets { page }: &Targets, _: StoreTime) -> Result<Page<Target>> {
        let after = lease_cursor(page)?;
        let names = self
            .targets
            .keys()
            .filter(|target| after.as_ref().is_none_or(|after| *target > after));
        Ok(cut(
            names,
            page.limit,
            |target| target.to_string(),
            |target| self.target(target),
        ))
    }
}

impl Decide<Sessions> for GroupModel {
    /// Sessions by name, or the disconnected ones by when their grace ends.
    fn read(&self, Sessions { state, page }: &Sessions, now: StoreTime) -> Result<Page<Session>> {
        let seen = |session: &SessionId| {
            self.session(session, now)
                .filter(|session| state.is_none_or(|state| session.state == state))
        };
        if matches!(state, None | Some(SessionState::Active)) {
            let after = page
                .after
                .as_deref()
                .map(|text| SessionId::new(text).map_err(|_| bad_cursor(text)))
                .transpose()?;
            let names = self
                .sessions
                .iter()
                .filter(|(_, record)| state.is_none() || record.away.is_none())
                .map(|(name, _)| name)
                .filter(|name| after.as_ref().is_none_or(|after| *name > after));
            return Ok(cut(names, page.limit, |name| name.to_string(), seen));
        }
        let after = page
            .after
            .as_deref()
            .map(|text| away_cursor(text).ok_or_else(|| bad_cursor(text)))
            .transpose()?;
        let away = self
            .away
            .iter()
            .filter(|entry| after.as_ref().is_none_or(|after| *entry > after));
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

fn holder_cursor(text: &str) -> Option<(String, LeaseName)> {
    let (tenure, lease) = text.split_once('/')?;
    tenure.parse::<TenureId>().ok()?;
    Some((tenure.to_owned(), LeaseName::new(lease).ok()?))
}

fn owner_cursor(text: &str) -> Option<(String, Key)> {
    let (tenure, key) = text.split_once('/')?;
    tenure.parse::<TenureId>().ok()?;
    Some((tenure.to_owned(), Key::new(key).ok()?))
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
