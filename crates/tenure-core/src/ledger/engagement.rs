//! Engagements: what a provider is busy with, and which moves they allow.

use std::time::Duration;

use super::provider::{Provider, Version};
use crate::error::{Error, Result};
use crate::id::{EngagementId, ProviderId};
use crate::time::StoreTime;

/// The most candidates of one reserve.
pub const MAX_CANDIDATES: usize = 200;
/// The longest an engagement can be told to last: ten years.
pub const MAX_EXPIRES_IN: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Where an engagement stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Agreed, not begun (or being extended).
    Pending,
    /// Going on.
    Active,
    /// Done.
    Ended,
    /// It lasted too long.
    Expired,
    /// Called off.
    Cancelled,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Active, Self::Ended, Self::Expired, Self::Cancelled];

    /// The name in the ledger and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Ended => "ended",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// From the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether it takes a place of its provider's capacity.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Active)
    }

    /// Whether this can become that. What is over stays as it ended; what is open may become anything, there and back
    /// again.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        self.is_open() || self == next
    }
}

/// An engagement's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engagement {
    /// Which.
    pub engagement: EngagementId,
    /// Whose; `None` while nobody was found.
    pub provider: Option<ProviderId>,
    /// Where it stands.
    pub status: Status,
    /// When it was written down.
    pub created_at: StoreTime,
    /// When it changed last.
    pub changed_at: StoreTime,
    /// When it expires, if it is open then.
    pub expires_at: Option<StoreTime>,
    /// Rises with every change of the row.
    pub version: Version,
}

/// An engagement to write down, or to find a provider for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEngagement {
    /// Its name, by which asking again is known.
    pub engagement: EngagementId,
    /// Whose. A fact: taken also above the capacity, offline or deactivated. Not for a reserve.
    pub provider: Option<ProviderId>,
    /// `Pending` or `Active`.
    pub status: Status,
    /// After which time it expires.
    pub expires_in: Option<Duration>,
}

impl NewEngagement {
    /// A pending one without a provider, which never expires by itself.
    #[must_use]
    pub fn new(engagement: EngagementId) -> Self {
        Self {
            engagement,
            provider: None,
            status: Status::Pending,
            expires_in: None,
        }
    }

    /// Refuses what no provider can be found for: a reserve chooses it.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check_reserve(&self) -> Result<()> {
        if let Some(provider) = &self.provider {
            return Err(Error::invalid(format!(
                "a reserve chooses the provider; leave out {provider}, or create the engagement"
            )));
        }
        self.check()
    }

    /// Refuses what cannot be.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<()> {
        if !self.status.is_open() {
            return Err(Error::invalid(format!(
                "an engagement begins as pending or active, not as {}",
                self.status.as_str()
            )));
        }
        check_expiry(self.expires_in)
    }
}

/// What becomes of the time at which an engagement expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// It stays.
    #[default]
    Keep,
    /// It never does by itself.
    Never,
    /// After this time from now.
    In(Duration),
}

/// A change of an engagement. What is not said stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Move {
    /// Where it is to stand.
    pub status: Option<Status>,
    /// Whose it is to be. A fact, like that of [`NewEngagement`].
    pub provider: Option<ProviderId>,
    /// When it is to expire.
    pub expiry: Expiry,
}

impl Move {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<()> {
        check_expiry(match self.expiry {
            Expiry::In(after) => Some(after),
            Expiry::Keep | Expiry::Never => None,
        })
    }
}

fn check_expiry(expires_in: Option<Duration>) -> Result<()> {
    match expires_in {
        Some(after) if after.is_zero() || after > MAX_EXPIRES_IN => Err(Error::invalid(
            "an engagement expires after more than nothing and at most ten years",
        )),
        _ => Ok(()),
    }
}

/// What a write did to an engagement and to those it is or was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngagementChange {
    /// The row now.
    pub engagement: Engagement,
    /// The rows of the providers that it is or was of, in order of their names.
    pub providers: Vec<Provider>,
    /// Whether this call changed it.
    pub changed: bool,
}

/// What writing an engagement came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngagementOutcome {
    /// It is as asked for, since now or since an earlier call.
    Done(EngagementChange),
    /// It is over, or is another than the one meant. Nothing changed.
    Conflict(Engagement),
}

/// Whom a reserve may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidates {
    /// These, the first that has room: the mirror ranked them. At most [`MAX_CANDIDATES`].
    Ranked(Vec<ProviderId>),
    /// Anyone, the least occupied first, who came online or was heard of since.
    Any {
        /// Since when; `None` for however long ago.
        fresh_since: Option<StoreTime>,
    },
}

impl Candidates {
    /// Refuses too many.
    ///
    /// # Errors
    /// `Invalid`, with the number.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Ranked(ranked) if ranked.len() > MAX_CANDIDATES => Err(Error::invalid(format!(
                "{} candidates in one call; at most {MAX_CANDIDATES}",
                ranked.len()
            ))),
            _ => Ok(()),
        }
    }
}

/// What a reserve came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// The engagement has its provider, since now or since an earlier call.
    Reserved(EngagementChange),
    /// Nobody has room. Nothing changed.
    NoneAvailable,
    /// The engagement is over. Nothing changed.
    Conflict(Engagement),
}

/// Engagements that expired.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpiredBatch {
    /// Their rows, in order of their names.
    pub expired: Vec<Engagement>,
    /// The rows of their providers, in order of their names.
    pub providers: Vec<Provider>,
    /// When the next one expires; not in the future when there is more to do now.
    pub next: Option<StoreTime>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_stays_as_it_ended() {
        for from in Status::ALL {
            assert_eq!(Status::parse(from.as_str()), Some(from));
            for to in Status::ALL {
                let open = matches!(from, Status::Pending | Status::Active);
                assert_eq!(from.may_become(to), open || from == to, "{from:?} to {to:?}");
            }
        }
        assert_eq!(Status::parse("done"), None);
    }
}
