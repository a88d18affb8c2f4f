//! The guard of a held lease.

use std::fmt;
use std::sync::Arc;

use tenure_core::clock::Mono;
use tenure_core::error::Result;
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{Place, ReleaseOutcome, Token};
use tenure_core::verdict::Verdict;
use tokio_util::sync::CancellationToken;

use super::give_up;
use super::table::{Grant, PendingRelease};
use crate::membership::Shared;

/// A held lease. Work under it only while [`LeaseGuard::verdict`] is `Held`, and pass [`LeaseGuard::token`] to storage
/// that can reject an older one.
///
/// A lost guard stays lost, even if the membership recovers; acquire again. End it with [`LeaseGuard::release`] or
/// [`LeaseGuard::hand_off`]; dropping it releases in the background, best effort. Stop the work first: another member
/// may acquire the lease immediately. So drop a lost guard as soon as its work has stopped: a tenure that recovers keeps
/// the lease until then.
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
        self.shared
            .leases
            .give_up(&self.grant, PendingRelease::default(), false);
    }
}

impl LeaseGuard {
    pub(super) fn new(shared: &Arc<Shared>, grant: Arc<Grant>) -> Self {
        Self {
            shared: Arc::clone(shared),
            grant,
        }
    }

    /// The name of the lease.
    #[must_use]
    pub fn lease(&self) -> &LeaseName {
        &self.grant.lease
    }

    /// The fencing token of this grant: higher than that of every earlier grant.
    #[must_use]
    pub fn token(&self) -> Token {
        self.grant.token
    }

    /// The place of this grant: 0 for an exclusive lease, 0 to N − 1 for a lease with N holders.
    #[must_use]
    pub fn place(&self) -> Place {
        self.grant.place
    }

    /// The generation of the lease: it rises each time that the lease is granted while no place of it is taken. All holders
    /// of a semaphore have it in common; that of an exclusive grant is its token.
    #[must_use]
    pub fn generation(&self) -> Token {
        self.grant.generation
    }

    /// The name under which storage keeps the mark of this grant (see [`crate::fence`]): the lease, followed by `/` and the
    /// place unless that is 0. Each place has tokens of its own order: with one mark for all places, the newest holder
    /// would shut the others out.
    #[must_use]
    pub fn fence_resource(&self) -> String {
        match self.place().get() {
            0 => self.grant.lease.to_string(),
            place => format!("{}/{place}", self.grant.lease),
        }
    }

    /// The tenure that holds it.
    #[must_use]
    pub fn tenure(&self) -> &TenureId {
        &self.grant.tenure
    }

    /// What this process may assume about its lease now. No I/O. `Held`: no other member can have it. `Uncertain`:
    /// pause; it may become `Held` again. `Lost`: final.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.grant.lost.is_cancelled() {
            return Verdict::Lost;
        }
        let verdict = self.shared.verdict_of(&self.grant.tenure);
        match verdict {
            Verdict::Lost => {
                // A caller that saw `Lost` must not see `Held` later.
                self.shared.leases.lose(&self.grant, "unconfirmed");
                Verdict::Lost
            }
            Verdict::Held if self.shared.leases.is_doubted() || self.is_past_cap() => Verdict::Uncertain,
            verdict => verdict,
        }
    }

    /// Until when the verdict stays `Held` without a further confirmation, on the client's clock. The clock's origin if
    /// the verdict is not `Held` now.
    #[must_use]
    pub fn valid_until(&self) -> Mono {
        match self.verdict() {
            Verdict::Held => {
                let until = self.shared.valid_until();
                self.shared.leases.cap().map_or(until, |cap| cap.min(until))
            }
            Verdict::Uncertain | Verdict::Lost => Mono::default(),
        }
    }

    /// Cancelled once the lease is lost: by an answer of the store, the end of the tenure, a whole ttl without a
    /// confirmation, or a release.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.grant.lost.clone()
    }

    /// Waits until the verdict is `Held` or `Lost` and returns it.
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
                // Both senders live as long as `shared`.
                _ = status.changed() => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Releases the lease: it is lost locally first, then released at the store.
    ///
    /// # Errors
    /// `Ended` when the tenure is over; its leases become free with it. `Unavailable` when the store does not answer:
    /// the release is retried in the background while the tenure lasts.
    pub async fn release(self) -> Result<ReleaseOutcome> {
        self.give_up(None).await
    }

    /// Releases the lease like [`LeaseGuard::release`] and reserves it for another living member for a few seconds
    /// ([`RESERVATION`](tenure_core::lease::RESERVATION)).
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

    fn is_past_cap(&self) -> bool {
        self.shared.leases.cap().is_some_and(|cap| self.shared.now() >= cap)
    }

    pub(super) fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }
}
