//! Acquiring leases.

use super::PlaceKey;
use super::places::Places;
use super::queue::Waiter;
use super::serve::SERVED;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::id::{LeaseName, TenureId};
use crate::lease::{Acquire, AcquireOutcome, Acquired, GRANT_RESERVATION, Holders, RequestId, Token};
use crate::membership::Revision;
use crate::memory::GroupModel;
use crate::memory::decide::Decide;
use crate::memory::rows::LeaseRow;
use crate::store::Call;
use crate::time::StoreTime;

impl Decide<Acquire> for GroupModel {
    /// Acquires leases. A tenure found past its end is ended even though the call fails.
    fn step(&mut self, ask: &Acquire, call: Call, now: StoreTime) -> Result<Acquired> {
        self.open(now, call)?;
        let tenure = &ask.tenure;
        let before = self.revision_of(tenure);
        let outcomes: Result<Vec<AcquireOutcome>> = self
            .require_alive(tenure, now)
            .map(|()| self.compare_revisions(ask.seen, before, now))
            .and_then(|()| self.check_wait(ask))
            .and_then(|()| {
                ask.leases
                    .iter()
                    .map(|lease| self.acquire_one(ask, lease, now))
                    .collect()
            });
        // A step before this one may have granted the lease to the waiter that asks for it now. The grant counts as part of
        // this call, so that it does not hide earlier writes that the store lost.
        let before = match outcomes.as_deref() {
            Ok([AcquireOutcome::Kept { token, .. }]) if ask.queue.is_some() && before == Revision(token.get()) => {
                self.leases.queue.before_grant(tenure, before).unwrap_or(before)
            }
            _ => before,
        };
        self.serve_waiting(now);
        self.engage_brake(now);
        Ok(Acquired {
            outcomes: outcomes?,
            expires_in: self.free_in(tenure, self.head().resumed_at, now),
            ttl: self.current(tenure).map(|live| live.ttl),
            revision: self.revision_of(tenure),
            before,
            as_of: now,
        })
    }
}

/// A new grant.
pub(super) struct Grant<'a> {
    pub(super) tenure: &'a TenureId,
    pub(super) key: PlaceKey,
    pub(super) holders: Holders,
    /// The generation of the lease, if a place is taken.
    pub(super) running: Option<Token>,
    /// The number of the request that asked for it.
    pub(super) request: Option<RequestId>,
    /// Whether the request waited.
    pub(super) waited: bool,
}

impl<'a> Grant<'a> {
    /// The grant of a place to a waiter.
    pub(super) fn of(waiter: &'a Waiter, key: PlaceKey, running: Option<Token>) -> Self {
        Self {
            tenure: &waiter.tenure,
            key,
            holders: waiter.holders,
            running,
            request: Some(waiter.request),
            waited: true,
        }
    }
}

impl GroupModel {
    /// The placement of a fleet decides which node works on a target; a queue would contradict it.
    fn check_wait(&self, ask: &Acquire) -> Result<()> {
        let target = ask.leases.iter().find(|lease| self.targets.contains(lease));
        match (target, &ask.queue) {
            (Some(target), Some(_)) => Err(Error::invalid(format!(
                "a wait for {target}, which is a target of a fleet; acquire it without a wait"
            ))),
            _ => Ok(()),
        }
    }

    fn acquire_one(&mut self, ask: &Acquire, lease: &LeaseName, now: StoreTime) -> Result<AcquireOutcome> {
        let tenure = &ask.tenure;
        if let Some(kept) = self.keep(ask, lease) {
            return Ok(kept);
        }
        self.refresh_lease(lease, now);
        if self.leases.queue.has(lease) {
            let mut left = SERVED;
            self.serve_lease(lease, &mut left, now);
            if let Some(kept) = self.keep(ask, lease) {
                return Ok(kept);
            }
            self.end_wait(ask, lease);
        }
        let places = self.places_of(lease, self.head().resumed_at, now);
        if let Some(refused) = self.refuse(ask, lease, &places, now) {
            return Ok(refused);
        }
        let free = match places.place_for(tenure.member(), ask.holders) {
            Some((place, true)) => Some(place),
            // A hand-off goes before the queue; nothing else does.
            Some((place, false)) if self.first_waiter(lease, now).is_none() => Some(place),
            _ => None,
        };
        let (Some(place), None) = (free, self.unsettled_now(now)) else {
            return Ok(self.not_granted(ask, lease, &places, free.is_some(), now));
        };
        let grant = Grant {
            tenure,
            key: (lease.clone(), place),
            holders: ask.holders,
            running: places.generation(),
            request: ask.queue.as_ref().map(|queue| queue.request),
            waited: false,
        };
        self.grant(grant, now)
    }

    /// A wait of zero is over in the step that answers it, so that no later step can grant it the lease.
    fn end_wait(&mut self, ask: &Acquire, lease: &LeaseName) {
        let over = ask.queue.as_ref().filter(|queue| queue.within.is_zero());
        let waiter = self.leases.queue.find(lease, &ask.tenure);
        if over
            .zip(waiter)
            .is_some_and(|(over, waiter)| over.request == waiter.request)
        {
            self.leases.queue.leave(lease, &ask.tenure);
            self.leases.queue.wake(lease, StoreTime::ZERO);
        }
    }

    /// The answer to the holder itself. The grant belongs to the newest request that asked for it.
    fn keep(&mut self, ask: &Acquire, lease: &LeaseName) -> Option<AcquireOutcome> {
        let (key, row) = self.grant_of(&ask.tenure, lease)?;
        if row.revoked.is_some() || row.holders != ask.holders {
            return None;
        }
        let (token, place, generation) = (row.token, key.1, row.generation);
        let request = ask.queue.as_ref().map(|queue| queue.request);
        if row.request != request {
            let row = LeaseRow { request, ..row.clone() };
            self.set_lease(&key, Some(row));
        }
        Some(AcquireOutcome::Kept {
            token,
            place,
            generation,
        })
    }

    /// The refusal of an acquire that a wait does not help: another number of holders, or a grant that an operator
    /// released and that the caller has not noticed.
    fn refuse(&self, ask: &Acquire, lease: &LeaseName, places: &Places, now: StoreTime) -> Option<AcquireOutcome> {
        let waiter = self.first_waiter(lease, now);
        let fixed = places.holders().or(waiter.map(|waiter| waiter.holders));
        if let Some(holders) = fixed.filter(|holders| *holders != ask.holders) {
            return match ask.holders.is_one() {
                true => places.refusal().or_else(|| self.queued_refusal(lease, now)),
                false => Some(AcquireOutcome::HoldersDiffer { holders }),
            };
        }
        let (_, own) = self.grant_of(&ask.tenure, lease)?;
        Some(AcquireOutcome::Held {
            by: ask.tenure.clone(),
            free_in: self.grant_free_in(own, self.head().resumed_at, now),
        })
    }

    /// The answer when no place can be granted now: a place in the queue if the caller wants to wait.
    fn not_granted(
        &mut self,
        ask: &Acquire,
        lease: &LeaseName,
        places: &Places,
        is_free: bool,
        now: StoreTime,
    ) -> AcquireOutcome {
        let unsettled = self.unsettled_now(now);
        if let Some(queue) = ask.queue.as_ref().filter(|queue| !queue.within.is_zero()) {
            let free_in = unsettled.map(|unsettled| unsettled.until.since(now));
            let wake = now + free_in.or(places.free_in()).unwrap_or_default();
            return self.join_queue(ask, lease, queue, wake, now);
        }
        if is_free && let Some(unsettled) = unsettled {
            return AcquireOutcome::Unsettled {
                retry_in: unsettled.until.since(now),
                cause: unsettled.cause,
            };
        }
        let all_taken = places.count() >= usize::from(ask.holders.get());
        let refusal = places.refusal().filter(|_| all_taken);
        // Without a waiter all places are taken.
        refusal
            .or_else(|| self.queued_refusal(lease, now))
            .unwrap_or(AcquireOutcome::Reserved {
                to: ask.tenure.member().clone(),
                free_in: GRANT_RESERVATION,
            })
    }

    /// The refusal of a free lease that others wait for.
    fn queued_refusal(&self, lease: &LeaseName, now: StoreTime) -> Option<AcquireOutcome> {
        let waiter = self.first_waiter(lease, now)?;
        Some(AcquireOutcome::Reserved {
            to: waiter.tenure.member().clone(),
            free_in: GRANT_RESERVATION,
        })
    }

    /// Grants a place that is not taken.
    pub(super) fn grant(&mut self, grant: Grant<'_>, now: StoreTime) -> Result<AcquireOutcome> {
        let Grant { tenure, key, .. } = grant;
        let token = Token::new(self.next_number(now))?;
        let from = self.leases.table.get(&key).map(|before| before.tenure.clone());
        let generation = grant.running.filter(|_| !grant.holders.is_one()).unwrap_or(token);
        let row = LeaseRow {
            tenure: tenure.clone(),
            token,
            holders: grant.holders,
            generation,
            request: grant.request,
            revoked: None,
        };
        self.set_lease(&key, Some(row));
        if let Some(holder) = &from {
            self.note_loss(holder);
        }
        self.leases.reserve(&key, None);
        let replaced = self.leases.queue.leave(&key.0, tenure);
        if let Some(waiter) = replaced.filter(|waiter| Some(waiter.request) != grant.request) {
            self.note_served(&key.0, waiter, true, now);
        }
        self.revise(tenure, Revision(token.get()));
        let reason = from.as_ref().map(|holder| self.reason_of(holder).as_str().to_owned());
        let kind = match from {
            Some(_) => EventKind::LeaseTakenOver,
            None => EventKind::LeaseGranted,
        };
        let event = self.emit(now, kind);
        event.tenure = Some(tenure.clone());
        event.lease = Some(key.0);
        event.token = Some(token);
        event.place = Some(key.1).filter(|_| !grant.holders.is_one());
        event.request = grant.request.filter(|_| grant.waited);
        event.from.clone_from(&from);
        event.reason = reason;
        let place = key.1;
        Ok(AcquireOutcome::Granted {
            token,
            place,
            generation,
            from,
        })
    }
}
