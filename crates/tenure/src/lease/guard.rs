//! A lease that this process holds.

use std::fmt;
use std::sync::Arc;

use tenure_core::clock::Mono;
use tenure_core::error::Result;
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{ReleaseOutcome, Token};
use tenure_core::verdict::Verdict;
use tokio_util::sync::CancellationToken;

use super::book::{GivingUp, Grant};
use super::give_up;
use crate::membership::Shared;

/// A lease that this process holds, for as long as it can prove it. Work under it only while [`LeaseGuard::verdict`] is
/// `Held`, and pass [`LeaseGuard::token`] to whatever can refuse an older one.
///
/// Once lost, a guard is lost for ever, whatever becomes of the membership; acquire again. Giving it up
/// ([`LeaseGuard::release`], [`LeaseGuard::hand_off`]) is the contract; dropping it releases in the background, best
/// effort. Either way stop the work first: the lease may be another's at once.
pub struct LeaseGuard {
    shared: Arc<Shared>,
    grant: Arc<Grant>,
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseGuard")
            .field("lease", &self.grant.lease)
            .field("token", &self.grant.token)
            .field("tenure", &self.grant.tenure)
            .field("verdict", &self.verdict())
            .finish()
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.shared.leases.give_up(&self.grant, GivingUp::default(), false);
    }
}

impl LeaseGuard {
    pub(super) fn new(shared: &Arc<Shared>, grant: Arc<Grant>) -> Self {
        Self {
            shared: Arc::clone(shared),
            grant,
        }
    }

    /// The lease.
    #[must_use]
    pub fn lease(&self) -> &LeaseName {
        &self.grant.lease
    }

    /// The fencing token of this grant: higher than that of every holder before, lower than that of every one after.
    #[must_use]
    pub fn token(&self) -> Token {
        self.grant.token
    }

    /// The tenure that it is held under.
    #[must_use]
    pub fn tenure(&self) -> &TenureId {
        &self.grant.tenure
    }

    /// What this process may believe about its lease now. No I/O. `Held`: nobody else can have it. `Uncertain`: pause; it
    /// may come back. `Lost`: over, for ever.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.grant.lost.is_cancelled() {
            return Verdict::Lost;
        }
        let verdict = self.shared.verdict_of(&self.grant.tenure);
        match verdict {
            Verdict::Lost => {
                // Whoever has seen it lost must not see it held again.
                self.shared.leases.lose(&self.grant, "unconfirmed");
                Verdict::Lost
            }
            Verdict::Held if self.shared.leases.is_doubted() => Verdict::Uncertain,
            verdict => verdict,
        }
    }

    /// Until when the verdict stays `Held` if nothing more is heard, on the clock of the client; its origin when the
    /// verdict is not `Held` now.
    #[must_use]
    pub fn valid_until(&self) -> Mono {
        match self.verdict() {
            Verdict::Held => self.shared.valid_until(),
            Verdict::Uncertain | Verdict::Lost => Mono::default(),
        }
    }

    /// Cancelled once the lease is lost: by an answer of the store, by the end of the tenure, by a whole ttl without a
    /// confirmation, or by being given up.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.grant.lost.clone()
    }

    /// Waits until the verdict is `Held` or `Lost`, and answers which.
    pub async fn decided(&self) -> Verdict {
        let (mut status, mut changes) = (self.shared.watch(), self.shared.leases.changes());
        loop {
            let verdict = self.verdict();
            if verdict != Verdict::Uncertain {
                return verdict;
            }
            tokio::select! {
                biased;
                () = self.grant.lost.cancelled() => {}
                // Either sender lives as long as `shared`.
                _ = status.changed() => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Gives the lease up: from this call on it is lost here, then the store is told.
    ///
    /// # Errors
    /// `Ended` when the tenure is over (its leases then become free with it). `Unavailable` when the store does not
    /// answer: it is tried again in the background for as long as the tenure lasts.
    pub async fn release(self) -> Result<ReleaseOutcome> {
        self.give_up(None).await
    }

    /// Gives the lease up as [`LeaseGuard::release`] does, and keeps it for a member for a few seconds
    /// ([`RESERVATION`](tenure_core::lease::RESERVATION)), when that is another that is alive.
    ///
    /// # Errors
    /// As [`LeaseGuard::release`].
    pub async fn hand_off(self, to: &MemberId) -> Result<ReleaseOutcome> {
        self.give_up(Some(to)).await
    }

    async fn give_up(self, to: Option<&MemberId>) -> Result<ReleaseOutcome> {
        let shared = Arc::clone(&self.shared);
        let mut outcomes = give_up::give_up(&shared, vec![self], to).await?;
        outcomes.pop().ok_or_else(super::short_answer)
    }

    pub(super) fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }
}
