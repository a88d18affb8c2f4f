//! Engagements: what a provider is busy with, and which moves they allow.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::provider::{Provider, Version};
use crate::error::{Error, Result};
use crate::id::{EngagementId, ProviderId};
use crate::millis;
use crate::time::StoreTime;

/// The most candidates of one reserve.
pub const MAX_CANDIDATES: usize = 200;
/// The longest an engagement can be told to last: ten years.
pub const MAX_EXPIRES_IN: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Where an engagement stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Status {
    /// Agreed, not begun (or being extended).
    #[default]
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
            de::Error::custom(format!("{start:?} is no status; there are {}", names.join(", ")))
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
    /// Whose; `null` while nobody was found.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub provider: Option<ProviderId>,
    /// `pending`, `active`, `ended`, `expired` or `cancelled`.
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
}

/// An engagement to write down, or to find a provider for. As a body, its name may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = EngagementRequest, bound = ""))]
pub struct NewEngagement<Name = EngagementId> {
    /// Its name, by which asking again is known; made up when not given.
    #[serde(rename = "id", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub engagement: Name,
    /// Whose. A fact: taken also above the capacity, offline or deactivated. Without one it waits for a `reserve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub provider: Option<ProviderId>,
    /// `pending` (when not given) or `active`.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub status: Status,
    /// After which time it expires; never by itself when not given.
    #[serde(
        rename = "expires_in_ms",
        default,
        with = "millis::down",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub expires_in: Option<Duration>,
}

impl NewEngagement<Option<EngagementId>> {
    /// The same under its name, or under this one when it has none.
    ///
    /// # Errors
    /// Those of making a name up.
    pub fn named(self, made_up: impl FnOnce() -> Result<EngagementId>) -> Result<NewEngagement> {
        Ok(NewEngagement {
            engagement: self.engagement.map_or_else(made_up, Ok)?,
            provider: self.provider,
            status: self.status,
            expires_in: self.expires_in,
        })
    }
}

impl NewEngagement {
    /// A pending one without a provider, which never expires by itself.
    #[must_use]
    pub fn new(engagement: EngagementId) -> Self {
        Self {
            engagement,
            provider: None,
            status: Status::default(),
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

/// `null` for never; absent to keep it.
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

/// A change of an engagement. What is not named stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = MoveRequest))]
pub struct Move {
    /// Where it is to stand: `pending`, `active`, `ended`, `expired` or `cancelled`. What is over stays as it ended.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub status: Option<Status>,
    /// Whose it is to be. A fact, also above the capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub provider: Option<ProviderId>,
    /// After which time from now it is to expire; `null` for never by itself.
    #[serde(rename = "expires_in_ms", default, skip_serializing_if = "Expiry::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub expiry: Expiry,
}

impl Move {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<()> {
        check_expiry(self.expiry.after())
    }
}

/// A field that may be absent, and is not `null`.
fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
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
    use serde_json::json;

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
    #[test]
    fn a_move_tells_never_from_not_said() {
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
    fn a_status_is_one_of_those_there_are() {
        for body in [json!({"status": "done"}), json!({"status": null})] {
            assert!(serde_json::from_value::<Move>(body).is_err());
        }
        let error = serde_json::from_value::<Status>(json!("done")).unwrap_err().to_string();
        assert_eq!(
            error,
            "\"done\" is no status; there are pending, active, ended, expired, cancelled"
        );
        let over = NewEngagement {
            status: Status::Ended,
            ..NewEngagement::new("e".parse().unwrap())
        };
        let error = over.check().unwrap_err().to_string();
        assert!(error.contains("begins as pending or active"), "{error}");
    }
}
