//! Derives a target's status from the fields of its key.

use serde_json::Value as Json;
use tenure_core::target::{text_of, text_pauses};
use tenure_core::time::StoreTime;

/// The status of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetStatus {
    /// To be worked on.
    Live,
    Paused,
    /// A session without connections, which is not a target.
    Disconnected,
    /// The key is unreadable, so the target is paused.
    Unclear,
}

/// What a key says about its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) status: TargetStatus,
    /// Whether it has the field that pauses.
    pub(super) has_paused_field: bool,
}

impl Reading {
    pub(super) const LIVE: Self = Self {
        status: TargetStatus::Live,
        has_paused_field: false,
    };
    pub(super) const UNCLEAR: Self = Self {
        status: TargetStatus::Unclear,
        has_paused_field: false,
    };
}

/// The names of the fields to read.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields {
    pub(super) paused: Option<String>,
    pub(super) disconnected: Option<String>,
}

impl Fields {
    /// The field names, in the order of the values for [`Fields::of_hash`].
    pub(super) fn names(&self) -> Vec<&str> {
        [&self.paused, &self.disconnected]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect()
    }

    /// What the values of a hash say; a missing field is empty.
    pub(super) fn of_hash(&self, values: &[Vec<u8>]) -> Reading {
        let names = self.names();
        self.evaluate(|field| {
            let at = names.iter().position(|name| *name == field);
            at.and_then(|at| values.get(at))
                .filter(|value| !value.is_empty())
                .cloned()
        })
    }

    /// What a string says, which must be a JSON object.
    pub(super) fn of_text(&self, text: &[u8]) -> Reading {
        let Ok(Json::Object(fields)) = serde_json::from_slice(text) else {
            return Reading::UNCLEAR;
        };
        self.evaluate(|field| fields.get(field).map(|value| text_of(value).into_bytes()))
    }

    fn evaluate(&self, value: impl Fn(&str) -> Option<Vec<u8>>) -> Reading {
        let since = self.disconnected.as_deref().and_then(&value).unwrap_or_default();
        let paused = self.paused.as_deref().and_then(&value);
        let status = match disconnected(since.trim_ascii()) {
            None => TargetStatus::Unclear,
            Some(true) => TargetStatus::Disconnected,
            Some(false) if paused.as_deref().is_some_and(text_pauses) => TargetStatus::Paused,
            Some(false) => TargetStatus::Live,
        };
        Reading {
            status,
            has_paused_field: paused.is_some(),
        }
    }
}

/// Whether a disconnect time means disconnected: `0` and empty mean connected, and ISO 8601 with a zone is a time, as in
/// `adopt sessions`. `None` if it is not a time.
fn disconnected(since: &[u8]) -> Option<bool> {
    let (whole, part) = match since.iter().position(|byte| *byte == b'.') {
        Some(at) => (&since[..at], &since[at + 1..]),
        None => (since, &[][..]),
    };
    if since.is_empty() {
        return Some(false);
    }
    if std::str::from_utf8(since).is_ok_and(|text| text.parse::<StoreTime>().is_ok()) {
        return Some(true);
    }
    let is_number = !whole.is_empty() && whole.iter().chain(part).all(u8::is_ascii_digit);
    is_number.then(|| whole.iter().chain(part).any(|digit| *digit != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(paused: Option<&str>, disconnected: Option<&str>) -> Fields {
        Fields {
            paused: paused.map(str::to_owned),
            disconnected: disconnected.map(str::to_owned),
        }
    }

    #[test]
    fn malformed_json_is_unclear() {
        let fields = fields(Some("IsPaused"), None);
        for (text, said) in [
            (r#"{"IsPaused":true}"#, TargetStatus::Paused),
            (r#" {"url":"http://a","IsPaused":1} "#, TargetStatus::Paused),
            (r#"{"IsPaused":"yes"}"#, TargetStatus::Paused),
            (r#"{"IsPaused":{"since":"2026-01-01"}}"#, TargetStatus::Paused),
            (r#"{"IsPaused":false}"#, TargetStatus::Live),
            (r#"{"IsPaused":"off"}"#, TargetStatus::Live),
            (r#"{"IsPaused":0}"#, TargetStatus::Live),
            (r#"{"IsPaused":null}"#, TargetStatus::Live),
            (r#"{"isPaused":true}"#, TargetStatus::Live),
            ("{}", TargetStatus::Live),
            ("http://a", TargetStatus::Unclear),
            ("", TargetStatus::Unclear),
            (r#"{"IsPaused":true"#, TargetStatus::Unclear),
            ("{IsPaused: false}", TargetStatus::Unclear),
            (r#"[{"IsPaused":false}]"#, TargetStatus::Unclear),
        ] {
            assert_eq!(fields.of_text(text.as_bytes()).status, said, "{text}");
        }
    }

    #[test]
    fn only_a_session_without_a_disconnect_time_is_live() {
        let fields = fields(Some("paused"), Some("gone"));
        for (text, said) in [
            ("{}", TargetStatus::Live),
            (r#"{"gone":0}"#, TargetStatus::Live),
            (r#"{"gone":"0"}"#, TargetStatus::Live),
            (r#"{"gone":null,"paused":false}"#, TargetStatus::Live),
            (r#"{"gone":0,"paused":true}"#, TargetStatus::Paused),
            (r#"{"gone":1767225600}"#, TargetStatus::Disconnected),
            (r#"{"gone":"1767225600.25","paused":true}"#, TargetStatus::Disconnected),
            (r#"{"gone":"2026-01-01T00:00:00Z"}"#, TargetStatus::Disconnected),
            (r#"{"gone":"2026-01-01 01:00:00.5+01:00"}"#, TargetStatus::Disconnected),
            (r#"{"gone":"2026-01-01T00:00:00"}"#, TargetStatus::Unclear),
            (r#"{"gone":"2026-01-01"}"#, TargetStatus::Unclear),
            (r#"{"gone":-1}"#, TargetStatus::Unclear),
            (r#"{"gone":true}"#, TargetStatus::Unclear),
            ("online", TargetStatus::Unclear),
            ("", TargetStatus::Unclear),
        ] {
            assert_eq!(fields.of_text(text.as_bytes()).status, said, "{text}");
        }
    }

    #[test]
    fn hash_values_match_the_order_of_the_names() {
        let both = fields(Some("paused"), Some("gone"));
        assert_eq!(both.names(), ["paused", "gone"]);
        let said = |fields: &Fields, values: &[&str]| {
            let values: Vec<Vec<u8>> = values.iter().map(|value| value.as_bytes().to_vec()).collect();
            fields.of_hash(&values).status
        };
        assert_eq!(said(&both, &["", ""]), TargetStatus::Live);
        let has_field = |values: [&[u8]; 2]| both.of_hash(&values.map(<[u8]>::to_vec)).has_paused_field;
        assert!(has_field([b"0", b""]) && !has_field([b"", b"0"]));
        assert_eq!(said(&both, &["1", "0"]), TargetStatus::Paused);
        assert_eq!(said(&both, &["0", "1767225600"]), TargetStatus::Disconnected);
        assert_eq!(said(&both, &["0", "."]), TargetStatus::Unclear);
        assert_eq!(
            said(&fields(None, Some("gone")), &["1767225600"]),
            TargetStatus::Disconnected
        );
        assert_eq!(
            said(&fields(Some("paused"), None), &["1767225600"]),
            TargetStatus::Paused
        );
    }
}
