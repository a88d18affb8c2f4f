//! The limits of a call, and how it is split.

use std::time::Duration;

use super::Request;
use crate::error::Result;

/// The limits of a call, and how it is split when it exceeds one step of a store.
///
/// A row of the call table marked `limited` implements this beside its struct. A `paged` row has the limits of its
/// page; the others have none.
pub trait Limits: Request {
    /// Rejects a call that exceeds a limit, before it is sent.
    ///
    /// # Errors
    /// `Invalid`, with the value and the limit.
    fn check(&self, _max_ttl: Duration) -> Result<()> {
        Ok(())
    }

    /// The number of items.
    fn items(&self) -> usize {
        0
    }

    /// The reply to an empty list, if it needs no step and no tenure is checked.
    fn empty_reply(&self) -> Option<Self::Reply> {
        None
    }

    /// Keeps the first `at` items and returns the same call for the rest; `None` if the call is never split. `at` is
    /// below the number of items.
    fn split_off(&mut self, _at: usize) -> Option<Self> {
        None
    }

    /// Adds the reply of the next part: outcomes in request order, the state before the first part, and the state after
    /// the last.
    fn add(_all: Self::Reply, next: Self::Reply) -> Self::Reply {
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Op;
    use crate::event::EventQuery;
    use crate::lease::{Leases, LeasesOf};
    use crate::membership::Members;
    use crate::registry::Claims;
    use crate::roster::{ListAvailable, ListPending, ListRows, Retime, VerifyRoster};
    use crate::session::{ListOrphans, Sessions};
    use crate::store::{MAX_PAGE, PageRequest};
    use crate::sweep::{Reconcile, ReconcileRequest};
    use crate::target::Targets;

    /// Every call with a limit, except sweep steps, whose limit the sweeper sets.
    #[rustfmt::skip]
    fn listings(limit: u32) -> Vec<Op> {
        let page = PageRequest { after: None, limit };
        let (force, overdue) = (false, Duration::ZERO);
        let part = ReconcileRequest { after: None, limit };
        vec![
            Members { page: page.clone() }.op(),
            Claims { registry: "r".parse().unwrap(), owner: None, page: page.clone() }.op(),
            Leases { holder: None, page: page.clone() }.op(),
            LeasesOf { tenure: "a@1".parse().unwrap(), page: page.clone() }.op(),
            Targets { page: page.clone() }.op(),
            Sessions { state: None, older_than: Duration::ZERO, page: page.clone() }.op(),
            ListOrphans { overdue, limit }.op(),
            EventQuery { limit, ..EventQuery::default() }.op(),
            Reconcile(part.clone()).op(),
            ListAvailable { page: page.clone() }.op(),
            ListRows { page }.op(),
            ListPending { limit, force }.op(),
            Retime { limit }.op(),
            VerifyRoster(part).op(),
        ]
    }

    #[test]
    fn every_listing_checks_its_limit() {
        for (limit, is_fine) in [(0, false), (1, true), (MAX_PAGE, true), (MAX_PAGE + 1, false)] {
            for op in listings(limit) {
                let checked = op.check(Duration::from_secs(120));
                assert_eq!(checked.is_ok(), is_fine, "{limit} {op:?}: {checked:?}");
            }
        }
    }
}
