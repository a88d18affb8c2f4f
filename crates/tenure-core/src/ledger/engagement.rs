//! Engagements: the work items of providers, and their status changes.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::provider::{Provider, Version};
use crate::error::{Error, Result};
use crate::id::{EngagementId, ProviderId};
use crate::millis;
use crate::time::StoreTime;

/// The maximum number of candidates of a reserve.
pub const MAX_CANDIDATES: usize = 200;
/// The maximum duration until an engagement expires: ten years.
pub const MAX_EXPIRES_IN: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The status of an engagement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Status {
    /// Agreed but not begun, or being extended.
    #[default]
    Pending,
    /// In progress.
    Active,
    /// Done.
    Ended,
    /// It exceeded its duration.
    Expired,
    /// Cancelled.
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

    /// Parses the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether it occupies its provider.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Active)
    }

    /// Whether this status can change to `next`. A closed status is final; an open one can change to any status and
    /// back.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        self.is_open() || self == next
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&name).ok_or_else(|| {
            let (start, names) = (name.chars().take(64).collect::<String>(), Self::ALL.map(Self::as_str));
            de::Error::custom(format!("invalid status {start:?}; use one of {}", names.join(", ")))
        })
    }
}

/// An engagement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Engagement {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub engagement: EngagementId,
    /// Its provider; `null` until one is assigned.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub provider: Option<ProviderId>,
    /// `pending`, `active`, `ended`, `expired` or `cancelled`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub status: Status,
    /// When it was created.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: StoreTime,
    /// When it last changed.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub changed_at: StoreTime,
    /// When it expires, if still open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub expires_at: Option<StoreTime>,
    /// How long it may be active: an engagement that becomes active expires after this time.
    #[serde(
        rename = "active_for_ms",
        default,
        with = "millis::down",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub active_for: Option<Duration>,
    /// Rises with every change.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub version: Version,
}

/// An engagement to create, or to assign by a reserve. In a body, the name may be omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = EngagementRequest, bound = ""))]
pub struct NewEngagement<Name = EngagementId> {
    /// Its name, which makes a retry idempotent; generated if omitted.
    #[serde(rename = "id", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub engagement: Name,
    /// Its provider. As a fact it is accepted even above the capacity, offline or deactivated; without one, it waits for a
    /// `reserve`. A `reserve` gives it this provider or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub provider: Option<ProviderId>,
    /// `pending` (the default) or `active`.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub status: Status,
    /// The time until it expires in its first status; never if omitted.
    #[serde(
        rename = "expires_in_ms",
        default,
        with = "millis::down",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1))]
    pub expires_in: Option<Duration>,
    /// How long it may be active: when it becomes active, it expires after this time. Never if omitted.
    #[serde(
        rename = "active_for_ms",
        default,
        with = "millis::down",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1))]
    pub active_for: Option<Duration>,
}

impl NewEngagement<Option<EngagementId>> {
    /// The same engagement with its name, or with a generated one.
    ///
    /// # Errors
    /// Those of the generator.
    pub fn named(self, made_up: impl FnOnce() -> Result<EngagementId>) -> Result<NewEngagement> {
        Ok(NewEngagement {
            engagement: self.engagement.map_or_else(made_up, Ok)?,
            provider: self.provider,
            status: self.status,
            expires_in: self.expires_in,
            active_for: self.active_for,
        })
    }
}

impl NewEngagement {
    /// A pending engagement without a provider or an expiry.
    #[must_use]
    pub fn new(engagement: EngagementId) -> Self {
        Self {
            engagement,
            provider: None,
            status: Status::default(),
            expires_in: None,
            active_for: None,
        }
    }

    /// The time until it expires in its first status.
    #[must_use]
    pub fn first_expiry(&self) -> Option<Duration> {
        self.expires_in
            .or(self.active_for.filter(|_| self.status == Status::Active))
    }

    /// Whether a known engagement cannot be the answer to this one: it is over, or has another provider.
    #[must_use]
    pub fn conflicts_with(&self, known: &Engagement) -> bool {
        let is_others = self.provider.is_some() && known.provider.is_some() && self.provider != known.provider;
        is_others || !known.status.is_open()
    }

    /// Rejects an invalid engagement.
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
        check_expiry(self.expires_in)?;
        check_expiry(self.active_for)
    }
}

/// A change of an engagement's expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// Keep it.
    #[default]
    Keep,
    /// Remove it.
    Never,
    /// Expire after this time from now.
    In(Duration),
}

impl Expiry {
    fn is_keep(&self) -> bool {
        *self == Self::Keep
    }

    fn after(self) -> Option<Duration> {
        match self {
            Self::In(after) => Some(after),
            Self::Keep | Self::Never => None,
        }
    }
}

/// `null` removes it; absent keeps it.
impl Serialize for Expiry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        millis::down::serialize(&self.after(), serializer)
    }
}

impl<'de> Deserialize<'de> for Expiry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let after: Option<Duration> = millis::down::deserialize(deserializer)?;
        Ok(after.map_or(Self::Never, Self::In))
    }
}

/// A change of an engagement's provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Reassign {
    /// Keep it.
    #[default]
    Keep,
    /// Take it away: the engagement waits for a reserve.
    Unassign,
    /// This one.
    To(ProviderId),
}

impl Reassign {
    fn is_keep(&self) -> bool {
        *self == Self::Keep
    }

    /// The provider of an engagement after the change.
    #[must_use]
    pub fn applied_to(&self, known: &Engagement) -> Option<ProviderId> {
        match self {
            Self::Keep => known.provider.clone(),
            Self::Unassign => None,
            Self::To(provider) => Some(provider.clone()),
        }
    }
}

/// `null` takes it away; absent keeps it.
impl Serialize for Reassign {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::To(provider) => Some(provider),
            Self::Keep | Self::Unassign => None,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Reassign {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Unassign, Self::To))
    }
}

/// A change of an engagement. Omitted fields stay.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = MoveRequest))]
pub struct Move {
    /// The new status: `pending`, `active`, `ended`, `expired` or `cancelled`. A closed engagement cannot change.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub status: Option<Status>,
    /// The new provider, accepted even above its capacity; `null` for none, after which it waits for a `reserve`.
    #[serde(default, skip_serializing_if = "Reassign::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub provider: Reassign,
    /// The new time until it expires; `null` for never. If omitted, a `pending` engagement that becomes `active` expires after
    /// its `active_for_ms`, or never, and any other keeps its expiry.
    #[serde(rename = "expires_in_ms", default, skip_serializing_if = "Expiry::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1))]
    pub expiry: Expiry,
}

impl Move {
    /// Rejects an invalid change.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<()> {
        check_expiry(self.expiry.after())
    }

    /// When an open engagement expires after this change. The deadline of an offer does not end accepted work.
    #[must_use]
    pub fn expires_at(&self, known: &Engagement, now: StoreTime) -> Option<StoreTime> {
        let accepted = known.status == Status::Pending && self.status == Some(Status::Active);
        match self.expiry {
            Expiry::Keep if accepted => known.active_for.map(|after| now + after),
            Expiry::Keep => known.expires_at,
            Expiry::Never => None,
            Expiry::In(after) => Some(now + after),
        }
    }
}

/// Deserializes a field that may be absent but not `null`.
pub(crate) fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn check_expiry(expires_in: Option<Duration>) -> Result<()> {
    match expires_in {
        Some(after) if after.is_zero() || after > MAX_EXPIRES_IN => Err(Error::invalid(
            "an engagement must expire after more than 0 and at most ten years",
        )),
        _ => Ok(()),
    }
}

/// The effect of a write on an engagement and its providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngagementChange {
    /// The row now.
    pub engagement: Engagement,
    /// The rows of its current and previous provider, by name.
    pub providers: Vec<Provider>,
    /// Whether this call changed it.
    pub changed: bool,
}

/// The result of writing an engagement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngagementOutcome {
    /// It is as requested, by this call or an earlier one.
    Done(EngagementChange),
    /// It is over, or has another provider than requested. Nothing changed.
    Conflict(Engagement),
}

/// The candidates of a reserve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidates {
    /// These, in any order. At most [`MAX_CANDIDATES`].
    Among(Vec<ProviderId>),
    /// Any provider that came online or sent a heartbeat at or after `fresh_since`.
    Any {
        /// The oldest accepted time; `None` for any.
        fresh_since: Option<StoreTime>,
        /// But none of these. At most [`MAX_CANDIDATES`].
        except: Vec<ProviderId>,
    },
}

impl Candidates {
    /// All providers.
    pub const ANYONE: Self = Self::Any {
        fresh_since: None,
        except: Vec::new(),
    };

    /// Rejects too many.
    ///
    /// # Errors
    /// `Invalid`, with the number.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Among(ranked) if ranked.len() > MAX_CANDIDATES => Err(Error::invalid(format!(
                "{} candidates in one call; at most {MAX_CANDIDATES}",
                ranked.len()
            ))),
            Self::Any { except, .. } => check_except(except),
            Self::Among(_) => Ok(()),
        }
    }

    /// Whether the names admit a provider.
    #[must_use]
    pub fn admit(&self, provider: &ProviderId) -> bool {
        match self {
            Self::Among(names) => names.contains(provider),
            Self::Any { except, .. } => !except.contains(provider),
        }
    }

    /// The oldest accepted time of a sign of life; `None` for any.
    #[must_use]
    pub fn fresh_since(&self) -> Option<StoreTime> {
        match self {
            Self::Among(_) => None,
            Self::Any { fresh_since, .. } => *fresh_since,
        }
    }
}

/// Rejects too many excluded providers.
///
/// # Errors
/// `Invalid`, with the number.
pub fn check_except(except: &[ProviderId]) -> Result<()> {
    if except.len() > MAX_CANDIDATES {
        return Err(Error::invalid(format!(
            "{} excluded providers in one call; at most {MAX_CANDIDATES}",
            except.len()
        )));
    }
    Ok(())
}

/// The result of a reserve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// The engagement has its provider, by this call or an earlier one.
    Reserved(EngagementChange),
    /// No candidate has room. Nothing changed.
    NoneAvailable,
    /// The engagement is closed, or has another provider than the requested one. Nothing changed.
    Conflict(Engagement),
}

/// The result of expiring engagements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpiredBatch {
    /// The expired engagements, by name.
    pub expired: Vec<Engagement>,
    /// The rows of their providers, by name.
    pub providers: Vec<Provider>,
    /// When the next one expires; not in the future if more are due now.
    pub next: Option<StoreTime>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn closed_status_is_final() {
        for from in Status::ALL {
            assert_eq!(Status::parse(from.as_str()), Some(from));
            for to in Status::ALL {
                let open = matches!(from, Status::Pending | Status::Active);
                assert_eq!(from.may_become(to), open || from == to, "{from:?} to {to:?}");
            }
        }
        assert_eq!(Status::parse("done"), None);
    }
    #[test]
    fn null_expiry_differs_from_an_absent_one() {
        for (sent, expiry) in [
            (json!({}), Expiry::Keep),
            (json!({"expires_in_ms": null}), Expiry::Never),
            (json!({"expires_in_ms": 5}), Expiry::In(Duration::from_millis(5))),
        ] {
            let to = Move {
                expiry,
                ..Move::default()
            };
            assert_eq!(serde_json::to_value(&to).unwrap(), sent);
            assert_eq!(serde_json::from_value::<Move>(sent).unwrap(), to);
        }
    }

    #[test]
    fn null_provider_differs_from_an_absent_one() {
        for (sent, provider) in [
            (json!({}), Reassign::Keep),
            (json!({"provider": null}), Reassign::Unassign),
            (json!({"provider": "ann"}), Reassign::To("ann".parse().unwrap())),
        ] {
            let to = Move {
                provider,
                ..Move::default()
            };
            assert_eq!(serde_json::to_value(&to).unwrap(), sent);
            assert_eq!(serde_json::from_value::<Move>(sent).unwrap(), to);
        }
    }

    #[test]
    fn invalid_status_is_rejected() {
        for body in [
            json!({"status": "done"}),
            json!({"status": null}),
            json!({"provider": 7}),
        ] {
            assert!(serde_json::from_value::<Move>(body).is_err());
        }
        let error = serde_json::from_value::<Status>(json!("done")).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid status \"done\"; use one of pending, active, ended, expired, cancelled"
        );
        let over = NewEngagement {
            status: Status::Ended,
            ..NewEngagement::new("e".parse().unwrap())
        };
        let error = over.check().unwrap_err().to_string();
        assert!(error.contains("begins as pending or active"), "{error}");
    }
}
