//! Ids in JSON values: the text of a string, and of a number what every spelling of it has in common.
//!
//! Numbers are compared as text: a parsed one has lost its spelling, and above 64 bits its digits.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

/// The most digits that an exponent may make.
const MOST_DIGITS: usize = 64;

/// The string or number at a JSON pointer.
pub(super) fn id_at(json: &[u8], pointer: &str) -> Option<String> {
    let mut value: &RawValue = serde_json::from_slice(json).ok()?;
    for step in pointer.split('/').skip(1) {
        let name = step.replace("~1", "/").replace("~0", "~");
        value = child(value, &name)?;
    }
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok(),
        b'-' | b'0'..=b'9' => Some(integer(text).unwrap_or_else(|| text.to_owned())),
        _ => None,
    }
}

fn child<'a>(value: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let text = value.get();
    match text.as_bytes().first()? {
        b'{' => {
            let fields: HashMap<Cow<'a, str>, &'a RawValue> = serde_json::from_str(text).ok()?;
            fields.get(name).copied()
        }
        b'[' => {
            let items: Vec<&'a RawValue> = serde_json::from_str(text).ok()?;
            items.get(name.parse::<usize>().ok()?).copied()
        }
        _ => None,
    }
}

/// Whether a text is an integer as JSON writes it.
pub(super) fn is_integer(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// The integer that a number of JSON is, without an exponent and a fraction of zeros.
fn integer(number: &str) -> Option<String> {
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).ok()? + i64::from(exponent);
    let point = usize::try_from(point)
        .ok()
        .filter(|point| *point <= MOST_DIGITS.max(whole.len()))?;
    let integer: String = digits.chars().chain(std::iter::repeat('0')).take(point).collect();
    let has_fraction = digits.chars().skip(point).any(|digit| digit != '0');
    let integer = integer.trim_start_matches('0');
    match integer {
        _ if has_fraction => None,
        "" => Some("0".to_owned()),
        integer => Some(format!("{sign}{integer}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_text_in_all_spellings() {
        for (number, text) in [
            ("17", "17"),
            ("17.0", "17"),
            ("17.000", "17"),
            ("1.7e1", "17"),
            ("1.7E+1", "17"),
            ("170e-1", "17"),
            ("-17.0", "-17"),
            ("0", "0"),
            ("-0.0", "0"),
            ("0.0e5", "0"),
            ("1e3", "1000"),
            ("12345678901234567890123", "12345678901234567890123"),
        ] {
            assert_eq!(integer(number).as_deref(), Some(text), "{number}");
        }
        for number in ["1.5", "1.50", "1e-1", "1e400", "0.1e0"] {
            assert_eq!(integer(number), None, "{number}");
        }
    }

    #[test]
    fn pointer_leads_to_strings_and_numbers() {
        let json = r#"{"a":{"b/c":["x",{"~":"y \u00e4"}]},"n":18446744073709551616,"t":true,"f":1.50}"#;
        for (pointer, id) in [
            ("/a/b~1c/0", Some("x")),
            ("/a/b~1c/1/~0", Some("y ä")),
            ("/a/b~1c/2", None),
            ("/a/b~1c/x", None),
            ("/n", Some("18446744073709551616")),
            ("/f", Some("1.50")),
            ("/t", None),
            ("/a", None),
            ("/n/x", None),
            ("/nothing", None),
        ] {
            assert_eq!(id_at(json.as_bytes(), pointer).as_deref(), id, "{pointer}");
        }
        assert_eq!(id_at(b"{\"a\":1} x", "/a"), None);
    }
}
