//! Sorted, exact pages: the cursor is the last item's own key.

use super::group::GroupModel;
use crate::error::Result;
use crate::id::{Key, MemberId, RegistryName, TenureId};
use crate::membership::Member;
use crate::registry::Claim;
use crate::store::{Page, PageRequest, bad_cursor};
use crate::time::StoreTime;

impl GroupModel {
    /// Members by name.
    pub(super) fn members_page(&self, page: &PageRequest, now: StoreTime) -> Result<Page<Member>> {
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

    /// Claims by key, or of one owner by tenure and key.
    pub(super) fn claims_page(
        &self,
        registry: &RegistryName,
        owner: Option<&MemberId>,
        page: &PageRequest,
        now: StoreTime,
    ) -> Result<Page<Claim>> {
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

fn owner_cursor(text: &str) -> Option<(String, Key)> {
    let (tenure, key) = text.split_once('/')?;
    tenure.parse::<TenureId>().ok()?;
    Some((tenure.to_owned(), Key::new(key).ok()?))
}

fn cut<I, T>(
    items: impl Iterator<Item = I>,
    limit: u32,
    cursor: impl Fn(&I) -> String,
    view: impl Fn(I) -> Option<T>,
) -> Page<T> {
    let mut items = items.take(limit as usize + 1).peekable();
    let mut page = Page::default();
    while let Some(item) = items.next() {
        let last = (items.peek().is_some() && page.items.len() + 1 == limit as usize).then(|| cursor(&item));
        page.items.extend(view(item));
        if last.is_some() {
            page.next = last;
            break;
        }
    }
    page
}
