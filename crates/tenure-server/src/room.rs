//! A concurrency limit that is divided fairly among callers and their groups.
//!
//! A caller may hold up to three times what is still free (dynamic thresholds; Choudhury and Hahne, 1998). So a flood of one
//! caller leaves capacity for other callers, and a flood in one group leaves capacity for the caller's other groups. There is
//! no queue: a request that exceeds its share is refused.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::app::App;
use crate::auth::Caller;
use crate::limits::network;

/// The number of counters for callers, and for groups of callers. Callers whose hashes collide count together.
pub(crate) const COUNTERS: usize = 1_024;
/// The threshold, as a multiple of the free capacity.
const FACTOR: usize = 3;

/// The counters of a request: of its caller, and of the caller's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    caller: usize,
    group: usize,
}

impl Share {
    /// A caller is a token, a provider, or an address. The group (or roster) is taken from the raw path. `seed` is random per
    /// process, so that no caller can choose a name that collides with another's counter.
    pub(crate) fn of(seed: u64, caller: &Caller, from: Option<SocketAddr>, path: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        match caller {
            Caller::Known(grant) => (1, grant.name()).hash(&mut hasher),
            Caller::Provider(caller) => (2, caller.provider.as_str()).hash(&mut hasher),
            Caller::Anyone | Caller::Stranger => (3, from.map(|from| network(from.ip()))).hash(&mut hasher),
        }
        let caller = counter(&hasher);
        path.split('/').nth(3).unwrap_or("").hash(&mut hasher);
        let group = counter(&hasher);
        Self { caller, group }
    }

    /// The counter of the caller, below [`COUNTERS`].
    pub(crate) fn caller(self) -> usize {
        self.caller
    }

    /// Whether both count as the same caller.
    pub(crate) fn is_of_caller(self, other: Self) -> bool {
        self.caller == other.caller
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below the number of counters")]
fn counter(hasher: &DefaultHasher) -> usize {
    (hasher.finish() % COUNTERS as u64) as usize
}

impl FromRequestParts<Arc<App>> for Share {
    type Rejection = Infallible;

    /// As the middleware computed it.
    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Infallible> {
        let unknown = || Self::of(app.seed, &Caller::Anyone, None, parts.uri.path());
        Ok(parts.extensions.get().copied().unwrap_or_else(unknown))
    }
}

/// A capacity with fair shares.
pub(crate) struct Room {
    /// The limit of one group of one caller.
    limit: usize,
    /// The limit of all together.
    size: usize,
    held: AtomicUsize,
    callers: Box<[AtomicUsize]>,
    groups: Box<[AtomicUsize]>,
}

impl Room {
    /// For `limit` in one group of one caller and 13/9 of it in total, so that a group that is alone gets its full limit.
    pub(crate) fn new(limit: usize) -> Self {
        let counters = || (0..COUNTERS).map(|_| AtomicUsize::new(0)).collect();
        Self {
            limit,
            size: limit.saturating_mul(13).div_ceil(9),
            held: AtomicUsize::new(0),
            callers: counters(),
            groups: counters(),
        }
    }

    /// Takes `much`, or nothing. Return it with [`Room::leave`].
    pub(crate) fn enter(&self, share: Share, much: usize) -> bool {
        let of_group = self.groups[share.group].fetch_add(much, Ordering::Relaxed);
        let of_caller = self.callers[share.caller].fetch_add(much, Ordering::Relaxed);
        let held = self.held.fetch_add(much, Ordering::Relaxed);
        if self.fits(of_group, of_caller, held, much) {
            return true;
        }
        self.leave(share, much);
        false
    }

    /// Whether `much` more fits. The last unit is compared with the thresholds, so all of it fits or none.
    fn fits(&self, of_group: usize, of_caller: usize, held: usize, much: usize) -> bool {
        let before_last = much.saturating_sub(1);
        let free = self.size.saturating_sub(held + before_last);
        let free_to_caller = free.saturating_mul(FACTOR).saturating_sub(of_caller + before_last);
        of_group + much <= self.limit && of_group + before_last < free_to_caller.saturating_mul(FACTOR)
    }

    /// Returns what [`Room::enter`] took.
    pub(crate) fn leave(&self, share: Share, much: usize) {
        self.held.fetch_sub(much, Ordering::Relaxed);
        self.callers[share.caller].fetch_sub(much, Ordering::Relaxed);
        self.groups[share.group].fetch_sub(much, Ordering::Relaxed);
    }

    /// The capacity in use.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

/// One unit of a room, returned when dropped.
pub(crate) struct Permit {
    app: Arc<App>,
    room: fn(&App) -> &Room,
    share: Share,
}

impl Permit {
    pub(crate) fn enter(app: &Arc<App>, room: fn(&App) -> &Room, share: Share) -> Option<Self> {
        let entered = room(app).enter(share, 1);
        entered.then(|| Self {
            app: Arc::clone(app),
            room,
            share,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        (self.room)(&self.app).leave(self.share, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn share(caller: usize, group: usize) -> Share {
        Share { caller, group }
    }

    /// Takes units until one is refused; returns how many it got.
    fn flood(room: &Room, share: Share) -> usize {
        (0..).take_while(|_| room.enter(share, 1)).count()
    }

    #[test]
    fn single_group_gets_exactly_the_limit() {
        for limit in [1, 2, 3, 7, 100, 1_024] {
            let room = Room::new(limit);
            assert_eq!(flood(&room, share(1, 1)), limit);
            assert_eq!(room.held(), limit);
        }
    }

    #[test]
    fn flood_of_one_caller_spares_another() {
        let room = Room::new(1_024);
        let mut taken = 0;
        for group in 0..200 {
            taken += flood(&room, share(1, group));
        }
        let others = flood(&room, share(2, 500));
        assert!(others > 200, "{others} beside {taken}");
        assert!(flood(&room, share(3, 501)) > 50);
        assert!(room.held() <= 1_024 * 13 / 9 + 1, "{}", room.held());
    }

    #[test]
    fn flood_in_one_group_spares_other_groups_of_the_caller() {
        let room = Room::new(1_024);
        assert_eq!(flood(&room, share(1, 1)), 1_024);
        let others = flood(&room, share(1, 2));
        assert!(others > 50, "{others}");
        assert!(flood(&room, share(2, 3)) > 200, "and for another caller");
    }

    #[test]
    fn returned_capacity_is_free_again() {
        let room = Room::new(10);
        assert!(room.enter(share(1, 1), 10) && !room.enter(share(1, 1), 1));
        room.leave(share(1, 1), 10);
        assert!(!room.enter(share(1, 1), 11), "more than the limit");
        assert_eq!(room.held(), 0, "a refusal holds nothing");
        assert!(room.enter(share(1, 1), 10));
    }

    #[test]
    fn shares_depend_on_token_address_and_group() {
        let of = |from: &str, path: &str| Share::of(7, &Caller::Anyone, Some(from.parse().unwrap()), path);
        let (one, other) = (
            of("10.0.0.1:1", "/v1/groups/a/beats"),
            of("10.0.0.2:1", "/v1/groups/a/beats"),
        );
        assert_eq!(one, of("10.0.0.1:2", "/v1/groups/a/tenures/x@1/beat"));
        assert_ne!(one, other);
        let elsewhere = of("10.0.0.1:1", "/v1/groups/b/beats");
        assert!(one.is_of_caller(elsewhere) && one != elsewhere);
        assert!(!one.is_of_caller(other));
    }
}
