//! Typed reading of replies: an element of the wrong type is an error, never a guess.

use redis::Value;
use tenure_core::time::StoreTime;

/// A reply with an unexpected shape. The connection it came over must not be trusted any longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a reply of the wrong shape: {0}")]
pub struct Malformed(pub String);

/// The result of reading a reply.
pub type Read<T> = Result<T, Malformed>;

/// Reads the elements of a reply in order.
#[derive(Debug)]
pub struct Reader {
    values: std::vec::IntoIter<Value>,
}

impl Reader {
    /// A reader of one value.
    pub(crate) fn of(value: Value) -> Self {
        Self {
            values: vec![value].into_iter(),
        }
    }

    /// A reader of an array's elements.
    ///
    /// # Errors
    /// When it is not an array.
    pub(crate) fn new(value: Value) -> Read<Self> {
        match value {
            Value::Array(values) | Value::Set(values) => Ok(Self {
                values: values.into_iter(),
            }),
            other => Err(unexpected("an array", &other)),
        }
    }

    /// The next element, unparsed.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn value(&mut self) -> Read<Value> {
        self.values.next().ok_or_else(|| Malformed("it ends early".to_owned()))
    }

    /// How many elements are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.values.len()
    }

    /// The next element as a nested array.
    ///
    /// # Errors
    /// When it is something else.
    pub fn array(&mut self) -> Read<Reader> {
        Reader::new(self.value()?)
    }

    /// The next element as bytes. `None` for nil.
    ///
    /// # Errors
    /// When it is something else.
    pub fn maybe_bytes(&mut self) -> Read<Option<Vec<u8>>> {
        match self.value()? {
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(Some(text.into_bytes())),
            Value::Okay => Ok(Some(b"OK".to_vec())),
            // A script's false and a missing field.
            Value::Nil | Value::Boolean(false) => Ok(None),
            other => Err(unexpected("a string", &other)),
        }
    }

    /// The next element as text. `None` for nil.
    ///
    /// # Errors
    /// When it is something else.
    pub fn maybe_text(&mut self) -> Read<Option<String>> {
        self.maybe_bytes()?
            .map(|bytes| String::from_utf8(bytes).map_err(|_| Malformed("text that is not UTF-8".to_owned())))
            .transpose()
    }

    /// The next element as text.
    ///
    /// # Errors
    /// When it is something else.
    pub fn text(&mut self) -> Read<String> {
        self.maybe_text()?
            .ok_or_else(|| Malformed("nothing in place of a string".to_owned()))
    }

    /// The next element as a non-negative integer, or text that spells one.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number(&mut self) -> Read<u64> {
        self.maybe_number()?
            .ok_or_else(|| Malformed("nothing in place of a number".to_owned()))
    }

    /// Like [`Reader::number`]; `None` for nil.
    ///
    /// # Errors
    /// When it is something else.
    pub(crate) fn maybe_number(&mut self) -> Read<Option<u64>> {
        match self.value()? {
            Value::Int(number) => u64::try_from(number)
                .map(Some)
                .map_err(|_| Malformed(format!("the number {number}"))),
            Value::BulkString(bytes) => std::str::from_utf8(&bytes)
                .ok()
                .and_then(|text| text.parse().ok())
                .map(Some)
                .ok_or_else(|| Malformed("a string in place of a number".to_owned())),
            Value::Nil | Value::Boolean(false) => Ok(None),
            other => Err(unexpected("a number", &other)),
        }
    }

    /// The next element as an integer of either sign.
    ///
    /// # Errors
    /// When it is something else.
    pub fn integer(&mut self) -> Read<i64> {
        match self.value()? {
            Value::Int(number) => Ok(number),
            other => Err(unexpected("a number", &other)),
        }
    }

    /// The next element as a time in µs.
    ///
    /// # Errors
    /// When it is something else.
    pub(crate) fn time(&mut self) -> Read<StoreTime> {
        self.number().map(StoreTime::from_micros)
    }

    /// The next element as text with invalid UTF-8 replaced: for data of other programs, where one invalid name must
    /// not fail the whole reply. `None` for nil.
    ///
    /// # Errors
    /// When it is something else.
    pub(crate) fn maybe_lossy_text(&mut self) -> Read<Option<String>> {
        let bytes = self.maybe_bytes()?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Like [`Reader::maybe_lossy_text`], but nil is an error.
    ///
    /// # Errors
    /// When it is something else.
    pub(crate) fn lossy_text(&mut self) -> Read<String> {
        self.maybe_lossy_text()?
            .ok_or_else(|| Malformed("nothing in place of a string".to_owned()))
    }

    /// All remaining elements as bytes.
    ///
    /// # Errors
    /// When one is something else.
    pub fn all_bytes(mut self) -> Read<Vec<Vec<u8>>> {
        let mut all = Vec::with_capacity(self.left());
        while self.left() > 0 {
            all.push(self.maybe_bytes()?.unwrap_or_default());
        }
        Ok(all)
    }

    /// All remaining elements as text.
    ///
    /// # Errors
    /// When one is something else.
    pub(crate) fn texts(mut self) -> Read<Vec<String>> {
        let mut texts = Vec::with_capacity(self.left());
        while self.left() > 0 {
            texts.push(self.text()?);
        }
        Ok(texts)
    }
}

/// Parses text that only Tenure's scripts write.
///
/// # Errors
/// When it does not parse.
pub(crate) fn parse<T: std::str::FromStr>(what: &str, text: &str) -> Read<T> {
    text.parse().map_err(|_| {
        Malformed(format!(
            "{:?} in place of {what}",
            text.chars().take(80).collect::<String>()
        ))
    })
}

fn unexpected(wanted: &str, found: &Value) -> Malformed {
    let found = match found {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a string",
        Value::Array(_) => "an array",
        Value::ServerError(_) => "an error",
        _ => "something else",
    };
    Malformed(format!("{found} in place of {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(values: Vec<Value>) -> Reader {
        Reader::new(Value::Array(values)).unwrap()
    }

    #[test]
    fn elements_are_read_in_order_by_type() {
        let mut reply = reader(vec![
            Value::Int(7),
            Value::BulkString(b"8".to_vec()),
            Value::Nil,
            Value::BulkString(b"x".to_vec()),
        ]);
        assert_eq!(
            (reply.number(), reply.number(), reply.maybe_text(), reply.text()),
            (Ok(7), Ok(8), Ok(None), Ok("x".into()))
        );
        assert!(reply.value().unwrap_err().to_string().contains("ends early"));
    }

    #[test]
    fn mismatched_elements_are_errors() {
        assert!(Reader::new(Value::Int(1)).is_err());
        assert!(reader(vec![Value::Int(-1)]).number().is_err());
        assert!(reader(vec![Value::BulkString(b"1e3".to_vec())]).number().is_err());
        assert!(reader(vec![Value::BulkString(vec![0xff])]).text().is_err());
        assert!(reader(vec![Value::Nil]).text().is_err());
        assert!(reader(vec![Value::Int(1)]).array().is_err());
        assert!(reader(vec![Value::Array(vec![])]).maybe_bytes().is_err());
    }

    #[test]
    fn lossy_text_replaces_invalid_utf8() {
        let values = || vec![Value::BulkString(vec![b'a', 0xff]), Value::BulkString(b"b".to_vec())];
        let mut reply = reader(values());
        assert_eq!(
            (reply.lossy_text(), reply.lossy_text()),
            (Ok("a\u{fffd}".to_owned()), Ok("b".to_owned()))
        );
        assert_eq!(reader(values()).all_bytes(), Ok(vec![vec![b'a', 0xff], b"b".to_vec()]));
        assert_eq!(reader(vec![Value::Nil]).maybe_lossy_text(), Ok(None));
    }

    #[test]
    fn numbers_up_to_2_pow_53_are_exact() {
        for number in [9_007_199_254_740_991_u64, 1_763_676_800_000_001] {
            assert_eq!(reader(vec![Value::Int(number.cast_signed())]).number(), Ok(number));
            assert_eq!(
                reader(vec![Value::BulkString(number.to_string().into_bytes())]).number(),
                Ok(number)
            );
        }
    }
}
