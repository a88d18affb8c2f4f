//! Templates of keys that belong to a session: a text with placeholders for its id and its fields.

use std::fmt;

use serde_json::{Value, json};
use tenure_core::error::{Error, Result};

const ID: &str = "{id}";
const FIELD: &str = "{field:";

/// The template of a key that belongs to a session: `session:{id}:refs` or `alias:{field:broadcaster_id}`.
///
/// Everything else, including other braces, is literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Id,
    Field(String),
}

impl KeyTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// `Invalid` if it is the same key for every session, or has a field without a name.
    pub fn parse(template: &str) -> Result<Self> {
        let refused = |why: &str| {
            Err(Error::invalid(format!(
                "the key template {template:?} {why}; write {ID} where the session's id goes, or {{field:NAME}} for what a \
                 field of it holds, like session:{ID}:refs"
            )))
        };
        let (mut parts, mut rest) = (Vec::new(), template);
        while let Some(place) = [ID, FIELD].iter().filter_map(|place| rest.find(place)).min() {
            if place > 0 {
                parts.push(Part::Text(rest[..place].to_owned()));
            }
            rest = &rest[place..];
            if let Some(after) = rest.strip_prefix(ID) {
                parts.push(Part::Id);
                rest = after;
                continue;
            }
            match rest[FIELD.len()..].split_once('}') {
                Some((name, after)) if !name.is_empty() => {
                    parts.push(Part::Field(name.to_owned()));
                    rest = after;
                }
                _ => return refused("has a field without a name"),
            }
        }
        if parts.iter().all(|part| matches!(part, Part::Text(_))) {
            return refused("is the same for every session");
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { parts })
    }

    /// Whether the id alone determines the key.
    #[must_use]
    pub fn needs_only_the_id(&self) -> bool {
        !self.parts.iter().any(|part| matches!(part, Part::Field(_)))
    }

    /// The key with this text for every placeholder.
    pub(super) fn key(&self, filling: &str) -> Vec<u8> {
        let each = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Id | Part::Field(_) => filling,
        });
        each.collect::<String>().into_bytes()
    }

    /// In the format of the script.
    pub(super) fn json(&self) -> Value {
        let each = self.parts.iter().map(|part| match part {
            Part::Text(text) => json!(["text", text]),
            Part::Id => json!(["id", ""]),
            Part::Field(name) => json!(["field", name]),
        });
        each.collect()
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Id => f.write_str(ID),
            Part::Field(name) => write!(f, "{FIELD}{name}}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_round_trip() {
        for template in [
            "session:{id}:refs",
            "alias:{field:broadcaster_id}",
            "{app}:{field:a}:{id}{field:b}",
            "{id}",
        ] {
            assert_eq!(KeyTemplate::parse(template).unwrap().to_string(), template);
        }
        let parsed = KeyTemplate::parse("{app}:{field:a b}:{id}x").unwrap();
        assert_eq!(parsed.key("Z"), b"{app}:Z:Zx");
        assert_eq!(
            parsed.json().to_string(),
            r#"[["text","{app}:"],["field","a b"],["text",":"],["id",""],["text","x"]]"#
        );
        assert!(!parsed.needs_only_the_id() && KeyTemplate::parse("r:{id}").unwrap().needs_only_the_id());
    }

    #[test]
    fn template_without_a_placeholder_is_rejected() {
        for bad in ["", "refs", "{ID}", "{field:}", "alias:{field:x", "{field", "{app}:refs"] {
            let error = KeyTemplate::parse(bad).unwrap_err().to_string();
            assert!(
                error.contains("{field:NAME}") && error.contains(&format!("{bad:?}")),
                "{error}"
            );
        }
    }
}
