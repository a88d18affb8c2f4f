//! What the fields of another program's key say of its target.

use serde_json::Value as Json;
use tenure_core::target::{text_of, text_pauses};

/// What a key says of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It is to be worked on.
    Live,
    Paused,
    /// It is a session without connections, and no target for as long.
    Disconnected,
    /// It cannot be understood, and so the target is not worked on.
    Unclear,
}

/// The fields that are asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields {
    pub(super) paused: Option<String>,
    pub(super) disconnected: Option<String>,
}

impl Fields {
    /// Their names, in the order in which [`Fields::of_hash`] takes the values.
    pub(super) fn names(&self) -> Vec<&str> {
        [&self.paused, &self.disconnected]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect()
    }

    /// What a hash says, by the values of these fields; nothing for a field that is missing.
    pub(super) fn of_hash(&self, values: &[Vec<u8>]) -> Said {
        let names = self.names();
        let value = |field: &str| {
            let at = names.iter().position(|name| *name == field);
            at.and_then(|at| values.get(at)).cloned().unwrap_or_default()
        };
        self.judge(value)
    }

    /// What a string says. One that begins like JSON is to be understood as a whole. Any other has no fields: it cannot say
    /// that its target is paused, and a session in it cannot say that it is live.
    pub(super) fn of_text(&self, text: &[u8]) -> Said {
        if !matches!(text.trim_ascii().first(), Some(b'{' | b'[')) {
            return match self.disconnected {
                None => Said::Live,
                Some(_) => Said::Unclear,
            };
        }
        let Ok(Json::Object(fields)) = serde_json::from_slice(text) else {
            return Said::Unclear;
        };
        self.judge(|field| fields.get(field).map(text_of).unwrap_or_default().into_bytes())
    }

    fn judge(&self, value: impl Fn(&str) -> Vec<u8>) -> Said {
        let since = self.disconnected.as_deref().map(&value).unwrap_or_default();
        match disconnected(since.trim_ascii()) {
            None => Said::Unclear,
            Some(true) => Said::Disconnected,
            Some(false) if self.paused.as_deref().is_some_and(|field| text_pauses(&value(field))) => Said::Paused,
            Some(false) => Said::Live,
        }
    }
}

/// Whether the time at which a session was disconnected says that it is: `0` and nothing mean that it has connections, as
/// for `adopt sessions`. `None` for what is no time.
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
    fn json_that_is_not_understood_is_unclear() {
        let fields = fields(Some("IsPaused"), None);
        for (text, said) in [
            (r#"{"IsPaused":true}"#, Said::Paused),
            (r#" {"url":"http://a","IsPaused":1} "#, Said::Paused),
            (r#"{"IsPaused":"yes"}"#, Said::Paused),
            (r#"{"IsPaused":{"since":"2026-01-01"}}"#, Said::Paused),
            (r#"{"IsPaused":false}"#, Said::Live),
            (r#"{"IsPaused":"off"}"#, Said::Live),
            (r#"{"IsPaused":0}"#, Said::Live),
            (r#"{"IsPaused":null}"#, Said::Live),
            (r#"{"isPaused":true}"#, Said::Live),
            ("{}", Said::Live),
            ("http://a", Said::Live),
            ("", Said::Live),
            (r#"{"IsPaused":true"#, Said::Unclear),
            ("{IsPaused: false}", Said::Unclear),
            (r#"[{"IsPaused":false}]"#, Said::Unclear),
        ] {
            assert_eq!(fields.of_text(text.as_bytes()), said, "{text}");
        }
    }

    #[test]
    fn only_a_session_without_a_disconnect_time_is_live() {
        let fields = fields(Some("paused"), Some("gone"));
        for (text, said) in [
            ("{}", Said::Live),
            (r#"{"gone":0}"#, Said::Live),
            (r#"{"gone":"0"}"#, Said::Live),
            (r#"{"gone":null,"paused":false}"#, Said::Live),
            (r#"{"gone":0,"paused":true}"#, Said::Paused),
            (r#"{"gone":1767225600}"#, Said::Disconnected),
            (r#"{"gone":"1767225600.25","paused":true}"#, Said::Disconnected),
            (r#"{"gone":"2026-01-01T00:00:00Z"}"#, Said::Unclear),
            (r#"{"gone":-1}"#, Said::Unclear),
            (r#"{"gone":true}"#, Said::Unclear),
            ("online", Said::Unclear),
            ("", Said::Unclear),
        ] {
            assert_eq!(fields.of_text(text.as_bytes()), said, "{text}");
        }
    }

    #[test]
    fn hashes_answer_in_the_order_of_the_names() {
        let both = fields(Some("paused"), Some("gone"));
        assert_eq!(both.names(), ["paused", "gone"]);
        let said = |fields: &Fields, values: &[&str]| {
            let values: Vec<Vec<u8>> = values.iter().map(|value| value.as_bytes().to_vec()).collect();
            fields.of_hash(&values)
        };
        assert_eq!(said(&both, &["", ""]), Said::Live);
        assert_eq!(said(&both, &["1", "0"]), Said::Paused);
        assert_eq!(said(&both, &["0", "1767225600"]), Said::Disconnected);
        assert_eq!(said(&both, &["0", "."]), Said::Unclear);
        assert_eq!(said(&fields(None, Some("gone")), &["1767225600"]), Said::Disconnected);
        assert_eq!(said(&fields(Some("paused"), None), &["1767225600"]), Said::Paused);
    }
}
