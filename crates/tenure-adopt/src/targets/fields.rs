//! Derives a target's status from the fields of its key.

use serde_json::Value as Json;
use tenure_core::target::{text_of, text_pauses};

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

    /// The status by the values of a hash; a missing field is empty.
    pub(super) fn of_hash(&self, values: &[Vec<u8>]) -> TargetStatus {
        let names = self.names();
        let value = |field: &str| {
            let at = names.iter().position(|name| *name == field);
            at.and_then(|at| values.get(at)).cloned().unwrap_or_default()
        };
        self.evaluate(value)
    }

    /// The status by a string. One that starts like JSON must be a valid object. Any other has no fields: without
    /// `disconnected` its target is live, otherwise unclear.
    pub(super) fn of_text(&self, text: &[u8]) -> TargetStatus {
        if !matches!(text.trim_ascii().first(), Some(b'{' | b'[')) {
            return match self.disconnected {
                None => TargetStatus::Live,
                Some(_) => TargetStatus::Unclear,
            };
        }
        let Ok(Json::Object(fields)) = serde_json::from_slice(text) else {
            return TargetStatus::Unclear;
        };
        self.evaluate(|field| fields.get(field).map(text_of).unwrap_or_default().into_bytes())
    }

    fn evaluate(&self, value: impl Fn(&str) -> Vec<u8>) -> TargetStatus {
        let since = self.disconnected.as_deref().map(&value).unwrap_or_default();
        match disconnected(since.trim_ascii()) {
            None => TargetStatus::Unclear,
            Some(true) => TargetStatus::Disconnected,
            Some(false) if self.paused.as_deref().is_some_and(|field| text_pauses(&value(field))) => {
                TargetStatus::Paused
            }
            Some(false) => TargetStatus::Live,
        }
    }
}

/// Whether a disconnect time means disconnected: `0` and empty mean connected, as in `adopt sessions`. `None` if it is
/// not a time.
fn disconnected(since: &[u8]) -> Option<bool> {
    let (whole, part) = match since.iter().position(|byte| *byte == b'.') {
        Some(at) => (&since[..at], &since[at + 1..]),
        None => (since, &[][..]),
    };
    if since.is_empty() {
        return Some(false);
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
            ("http://a", TargetStatus::Live),
            ("", TargetStatus::Live),
            (r#"{"IsPaused":true"#, TargetStatus::Unclear),
            ("{IsPaused: false}", TargetStatus::Unclear),
            (r#"[{"IsPaused":false}]"#, TargetStatus::Unclear),
        ] {
            assert_eq!(fields.of_text(text.as_bytes()), said, "{text}");
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
            (r#"{"gone":"2026-01-01T00:00:00Z"}"#, TargetStatus::Unclear),
            (r#"{"gone":-1}"#, TargetStatus::Unclear),
            (r#"{"gone":true}"#, TargetStatus::Unclear),
            ("online", TargetStatus::Unclear),
            ("", TargetStatus::Unclear),
        ] {
            assert_eq!(fields.of_text(text.as_bytes()), said, "{text}");
        }
    }

    #[test]
    fn hash_values_match_the_order_of_the_names() {
        let both = fields(Some("paused"), Some("gone"));
        assert_eq!(both.names(), ["paused", "gone"]);
        let said = |fields: &Fields, values: &[&str]| {
            let values: Vec<Vec<u8>> = values.iter().map(|value| value.as_bytes().to_vec()).collect();
            fields.of_hash(&values)
        };
        assert_eq!(said(&both, &["", ""]), TargetStatus::Live);
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
