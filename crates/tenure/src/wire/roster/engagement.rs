//! Engagements on the wire.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};
use tenure_core::error::Result;
use tenure_core::id::{EngagementId, ProviderId};
use tenure_core::ledger::{self as core, Expiry, Move, NewEngagement, Status, Version};
use tenure_core::time::StoreTime;

/// `POST …/engagements`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EngagementRequest {
    /// Its name, by which asking again is known; made up when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub id: Option<EngagementId>,
    /// Whose. A fact: taken also above the capacity, offline or deactivated. Without one it waits for a `reserve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub provider: Option<ProviderId>,
    /// `pending` (when not given) or `active`.
    #[serde(
        default,
        deserialize_with = "status",
        serialize_with = "status_out",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub status: Option<Status>,
    /// After which time it expires; never by itself when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

impl EngagementRequest {
    /// What it asks for, under this name when it has none of its own.
    ///
    /// # Errors
    /// `Invalid` for a status that is over, or an expiry of nothing or beyond ten years.
    pub fn engagement(self, made_up: impl FnOnce() -> Result<EngagementId>) -> Result<NewEngagement> {
        let new = NewEngagement {
            engagement: self.id.map_or_else(made_up, Ok)?,
            provider: self.provider,
            status: self.status.unwrap_or(Status::Pending),
            expires_in: self.expires_in_ms.map(Duration::from_millis),
        };
        new.check()?;
        Ok(new)
    }
}

impl From<NewEngagement> for EngagementRequest {
    fn from(new: NewEngagement) -> Self {
        Self {
            id: Some(new.engagement),
            provider: new.provider,
            status: Some(new.status),
            expires_in_ms: new.expires_in.map(super::super::ms),
        }
    }
}

/// `PATCH …/engagements/{e}`. What is not named stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MoveRequest {
    /// Where it is to stand: `pending`, `active`, `ended`, `expired` or `cancelled`. What is over stays as it ended.
    #[serde(
        default,
        deserialize_with = "status",
        serialize_with = "status_out",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub status: Option<Status>,
    /// Whose it is to be. A fact, also above the capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub provider: Option<ProviderId>,
    /// After which time from now it is to expire; `null` for never by itself.
    #[serde(
        default,
        deserialize_with = "super::super::or_null",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub expires_in_ms: Option<Option<u64>>,
}

impl MoveRequest {
    /// What it asks for.
    ///
    /// # Errors
    /// `Invalid` for an expiry of nothing or beyond ten years.
    pub fn to(self) -> Result<Move> {
        let to = Move {
            status: self.status,
            provider: self.provider,
            expiry: match self.expires_in_ms {
                None => Expiry::Keep,
                Some(None) => Expiry::Never,
                Some(Some(after)) => Expiry::In(Duration::from_millis(after)),
            },
        };
        to.check()?;
        Ok(to)
    }
}

impl From<Move> for MoveRequest {
    fn from(to: Move) -> Self {
        Self {
            status: to.status,
            provider: to.provider,
            expires_in_ms: match to.expiry {
                Expiry::Keep => None,
                Expiry::Never => Some(None),
                Expiry::In(after) => Some(Some(super::super::ms(after))),
            },
        }
    }
}

/// `POST …/reserve`; the whole body may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReserveRequest {
    /// What it is for: a new name, or that of an open engagement without a provider. Made up when not given; with a name,
    /// asking again after an answer that was lost is safe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub engagement: Option<EngagementId>,
    /// `pending` (when not given) or `active`, if the engagement is new.
    #[serde(
        default,
        deserialize_with = "status",
        serialize_with = "status_out",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub status: Option<Status>,
    /// After which time it expires, if the engagement is new; never by itself when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

impl From<ReserveRequest> for EngagementRequest {
    fn from(request: ReserveRequest) -> Self {
        Self {
            id: request.engagement,
            provider: None,
            status: request.status,
            expires_in_ms: request.expires_in_ms,
        }
    }
}

/// An engagement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Engagement {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub engagement: EngagementId,
    /// Whose; `null` while nobody was found.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub provider: Option<ProviderId>,
    /// `pending`, `active`, `ended`, `expired` or `cancelled`.
    #[serde(deserialize_with = "one_status", serialize_with = "one_status_out")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub status: Status,
    /// When it was written down.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: StoreTime,
    /// When it changed last.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub changed_at: StoreTime,
    /// When it expires, if it is open then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub expires_at: Option<StoreTime>,
    /// Rises with every change.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub version: Version,
    /// With a write: whether this call changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// With a write: whether the hot store has it already. If not, it follows; the ledger has it in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrored: Option<bool>,
}

impl From<core::Engagement> for Engagement {
    fn from(row: core::Engagement) -> Self {
        Self {
            engagement: row.engagement,
            provider: row.provider,
            status: row.status,
            created_at: row.created_at,
            changed_at: row.changed_at,
            expires_at: row.expires_at,
            version: row.version,
            changed: None,
            mirrored: None,
        }
    }
}

impl From<Engagement> for core::Engagement {
    fn from(shown: Engagement) -> Self {
        Self {
            engagement: shown.engagement,
            provider: shown.provider,
            status: shown.status,
            created_at: shown.created_at,
            changed_at: shown.changed_at,
            expires_at: shown.expires_at,
            version: shown.version,
        }
    }
}

fn one_status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
    let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    Status::parse(&name).ok_or_else(|| {
        let names = Status::ALL.map(Status::as_str).join(", ");
        de::Error::custom(format!(
            "{:?} is no status; there are {names}",
            super::super::shorten(&name)
        ))
    })
}

fn one_status_out<S: serde::Serializer>(status: &Status, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(status.as_str())
}

fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Status>, D::Error> {
    one_status(deserializer).map(Some)
}

#[expect(clippy::ref_option, reason = "serde passes fields like this")]
fn status_out<S: serde::Serializer>(status: &Option<Status>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_some(&status.map(Status::as_str))
}
