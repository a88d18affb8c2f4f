//! What a call may ask at most, and how it is cut.

use std::time::Duration;

use super::Request;
use crate::error::Result;

/// The limits of a call, and how it is cut into parts where one step of a store does not take it whole.
///
/// The table of calls names with `limited` those that implement this beside their struct. A `paged` one has the limits of its
/// page, the others have none.
pub trait Limits: Request {
    /// Refuses a call that breaks a limit, before anything is sent.
    ///
    /// # Errors
    /// `Invalid`, with the value and the limit.
    fn check(&self, _max_ttl: Duration) -> Result<()> {
        Ok(())
    }

    /// How many items it lists.
    fn items(&self) -> usize {
        0
    }

    /// The answer to an empty list, where that is no step: no tenure is looked at.
    fn answer_to_nothing(&self) -> Option<Self::Reply> {
        None
    }

    /// Keeps the first `at` items, fewer than it lists, and returns the same call for the rest; `None` when it is never cut.
    fn split_off(&mut self, _at: usize) -> Option<Self> {
        None
    }

    /// Adds the answer to the next part to those before: the outcomes in the order asked, what held before the first part,
    /// and what holds after the last.
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

    /// Every call that takes a limit, but the steps of a sweep, whose limit is that of the sweeper.
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
            Sessions { state: None, page: page.clone() }.op(),
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
    fn the_limit_of_every_listing_is_checked() {
        for (limit, is_fine) in [(0, false), (1, true), (MAX_PAGE, true), (MAX_PAGE + 1, false)] {
            for op in listings(limit) {
                let checked = op.check(Duration::from_secs(120));
                assert_eq!(checked.is_ok(), is_fine, "{limit} {op:?}: {checked:?}");
            }
        }
    }
}
