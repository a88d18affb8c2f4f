//! Acquiring on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{AcquireOutcome, Acquired, Holders, Place, Token};
use tenure_core::membership::Revision;
use tenure_core::settling::GapCause;
use tenure_core::time::StoreTime;

use crate::wire::{ms, ms_up};

/// `POST …/leases/{l}/acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireRequest {
    /// The tenure that acquires.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The number of holders, for a semaphore. It is fixed while a place of the lease is taken or waited for.
    #[serde(default, skip_serializing_if = "Holders::is_one")]
    #[cfg_attr(feature = "openapi", schema(value_type = u16, minimum = 1, maximum = 1000, default = 1))]
    pub holders: Holders,
    /// Waits this long if the lease is not free, first come, first served. Absent or 0 answers immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 60_000))]
    pub wait_ms: Option<u64>,
    /// The highest revision of any answer under this tenure, below 2^53, as in a beat; 0 or absent if none.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub seen: Revision,
}

/// The outcome of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AcquireWord {
    /// Granted to the tenure.
    Granted,
    /// The tenure already held it.
    Kept,
    /// Another tenure holds it. Nothing changed.
    Held,
    /// Reserved for a successor that has not acquired it yet. Nothing changed.
    Reserved,
    /// Free, but the group is in a grace period and may have lost a grant. Nothing changed.
    Unsettled,
    /// The request waits in the queue.
    Waiting,
    /// Held or waited for with another number of holders. Nothing changed.
    HoldersDiffer,
    /// The queue is full. Nothing changed.
    QueueFull,
}

/// An acquired lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireAnswer {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// The member that holds it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub holder: MemberId,
    /// The tenure that holds it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The fencing token: higher than every earlier token of this group, below 2^53.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub token: Token,
    /// The place of the grant: 0 for an exclusive lease, 0 to N − 1 with N holders. A fence keeps a mark per place.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = u16))]
    pub place: Place,
    /// The generation of the lease: of an exclusive grant its token, of a semaphore a number that is new whenever the lease
    /// is granted while no place is taken. It never falls.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub generation: Token,
    /// Time until the tenure expires without a beat, and the lease with it, counted from when the request was sent; after a
    /// wait, from when it was answered.
    pub expires_in_ms: u64,
    /// `granted` or `kept`.
    pub outcome: AcquireWord,
    /// With `wait_ms`: how long the request waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// With `granted`: the ended tenure it was taken over from, if the janitor had not released it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// The member of `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from_member: Option<MemberId>,
    /// The revision of the tenure's holdings; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The revision before this call. If it is lower than the last one received, the store lost its latest writes;
    /// re-read the leases.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision_before: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

impl AcquireAnswer {
    /// Converts to the core type.
    #[must_use]
    pub fn acquired(self) -> Acquired {
        let Self {
            token,
            place,
            generation,
            from,
            ..
        } = self;
        let outcome = match self.outcome {
            AcquireWord::Kept => AcquireOutcome::Kept {
                token,
                place,
                generation,
            },
            _ => AcquireOutcome::Granted {
                token,
                place,
                generation,
                from,
            },
        };
        Acquired {
            outcomes: vec![outcome],
            expires_in: Duration::from_millis(self.expires_in_ms),
            ttl: None,
            revision: self.revision,
            before: self.revision_before,
            as_of: self.as_of,
        }
    }
}

/// The result for one of many leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireResult {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// The outcome.
    pub outcome: AcquireWord,
    /// With `granted` and `kept`: the fencing token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub token: Option<Token>,
    /// With `granted` and `kept`: the place of the grant, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>))]
    pub place: Option<Place>,
    /// With `granted` and `kept`: the generation of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub generation: Option<Token>,
    /// With `holders_differ`: the number of holders the lease has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>))]
    pub holders: Option<Holders>,
    /// With `waiting` and `queue_full`: the number of waiters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u32>,
    /// With `granted`: the ended tenure it was taken over from, if the janitor had not released it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// The member of `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from_member: Option<MemberId>,
    /// With `held`: the member that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// With `held`: the tenure that holds it. That tenure may have ended while its process still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
    /// With `reserved`: the successor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reserved_for: Option<MemberId>,
    /// With `held`, `reserved` and `unsettled`: when to retry if nothing changes until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// With `unsettled`: the cause of the grace period (`new`, `silent`, `clock_back`, `data_loss` or `tail_loss`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<GapCause>,
}

impl AcquireResult {
    /// Builds the result for one lease.
    #[must_use]
    pub fn new(lease: LeaseName, outcome: AcquireOutcome) -> Self {
        let word = match &outcome {
            AcquireOutcome::Granted { .. } => AcquireWord::Granted,
            AcquireOutcome::Kept { .. } => AcquireWord::Kept,
            AcquireOutcome::Held { .. } => AcquireWord::Held,
            AcquireOutcome::Reserved { .. } => AcquireWord::Reserved,
            AcquireOutcome::Unsettled { .. } => AcquireWord::Unsettled,
            AcquireOutcome::Waiting { .. } => AcquireWord::Waiting,
            AcquireOutcome::HoldersDiffer { .. } => AcquireWord::HoldersDiffer,
            AcquireOutcome::QueueFull { .. } => AcquireWord::QueueFull,
        };
        let mut result = Self {
            lease,
            outcome: word,
            token: outcome.token(),
            place: outcome.place(),
            generation: outcome.generation(),
            holders: None,
            waiting: None,
            from: None,
            from_member: None,
            holder: None,
            tenure: None,
            reserved_for: None,
            retry_after_ms: None,
            cause: None,
        };
        let wait = match outcome {
            AcquireOutcome::Granted { from, .. } => {
                result.from_member = from.as_ref().map(|from| from.member().clone());
                result.from = from;
                return result;
            }
            AcquireOutcome::Kept { .. } => return result,
            AcquireOutcome::HoldersDiffer { holders } => {
                result.holders = Some(holders);
                return result;
            }
            AcquireOutcome::Waiting { ahead: waiting, .. } | AcquireOutcome::QueueFull { waiting } => {
                result.waiting = Some(waiting);
                return result;
            }
            AcquireOutcome::Held { by, free_in } => {
                result.holder = Some(by.member().clone());
                result.tenure = Some(by);
                free_in
            }
            AcquireOutcome::Reserved { to, free_in } => {
                result.reserved_for = Some(to);
                free_in
            }
            AcquireOutcome::Unsettled { retry_in, cause } => {
                result.cause = Some(cause);
                retry_in
            }
        };
        result.retry_after_ms = Some(ms_up(wait));
        result
    }

    /// Converts to the core type; `None` if a part is missing.
    #[must_use]
    pub fn outcome(self) -> Option<AcquireOutcome> {
        let wait = self.retry_after_ms.map(Duration::from_millis);
        Some(match self.outcome {
            AcquireWord::Granted => AcquireOutcome::Granted {
                token: self.token?,
                place: self.place.unwrap_or_default(),
                generation: self.generation?,
                from: self.from,
            },
            AcquireWord::Kept => AcquireOutcome::Kept {
                token: self.token?,
                place: self.place.unwrap_or_default(),
                generation: self.generation?,
            },
            AcquireWord::HoldersDiffer => AcquireOutcome::HoldersDiffer { holders: self.holders? },
            AcquireWord::QueueFull => AcquireOutcome::QueueFull { waiting: self.waiting? },
            // A daemon answers only when the wait is over.
            AcquireWord::Waiting => return None,
            AcquireWord::Held => AcquireOutcome::Held {
                by: self.tenure?,
                free_in: wait?,
            },
            AcquireWord::Reserved => AcquireOutcome::Reserved {
                to: self.reserved_for?,
                free_in: wait?,
            },
            AcquireWord::Unsettled => AcquireOutcome::Unsettled {
                retry_in: wait?,
                cause: self.cause?,
            },
        })
    }
}

/// The results for many leases, in request order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireLeasesAnswer {
    /// One result per lease.
    pub results: Vec<AcquireResult>,
    /// Time until the tenure expires without a beat, counted from when the request was sent.
    pub expires_in_ms: u64,
    /// The revision of the tenure's holdings; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The revision before this call. If it is lower than the last one received, the store lost its latest writes;
    /// re-read the leases.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision_before: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

impl AcquireLeasesAnswer {
    /// Builds the answer, in request order.
    #[must_use]
    pub fn new(leases: Vec<LeaseName>, acquired: Acquired) -> Self {
        let results = leases.into_iter().zip(acquired.outcomes);
        Self {
            results: results
                .map(|(lease, outcome)| AcquireResult::new(lease, outcome))
                .collect(),
            expires_in_ms: ms(acquired.expires_in),
            revision: acquired.revision,
            revision_before: acquired.before,
            as_of: acquired.as_of,
        }
    }

    /// Converts to the core type; `None` if the results do not match `asked`.
    #[must_use]
    pub fn acquired(self, asked: &[LeaseName]) -> Option<Acquired> {
        let in_order = self.results.len() == asked.len()
            && self
                .results
                .iter()
                .zip(asked)
                .all(|(result, lease)| result.lease == *lease);
        let outcomes: Option<Vec<_>> = self.results.into_iter().map(AcquireResult::outcome).collect();
        Some(Acquired {
            outcomes: outcomes.filter(|_| in_order)?,
            expires_in: Duration::from_millis(self.expires_in_ms),
            ttl: None,
            revision: self.revision,
            before: self.revision_before,
            as_of: self.as_of,
        })
    }
}
