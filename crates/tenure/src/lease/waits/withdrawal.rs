//! Withdrawals of dropped requests, in the background.
//!
//! A withdrawal compares the number of its request. A store that loses its latest writes also forgets that a later request
//! of the same tenure took over the place or the grant. So a later request ends the withdrawal before it is sent. A wait
//! takes over the number; a call without a wait continues the withdrawal if the lease was not granted to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_core::id::{Group, LeaseName, TenureId};
use tenure_core::lease::RequestId;
use tenure_core::store::Call;
use tokio::sync::Mutex;

use super::place::is_passing;
use super::{Inner, LeaseWaits};

/// How often a withdrawal is tried.
const ATTEMPTS: u32 = 5;

/// A lease that a tenure has asked for.
pub(super) type RequestKey = (Group, LeaseName, TenureId);

/// A withdrawal.
pub(super) struct Withdrawal {
    inner: Arc<Inner>,
    key: RequestKey,
    /// The request to withdraw; none once a later one has its number. Locked during a call to the store.
    request: Mutex<Option<RequestId>>,
    /// A call without an answer may take effect after the first withdrawal.
    again: bool,
}

impl Withdrawal {
    pub(super) fn start(inner: &Arc<Inner>, key: RequestKey, request: RequestId, again: bool) {
        let withdrawal = Arc::new(Self {
            inner: Arc::clone(inner),
            key: key.clone(),
            request: Mutex::new(Some(request)),
            again,
        });
        inner.waiting().withdrawals.insert(key, Arc::clone(&withdrawal));
        inner.runtime.spawn(withdrawal.run());
    }

    async fn run(self: Arc<Self>) {
        self.withdraw().await;
        if self.again {
            self.inner.clock.sleep(self.inner.patience).await;
            self.withdraw().await;
        }
        let mut waiting = self.inner.waiting();
        if waiting
            .withdrawals
            .get(&self.key)
            .is_some_and(|newest| Arc::ptr_eq(newest, &self))
        {
            waiting.withdrawals.remove(&self.key);
        }
    }

    async fn withdraw(&self) {
        let (inner, (group, lease, tenure)) = (&self.inner, &self.key);
        for attempt in 1..=ATTEMPTS {
            let request = self.request.lock().await;
            let Some(number) = *request else { return };
            let withdrawing = inner.store.withdraw(group, tenure, lease, number, Call::default());
            let error = match inner.step(withdrawing).await {
                Ok(withdrawn) => {
                    tracing::debug!(%group, %lease, %tenure, ?withdrawn, "a waiting request was withdrawn");
                    return;
                }
                Err(error) => error,
            };
            drop(request);
            if !is_passing(&error) || attempt == ATTEMPTS {
                let error = error.chain();
                tracing::warn!(
                    %group, %lease, %tenure, error,
                    "a waiting request was not withdrawn; what it holds ends with its tenure"
                );
                return;
            }
            inner.clock.sleep(inner.pause() * attempt).await;
        }
    }
}

impl Inner {
    /// Ends the withdrawal of an earlier request, after its call to the store if one is under way. Returns the number of
    /// the request.
    pub(super) async fn take_over(&self, key: &RequestKey) -> Option<RequestId> {
        let withdrawal = self.waiting().withdrawals.get(key).cloned()?;
        withdrawal.request.lock().await.take()
    }
}

impl LeaseWaits {
    /// Ends the withdrawals of earlier requests of this tenure for these leases. Dropping the result continues those of
    /// leases that were not granted.
    pub(in crate::lease) async fn take_over(
        &self,
        group: &Group,
        tenure: &TenureId,
        leases: &[LeaseName],
    ) -> TakenOver {
        let mut taken = TakenOver {
            inner: Arc::clone(&self.inner),
            requests: Vec::new(),
        };
        if self.inner.waiting().withdrawals.is_empty() {
            return taken;
        }
        for lease in leases {
            let key = (group.clone(), lease.clone(), tenure.clone());
            if let Some(request) = self.inner.take_over(&key).await {
                taken.requests.push((key, request));
            }
        }
        taken
    }
}

/// Earlier requests whose withdrawal has ended.
pub(in crate::lease) struct TakenOver {
    inner: Arc<Inner>,
    requests: Vec<(RequestKey, RequestId)>,
}

impl TakenOver {
    /// The store has granted these leases to a later call.
    pub(in crate::lease) fn granted<'a>(&mut self, leases: impl Iterator<Item = &'a LeaseName>) {
        if !self.requests.is_empty() {
            let granted: BTreeSet<&LeaseName> = leases.collect();
            self.requests.retain(|((_, lease, _), _)| !granted.contains(lease));
        }
    }
}

impl Drop for TakenOver {
    fn drop(&mut self) {
        for (key, request) in self.requests.drain(..) {
            Withdrawal::start(&self.inner, key, request, true);
        }
    }
}
