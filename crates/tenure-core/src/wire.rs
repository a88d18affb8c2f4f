//! Forms of the JSON bodies that serde has no words for. The types themselves are the bodies, each beside its noun.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// A duration in whole milliseconds, rounded down.
fn whole(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration as an integer, in a field named `…_ms`.
pub(crate) mod ms {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Duration, whole};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(whole(*duration))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// The same for a duration that may be absent.
pub(crate) mod ms_if_any {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Duration, whole};

    #[expect(clippy::ref_option, reason = "serde passes fields like this")]
    pub(crate) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(whole).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

/// A field that may be absent, and is not `null`.
pub(crate) fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
