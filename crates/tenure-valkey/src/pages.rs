//! Pages through hashes and sets of any size, never above the limit, losing nothing that is present throughout.
//!
//! A server answers `HSCAN` in two ways. A small hash (a "listpack") comes whole, whatever `COUNT` says, with the cursor
//! 0; a big one comes by buckets, a few more or fewer than asked for. So there are two kinds of place:
//!
//! * `k/<name>`: the hash was small. Each page reads it whole again and cuts the names after `<name>` in order. A name
//!   present throughout is above every cut before its own, so it is in the page that its place in the order says.
//! * `h/<resumed>/<cursor>/<names>`: the hash is big. The server promises that a full run of the cursor gives every
//!   name that is present throughout. A step that gives more than the page takes carries the rest as `<names>`; the
//!   next page begins with those, and whoever is gone meanwhile was not present throughout.
//!
//! A hash that grew big under a `k` place is read by cursor from the beginning, and so is one whose store resumed after a
//! gap (`<resumed>` differs: a restarted server counts its buckets anew): names may come twice then, none is lost.
//! A restart that nobody noticed, shorter than the group's gap, is the one hole; a listing that must be exact reads
//! again.
//!
//! Places travel through clients and are believed in nothing: what does not parse is refused, and what parses but was
//! made up can at worst list names twice or from the middle.

use tenure_core::error::Result;
use tenure_core::id::{Group, MemberId, TenureId, check_name};
use tenure_core::store::{PageRequest, bad_cursor};

use crate::reply::Malformed;
use crate::store::ValkeyStore;

/// The most names a place may carry, so that a made-up one cannot cost much.
const CARRIED: usize = 10_000;

/// What is held, each with its tenure as text, and where to read on.
pub(crate) type Holdings = (Vec<(String, String)>, Option<String>);

/// Where to read on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// After this name, in order.
    Sorted(String),
    /// At this cursor, after these names.
    Cursor {
        resumed: u64,
        cursor: u64,
        carried: Vec<String>,
    },
}

/// What one step of a scan gave.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scanned {
    resumed: u64,
    cursor: u64,
    names: Vec<String>,
}

impl Place {
    fn beginning() -> Self {
        Self::Sorted(String::new())
    }

    fn parse(text: &str) -> Option<Self> {
        let name = |name: &str| check_name("name", name).is_ok();
        if let Some(after) = text.strip_prefix("k/") {
            return (after.is_empty() || name(after)).then(|| Self::Sorted(after.to_owned()));
        }
        let mut parts = text.strip_prefix("h/")?.split('/');
        let (resumed, cursor, carried) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
        let carried: Vec<String> = carried
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        let sound = parts.next().is_none() && carried.len() <= CARRIED && carried.iter().all(|carried| name(carried));
        sound.then_some(Self::Cursor {
            resumed,
            cursor,
            carried,
        })
    }

    fn show(&self) -> String {
        match self {
            Self::Sorted(after) => format!("k/{after}"),
            Self::Cursor {
                resumed,
                cursor,
                carried,
            } => format!("h/{resumed}/{cursor}/{}", carried.join(",")),
        }
    }

    /// From which cursor to scan for a page, unless what is carried is enough for it.
    fn scan_from(&self, limit: usize) -> Option<u64> {
        match self {
            Self::Sorted(_) => Some(0),
            Self::Cursor { cursor, carried, .. } => (carried.len() < limit && *cursor != 0).then_some(*cursor),
        }
    }

    /// A page without a scan: what is carried.
    fn carried_page(self, limit: usize) -> (Vec<String>, Option<Self>) {
        match self {
            Self::Sorted(_) => (Vec::new(), None),
            Self::Cursor {
                resumed,
                cursor,
                carried,
            } => cut(carried, limit, |rest| {
                (!rest.is_empty() || cursor != 0).then_some(Self::Cursor {
                    resumed,
                    cursor,
                    carried: rest,
                })
            }),
        }
    }

    /// A page of what a scan gave. `None` when the place means nothing any more: begin again.
    fn page(self, scanned: Scanned, limit: usize) -> Option<(Vec<String>, Option<Self>)> {
        let Scanned {
            resumed,
            cursor,
            mut names,
        } = scanned;
        let on = |rest: Vec<String>| {
            (!rest.is_empty() || cursor != 0).then_some(Self::Cursor {
                resumed,
                cursor,
                carried: rest,
            })
        };
        match self {
            Self::Sorted(_) if cursor != 0 => Some(cut(names, limit, on)),
            Self::Sorted(after) => {
                names.retain(|name| *name > after);
                names.sort_unstable();
                names.dedup();
                let (names, rest) = (
                    names.iter().take(limit).cloned().collect::<Vec<_>>(),
                    names.len() > limit,
                );
                let next = names.last().filter(|_| rest).map(|last| Self::Sorted(last.clone()));
                Some((names, next))
            }
            Self::Cursor { resumed: before, .. } if before != resumed => None,
            Self::Cursor { mut carried, .. } => {
                carried.extend(names);
                Some(cut(carried, limit, on))
            }
        }
    }
}

fn cut(
    mut names: Vec<String>,
    limit: usize,
    next: impl FnOnce(Vec<String>) -> Option<Place>,
) -> (Vec<String>, Option<Place>) {
    let rest = names.split_off(names.len().min(limit));
    let next = next(rest);
    (names, next)
}

impl ValkeyStore {
    /// A page of the names in one of the group's hashes (`HSCAN`) or sets (`SSCAN`).
    pub(crate) async fn page_of_names(
        &self,
        group: &Group,
        (command, suffix): (&str, &str),
        page: &PageRequest,
    ) -> Result<(Vec<String>, Option<String>)> {
        let place = match &page.after {
            None => Place::beginning(),
            Some(text) => Place::parse(text).ok_or_else(|| bad_cursor(text))?,
        };
        // What is no name was put there by somebody else, and a place could not carry it.
        let whole = |name: String| check_name("name", &name).is_ok().then_some(name);
        let (names, next) = self
            .step(group, (command, suffix), place, page.limit as usize, &whole)
            .await?;
        Ok((names, next.map(|place| place.show())))
    }

    /// A page of what one member holds: tenure by tenure, each one's set in pages. The place is `<tenure>/<place>`.
    /// `set` is the kind of set, `held` or `leased`; `pick` takes what is wanted of it.
    pub(crate) async fn page_of_holdings(
        &self,
        group: &Group,
        owner: &MemberId,
        set: &str,
        pick: &(dyn Fn(String) -> Option<String> + Sync),
        page: &PageRequest,
    ) -> Result<Holdings> {
        let from = page
            .after
            .as_deref()
            .map(|text| owner_place(text, owner).ok_or_else(|| bad_cursor(text)))
            .transpose()?;
        let tenures = self.tenures_of(group, owner).await?;
        let (mut left, mut held) = (page.limit as usize, Vec::new());
        for tenure in tenures {
            let mut place = match &from {
                Some((at, _)) if tenure < *at => continue,
                Some((at, place)) if tenure == *at => place.clone(),
                _ => Place::beginning(),
            };
            loop {
                let on = |place: &Place| Some(format!("{tenure}/{}", place.show()));
                if left == 0 {
                    return Ok((held, on(&place)));
                }
                let (names, next) = self
                    .step(group, ("SSCAN", &format!("{set}:{tenure}")), place, left, pick)
                    .await?;
                left -= names.len();
                held.extend(names.into_iter().map(|name| (tenure.clone(), name)));
                match next {
                    // Within the bounds of a page, but not for ever: the rest of a big set is another page.
                    Some(next) if matches!(next, Place::Cursor { .. }) => return Ok((held, on(&next))),
                    Some(next) => place = next,
                    None => break,
                }
            }
        }
        Ok((held, None))
    }

    /// The tenures of a member that may hold something, in the order of their text.
    async fn tenures_of(&self, group: &Group, owner: &MemberId) -> Result<Vec<String>> {
        let invocation = Self::reading(group).arg(owner.as_str());
        let mut tenures = self
            .connection
            .call(&self.scripts.tenures_of, invocation, |reader, _| {
                reader.array()?.texts()
            })
            .await?;
        tenures.sort();
        tenures.dedup();
        Ok(tenures)
    }

    /// One page of a hash or a set; a second scan when the place means nothing any more.
    async fn step(
        &self,
        group: &Group,
        (command, suffix): (&str, &str),
        place: Place,
        limit: usize,
        pick: &(dyn Fn(String) -> Option<String> + Sync),
    ) -> Result<(Vec<String>, Option<Place>)> {
        let Some(cursor) = place.scan_from(limit) else {
            return Ok(place.carried_page(limit));
        };
        let scanned = self.scan(group, command, suffix, cursor, limit, pick).await?;
        if let Some(done) = place.page(scanned, limit) {
            return Ok(done);
        }
        let scanned = self.scan(group, command, suffix, 0, limit, pick).await?;
        Ok(Place::beginning().page(scanned, limit).unwrap_or_default())
    }

    async fn scan(
        &self,
        group: &Group,
        command: &str,
        suffix: &str,
        cursor: u64,
        limit: usize,
        pick: &(dyn Fn(String) -> Option<String> + Sync),
    ) -> Result<Scanned> {
        let invocation = Self::reading(group)
            .arg(command)
            .arg(suffix)
            .number(cursor)
            .number(limit as u64);
        self.connection
            .call(&self.scripts.scan, invocation, |reader, _| {
                let resumed = reader.number()?;
                let cursor = reader.text()?;
                let cursor = cursor
                    .parse()
                    .map_err(|_| Malformed(format!("the cursor {cursor:?}")))?;
                // What is not UTF-8 was put there by another program, like every other unexpected name.
                let names = reader.array()?.all_bytes()?.into_iter();
                let names = names.filter_map(|name| String::from_utf8(name).ok());
                Ok(Scanned {
                    resumed,
                    cursor,
                    names: names.filter_map(pick).collect(),
                })
            })
            .await
    }
}

/// `<tenure>/<place>`, the tenure being one of the owner's.
fn owner_place(text: &str, owner: &MemberId) -> Option<(String, Place)> {
    let (tenure, place) = text.split_once('/')?;
    let parsed: TenureId = tenure.parse().ok()?;
    (parsed.member() == owner).then_some(())?;
    Some((tenure.to_owned(), Place::parse(place)?))
}

#[cfg(test)]
mod tests;
