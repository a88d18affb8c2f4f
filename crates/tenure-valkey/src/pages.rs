//! Pages through hashes and sets of any size. A page never exceeds its limit, and a name that is present throughout is
//! never lost.
//!
//! A server answers `HSCAN` in two ways. A small hash (a "listpack") is returned whole with cursor 0, whatever `COUNT`
//! says. A large hash is returned by buckets, with somewhat more or fewer names than asked for. So a page cursor has
//! two forms:
//!
//! * `k/<name>`: the hash was small. Each page reads it whole again and takes the names after `<name>` in sorted order.
//!   A name that is present throughout comes after the cut of every page before its own, so it is in exactly one page.
//! * `h/<resumed>/<cursor>/<names>`: the hash is large. The server guarantees that a full run of the cursor returns
//!   every name that is present throughout. A step that returns more names than the page takes carries the rest as
//!   `<names>`, and the next page starts with them. A carried name that was removed in the meantime was not present
//!   throughout.
//!
//! A hash that grew large under a `k` cursor is read by `HSCAN` cursor from the beginning. So is one whose store
//! resumed after a gap (`<resumed>` differs), because a restarted server numbers its buckets differently. Names may
//! then be listed twice, but none is lost. The one exception is an unnoticed restart, shorter than the group's gap; a
//! listing that must be exact reads again.
//!
//! Page cursors pass through clients and are not trusted: one that does not parse is refused, and a forged one can at
//! worst list names twice or from the middle.

use tenure_core::error::Result;
use tenure_core::id::{Group, MemberId, TenureId, check_name};
use tenure_core::store::{PageRequest, bad_cursor};

use crate::reply::Malformed;
use crate::store::ValkeyStore;

/// The most names a page cursor may carry; bounds the cost of a forged one.
const CARRIED: usize = 10_000;

/// Held items, each with its tenure as text, and the next page cursor.
pub(crate) type Holdings = (Vec<(String, String)>, Option<String>);

/// The position of the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PageCursor {
    /// After this name, in sorted order.
    Sorted(String),
    /// At this scan cursor, after these carried names.
    Scan {
        resumed: u64,
        cursor: u64,
        carried: Vec<String>,
    },
}

/// The result of one scan step.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ScanStep {
    resumed: u64,
    cursor: u64,
    names: Vec<String>,
}

impl PageCursor {
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
        sound.then_some(Self::Scan {
            resumed,
            cursor,
            carried,
        })
    }

    fn show(&self) -> String {
        match self {
            Self::Sorted(after) => format!("k/{after}"),
            Self::Scan {
                resumed,
                cursor,
                carried,
            } => format!("h/{resumed}/{cursor}/{}", carried.join(",")),
        }
    }

    /// The scan cursor for the next page, or `None` if the carried names fill it.
    fn scan_from(&self, limit: usize) -> Option<u64> {
        match self {
            Self::Sorted(_) => Some(0),
            Self::Scan { cursor, carried, .. } => (carried.len() < limit && *cursor != 0).then_some(*cursor),
        }
    }

    /// A page from the carried names only, without a scan.
    fn carried_page(self, limit: usize) -> (Vec<String>, Option<Self>) {
        match self {
            Self::Sorted(_) => (Vec::new(), None),
            Self::Scan {
                resumed,
                cursor,
                carried,
            } => cut(carried, limit, |rest| {
                (!rest.is_empty() || cursor != 0).then_some(Self::Scan {
                    resumed,
                    cursor,
                    carried: rest,
                })
            }),
        }
    }

    /// A page from a scan step. `None` when the page cursor is no longer valid and the listing must restart.
    fn page(self, scanned: ScanStep, limit: usize) -> Option<(Vec<String>, Option<Self>)> {
        let ScanStep {
            resumed,
            cursor,
            mut names,
        } = scanned;
        let on = |rest: Vec<String>| {
            (!rest.is_empty() || cursor != 0).then_some(Self::Scan {
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
            Self::Scan { resumed: before, .. } if before != resumed => None,
            Self::Scan { mut carried, .. } => {
                carried.extend(names);
                Some(cut(carried, limit, on))
            }
        }
    }
}

fn cut(
    mut names: Vec<String>,
    limit: usize,
    next: impl FnOnce(Vec<String>) -> Option<PageCursor>,
) -> (Vec<String>, Option<PageCursor>) {
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
            None => PageCursor::beginning(),
            Some(text) => PageCursor::parse(text).ok_or_else(|| bad_cursor(text))?,
        };
        // An invalid name was written by another program, and a page cursor could not carry it.
        let whole = |name: String| check_name("name", &name).is_ok().then_some(name);
        let (names, next) = self
            .step(group, (command, suffix), place, page.limit as usize, &whole)
            .await?;
        Ok((names, next.map(|place| place.show())))
    }

    /// A page of what one member holds: tenure by tenure, each tenure's set in pages. The cursor is `<tenure>/<page
    /// cursor>`. `set` is the kind of set, `held` or `leased`; `pick` selects from it.
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
                _ => PageCursor::beginning(),
            };
            loop {
                let on = |place: &PageCursor| Some(format!("{tenure}/{}", place.show()));
                if left == 0 {
                    return Ok((held, on(&place)));
                }
                let (names, next) = self
                    .step(group, ("SSCAN", &format!("{set}:{tenure}")), place, left, pick)
                    .await?;
                left -= names.len();
                held.extend(names.into_iter().map(|name| (tenure.clone(), name)));
                match next {
                    // The work per page is bounded: the rest of a large set goes to the next page.
                    Some(next) if matches!(next, PageCursor::Scan { .. }) => return Ok((held, on(&next))),
                    Some(next) => place = next,
                    None => break,
                }
            }
        }
        Ok((held, None))
    }

    /// The tenures of a member that may hold something, in text order.
    async fn tenures_of(&self, group: &Group, owner: &MemberId) -> Result<Vec<String>> {
        let invocation = Self::read_call(group).arg(owner.as_str());
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

    /// One page of a hash or a set; scans again from the beginning when the cursor is no longer valid.
    async fn step(
        &self,
        group: &Group,
        (command, suffix): (&str, &str),
        place: PageCursor,
        limit: usize,
        pick: &(dyn Fn(String) -> Option<String> + Sync),
    ) -> Result<(Vec<String>, Option<PageCursor>)> {
        let Some(cursor) = place.scan_from(limit) else {
            return Ok(place.carried_page(limit));
        };
        let scanned = self.scan(group, command, suffix, cursor, limit, pick).await?;
        if let Some(done) = place.page(scanned, limit) {
            return Ok(done);
        }
        let scanned = self.scan(group, command, suffix, 0, limit, pick).await?;
        Ok(PageCursor::beginning().page(scanned, limit).unwrap_or_default())
    }

    async fn scan(
        &self,
        group: &Group,
        command: &str,
        suffix: &str,
        cursor: u64,
        limit: usize,
        pick: &(dyn Fn(String) -> Option<String> + Sync),
    ) -> Result<ScanStep> {
        let invocation = Self::read_call(group)
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
                // Text that is not UTF-8 was written by another program, like any other invalid name.
                let names = reader.array()?.all_bytes()?.into_iter();
                let names = names.filter_map(|name| String::from_utf8(name).ok());
                Ok(ScanStep {
                    resumed,
                    cursor,
                    names: names.filter_map(pick).collect(),
                })
            })
            .await
    }
}

/// Parses `<tenure>/<page cursor>` for a tenure of this owner.
fn owner_place(text: &str, owner: &MemberId) -> Option<(String, PageCursor)> {
    let (tenure, place) = text.split_once('/')?;
    let parsed: TenureId = tenure.parse().ok()?;
    (parsed.member() == owner).then_some(())?;
    Some((tenure.to_owned(), PageCursor::parse(place)?))
}

#[cfg(test)]
mod tests;
