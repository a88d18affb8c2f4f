//! Leases as returned by the reading script.

use std::time::Duration;

use tenure_core::error::Result;
use tenure_core::id::{LeaseName, TenureId};
use tenure_core::lease::{Holders, Lease, LeaseHolder, Place, Token};
use tenure_core::time::StoreTime;

use crate::reply::{Malformed, Read, Reader, parse};
use crate::view::{Liveness, PackedTenure, foreign};

/// A lease with all its grants.
pub(super) struct LeaseRow {
    lease: String,
    places: u64,
    /// The reservations that are not past their time.
    reserved: Vec<ReservedRow>,
    waiters: Vec<WaiterRow>,
    /// The number of waiters beyond those.
    more_waiters: u64,
    grants: Vec<GrantRow>,
}

/// A reserved place.
struct ReservedRow {
    place: u64,
    /// The current tenure of the member that it was handed off to; empty for the turn of a waiter.
    tenure: String,
    current: Vec<u8>,
}

/// A place in the queue.
struct WaiterRow {
    until: StoreTime,
    tenure: String,
    current: Vec<u8>,
}

/// One grant of a lease.
struct GrantRow {
    tenure: String,
    /// `tenure token` or `place/places/generation token`, then `request revision limit` or nothing.
    grant: String,
    current: Vec<u8>,
    ended: String,
}

/// A grant as stored.
struct Grant {
    place: Place,
    places: Holders,
    token: Token,
    generation: Token,
    /// Set when an operator has released it: when the place is free at the latest, if that is known.
    revoked: Option<Option<StoreTime>>,
}

impl LeaseRow {
    pub(super) fn read_all(reader: &mut Reader) -> Read<Vec<Self>> {
        let mut rows = reader.array()?;
        let mut found = Vec::with_capacity(rows.left());
        while rows.left() > 0 {
            let mut row = rows.array()?;
            let (lease, places) = (row.text()?, row.number()?);
            let (mut reservations, mut reserved) = (row.array()?, Vec::new());
            while reservations.left() > 0 {
                reserved.push(ReservedRow::read(&mut reservations.array()?)?);
            }
            let (mut places_in_queue, mut waiters) = (row.array()?, Vec::new());
            while places_in_queue.left() > 0 {
                waiters.push(WaiterRow::read(&mut places_in_queue.array()?)?);
            }
            let (more_waiters, mut grants, mut read) = (row.number()?, row.array()?, Vec::new());
            while grants.left() > 0 {
                read.push(GrantRow::read(&mut grants.array()?)?);
            }
            found.push(Self {
                lease,
                places,
                reserved,
                waiters,
                more_waiters,
                grants: read,
            });
        }
        Ok(found)
    }

    pub(super) fn name(&self) -> &str {
        &self.lease
    }

    /// The lease; `of` chooses the holder of its single fields.
    pub(super) fn lease(&self, liveness: &Liveness, of: Option<&TenureId>) -> Result<Option<Lease>> {
        let lease = LeaseName::new(&self.lease).map_err(foreign)?;
        let mut grants = Vec::with_capacity(self.grants.len());
        for grant in &self.grants {
            grants.push(grant.holder(liveness)?);
        }
        grants.sort_by_key(|(holder, _)| holder.place);
        let held = grants.iter().filter(|(holder, _)| !holder.expires_in.is_zero());
        let mut taken: Vec<(Place, Holders)> = held.map(|(holder, places)| (holder.place, *places)).collect();
        for reserved in &self.reserved {
            if reserved.is_running(liveness)? {
                let place = u16::try_from(reserved.place).map_err(foreign)?;
                taken.push((Place::new(place).map_err(foreign)?, read_holders(self.places)?));
            }
        }
        taken.sort();
        taken.dedup_by_key(|(place, _)| *place);
        let newest = grants.iter().max_by_key(|(holder, _)| holder.token);
        // The number of places is fixed while one is taken.
        let fixed = taken.first().map(|(_, places)| *places);
        let places = fixed.or(newest.map(|(_, places)| *places)).unwrap_or_default();
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let free = u64::from(places.get()).saturating_sub(taken.len() as u64);
        let mut waiting = self.more_waiters;
        for waiter in &self.waiters {
            waiting += u64::from(waiter.is_living(liveness)?);
        }
        let counts = (places, count(free), count(waiting));
        let holders = grants.into_iter().map(|(holder, _)| holder).collect();
        Ok(Lease::of_holders(lease, holders, counts, of))
    }
}

impl ReservedRow {
    fn read(row: &mut Reader) -> Read<Self> {
        Ok(Self {
            place: row.number()?,
            tenure: row.text()?,
            current: row.maybe_bytes()?.unwrap_or_default(),
        })
    }

    /// A reservation ends with the tenure of its member.
    fn is_running(&self, liveness: &Liveness) -> Result<bool> {
        if self.tenure.is_empty() || self.current.is_empty() {
            return Ok(self.tenure.is_empty());
        }
        let tenure = self.tenure.parse().map_err(foreign)?;
        Ok(liveness.is_alive(&tenure, Some(&PackedTenure::read(&self.current)?)))
    }
}

impl WaiterRow {
    fn read(row: &mut Reader) -> Read<Self> {
        Ok(Self {
            until: StoreTime::from_micros(row.number()?),
            tenure: row.text()?,
            current: row.maybe_bytes()?.unwrap_or_default(),
        })
    }

    fn is_living(&self, liveness: &Liveness) -> Result<bool> {
        if self.current.is_empty() || self.until <= liveness.now() {
            return Ok(false);
        }
        let tenure = self.tenure.parse().map_err(foreign)?;
        Ok(liveness.is_alive(&tenure, Some(&PackedTenure::read(&self.current)?)))
    }
}

impl GrantRow {
    fn read(row: &mut Reader) -> Read<Self> {
        Ok(Self {
            tenure: row.text()?,
            grant: row.text()?,
            current: row.maybe_bytes()?.unwrap_or_default(),
            ended: row.text()?,
        })
    }

    /// The holder, and the number of places of the lease at its grant.
    fn holder(&self, liveness: &Liveness) -> Result<(LeaseHolder, Holders)> {
        let grant = Grant::parse(&self.grant).map_err(foreign)?;
        let tenure: TenureId = self.tenure.parse().map_err(foreign)?;
        let current = match self.current.is_empty() {
            true => None,
            false => Some(PackedTenure::read(&self.current)?),
        };
        let expires_in = liveness.free_in(&tenure, current.as_ref(), &self.ended);
        let limit = grant.revoked.flatten();
        let holder = LeaseHolder {
            holder: tenure.member().clone(),
            token: grant.token,
            place: grant.place,
            generation: grant.generation,
            alive: liveness.is_alive(&tenure, current.as_ref()),
            revoked: grant.revoked.is_some(),
            expires_in: limit.map_or(expires_in, |limit| expires_in.min(limit.since(liveness.now()))),
            tenure,
        };
        Ok((holder, grant.places))
    }
}

impl Grant {
    fn parse(text: &str) -> Read<Self> {
        let wrong = || Malformed(format!("the grant {:?}", text.chars().take(80).collect::<String>()));
        let words: Vec<&str> = text.split(' ').collect();
        let (first, token, revoked) = match words[..] {
            [first, token] => (first, token, None),
            [first, token, _, "0", _] => (first, token, None),
            [first, token, _, _, limit] => (first, token, Some(parse::<u64>("a time", limit)?)),
            _ => return Err(wrong()),
        };
        // An exclusive lease names its holder in place of a place.
        let token = read_token(token)?;
        let (place, places, generation) = match first.splitn(3, '/').collect::<Vec<_>>()[..] {
            [_] => (Place::FIRST, Holders::ONE, token),
            [place, places, generation] => {
                let places = Holders::new(parse("a number of places", places)?).map_err(|_| wrong())?;
                (read_place(place)?, places, read_token(generation)?)
            }
            _ => return Err(wrong()),
        };
        Ok(Self {
            place,
            places,
            token,
            generation,
            revoked: revoked.map(|limit| (limit > 0).then(|| StoreTime::from_micros(limit))),
        })
    }
}

fn read_holders(places: u64) -> Result<Holders> {
    let places = u16::try_from(places).map_err(foreign)?;
    Holders::new(places).map_err(foreign)
}

pub(super) fn read_token(text: &str) -> Read<Token> {
    let number = parse("a token", text)?;
    Token::new(number).map_err(|_| Malformed(format!("the token {number}")))
}

pub(super) fn read_place(text: &str) -> Read<Place> {
    let number = parse("a place", text)?;
    Place::new(number).map_err(|_| Malformed(format!("the place {number}")))
}

/// A duration in µs as text.
pub(super) fn read_wait(text: &str) -> Read<Duration> {
    Ok(Duration::from_micros(parse("a time", text)?))
}
