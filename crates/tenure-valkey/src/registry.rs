//! Registries: which member owns which key.

use std::collections::HashSet;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, Key, MemberId, RegistryName, TenureId};
use tenure_core::membership::{EndReason, Revision};
use tenure_core::registry::{Claim, ClaimKeys, ClaimMode, ClaimOf, ClaimOutcome, Claimed, Claims, ReleaseClaim};
use tenure_core::store::{Call, Page, PageRequest};

use crate::reply::{Malformed, Read, Reader, parse};
use crate::store::ValkeyStore;
use crate::view::{Liveness, PackedTenure, foreign};

#[async_trait]
impl Serve<ClaimKeys> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: ClaimKeys, call: Call) -> Result<Claimed> {
        let ClaimKeys { tenure, keys, .. } = &ask;
        let invocation = self
            .timely_registry_call(group, &ask.registry, call)
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .arg(ask.registry.as_str())
            .arg(if ask.mode == ClaimMode::IfAbsent { "1" } else { "0" })
            .args(keys.iter().map(Key::as_str));
        let answer = self
            .connection
            .call(&self.scripts.claim, invocation, |reader, _| {
                match read_refusal(reader)? {
                    Some(reason) => Ok(Err(reason)),
                    None => Ok(Ok(Claimed {
                        outcomes: read_outcomes(reader, keys.len(), read_outcome)?,
                        revision: Revision(reader.number()?),
                        before: Revision(reader.number()?),
                    })),
                }
            })
            .await?;
        answer.map_err(|reason| Error::ended(tenure, reason))
    }
}

#[async_trait]
impl Serve<ReleaseClaim> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: ReleaseClaim, call: Call) -> Result<()> {
        let ReleaseClaim { registry, key, tenure } = &ask;
        let invocation = self
            .timely_registry_call(group, registry, call)
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .arg(registry.as_str())
            .arg(key.as_str());
        let (refused, other) = self
            .connection
            .call(&self.scripts.release_claim, invocation, |reader, _| {
                Ok((read_refusal(reader)?, reader.text()?))
            })
            .await?;
        match refused {
            Some(reason) => Err(Error::ended(tenure, reason)),
            None if other.is_empty() => Ok(()),
            None => {
                let message = format!("{key} in the registry {registry} is owned by {other}, not by {tenure}");
                let error = Error::new(ErrorKind::NotOwner, message);
                Err(match other.parse() {
                    Ok(owner) => error.with_holder(owner),
                    Err(_) => error,
                })
            }
        }
    }
}

#[async_trait]
impl Serve<ClaimOf> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: ClaimOf, _: Call) -> Result<Option<Claim>> {
        let keys = [ask.key.to_string()];
        Ok(self.claims_by_key(group, &ask.registry, &keys).await?.pop())
    }
}

#[async_trait]
impl Serve<Claims> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Claims, _: Call) -> Result<Page<Claim>> {
        let Claims { registry, owner, page } = &ask;
        if let Some(owner) = owner {
            return self.claims_of(group, registry, owner, page).await;
        }
        let claims = format!("claims:{registry}");
        let (names, next) = self.page_of_names(group, ("HSCAN", &claims), page).await?;
        Ok(Page {
            items: self.claims_by_key(group, registry, &names).await?,
            next,
        })
    }
}

impl ValkeyStore {
    /// A page of one owner's claims.
    async fn claims_of(
        &self,
        group: &Group,
        registry: &RegistryName,
        owner: &MemberId,
        page: &PageRequest,
    ) -> Result<Page<Claim>> {
        let prefix = format!("c/{registry}/");
        let key = |holding: String| holding.strip_prefix(&prefix).map(str::to_owned);
        let (held, next) = self.page_of_holdings(group, owner, "held", &key, page).await?;
        let keys: Vec<String> = held.iter().map(|(_, key)| key.clone()).collect();
        // A claim that moved to another owner in the meantime no longer belongs to this tenure.
        let held: HashSet<(String, String)> = held.into_iter().collect();
        let mut items = self.claims_by_key(group, registry, &keys).await?;
        items.retain(|claim| held.contains(&(claim.tenure.to_string(), claim.key.to_string())));
        Ok(Page { items, next })
    }

    /// The claims of these keys that exist, in the order asked.
    pub(crate) async fn claims_by_key(
        &self,
        group: &Group,
        registry: &RegistryName,
        keys: &[String],
    ) -> Result<Vec<Claim>> {
        let invocation = Self::read_call(group).arg(registry.as_str()).args(keys);
        let (liveness, rows) = self
            .connection
            .call(&self.scripts.claims_by_key, invocation, |reader, now| {
                Ok((Liveness::read(reader, now)?, read_claims(reader)?))
            })
            .await?;
        rows.into_iter().map(|row| row.claim(&liveness)).collect()
    }
}

/// A claim as returned by the reading scripts.
struct ClaimRow {
    key: String,
    tenure: String,
    current: Option<Vec<u8>>,
}

impl ClaimRow {
    fn claim(self, liveness: &Liveness) -> Result<Claim> {
        let tenure: TenureId = self.tenure.parse().map_err(foreign)?;
        let current = self.current.as_deref().map(PackedTenure::read).transpose()?;
        Ok(Claim {
            key: Key::new(&self.key).map_err(foreign)?,
            owner: tenure.member().clone(),
            alive: liveness.is_alive(&tenure, current.as_ref()),
            tenure,
        })
    }
}

fn read_claims(reader: &mut Reader) -> Read<Vec<ClaimRow>> {
    let mut rows = reader.array()?;
    let mut found = Vec::with_capacity(rows.left());
    while rows.left() > 0 {
        let mut row = rows.array()?;
        let (key, tenure) = (row.text()?, row.text()?);
        // A nil last element is cut off: no member has this name.
        let current = if row.left() > 0 { row.maybe_bytes()? } else { None };
        found.push(ClaimRow { key, tenure, current });
    }
    Ok(found)
}

/// The reason why a tenure may not act; `None` for the empty string.
pub(crate) fn read_refusal(reader: &mut Reader) -> Read<Option<EndReason>> {
    parse_refusal(&reader.text()?)
}

/// Parses why a tenure may not act: empty when it may.
pub(crate) fn parse_refusal(name: &str) -> Read<Option<EndReason>> {
    if name.is_empty() {
        return Ok(None);
    }
    EndReason::parse(name).map(Some).ok_or_else(|| {
        Malformed(format!(
            "{:?} in place of a reason",
            name.chars().take(40).collect::<String>()
        ))
    })
}

/// The outcomes of this many requests.
pub(crate) fn read_outcomes<T>(reader: &mut Reader, expected: usize, read: fn(&str) -> Read<T>) -> Read<Vec<T>> {
    let outcomes = reader.array()?.texts()?;
    if outcomes.len() != expected {
        return Err(Malformed(format!("{} outcomes of {expected} requests", outcomes.len())));
    }
    outcomes.iter().map(|text| read(text)).collect()
}

fn read_outcome(text: &str) -> Read<ClaimOutcome> {
    match (text.get(..1), text.get(1..)) {
        (Some("n"), Some("")) => Ok(ClaimOutcome::New),
        (Some("k"), Some("")) => Ok(ClaimOutcome::Kept),
        (Some("m"), Some(tenure)) => Ok(ClaimOutcome::Moved {
            from: parse("a tenure", tenure)?,
        }),
        (Some("h"), Some(tenure)) => Ok(ClaimOutcome::Held {
            by: parse("a tenure", tenure)?,
        }),
        _ => Err(Malformed("not a claim outcome".to_owned())),
    }
}
