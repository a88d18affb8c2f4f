//! Text of other programs, made safe to print: labels, reasons, foreign keys, and the words of a server.
//!
//! A terminal obeys control characters, and a line feed in a label forges a line of output. Every output of text for
//! people passes through this module.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// The most characters of a server's words in an error.
const MAX_WORDS: usize = 400;

/// Whether a character is printed as it is. Not printed are control characters (C0, DEL, C1), line and paragraph
/// separators, controls of the text direction, and invisible characters that make two texts look the same. The joiners
/// of emoji and of several scripts are printed.
#[must_use]
pub fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        _ if c.is_control() => false,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' => false,
        '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' => false,
        '\u{e0000}'..='\u{e007f}' => false,
        _ => true,
    }
}

/// A value whose text is escaped when it is displayed: `\n`, `\r`, `\t`, `\x1b`, `\u{202e}`. A backslash stays one.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Escapes on the way to another writer.
struct Escaping<W>(W);

impl<W: fmt::Write> fmt::Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| !is_printable(*c)) {
            self.0.write_str(rest.get(..at).unwrap_or_default())?;
            match c {
                '\n' => self.0.write_str("\\n")?,
                '\r' => self.0.write_str("\\r")?,
                '\t' => self.0.write_str("\\t")?,
                c if c.is_ascii() => write!(self.0, "\\x{:02x}", u32::from(c))?,
                c => write!(self.0, "\\u{{{:x}}}", u32::from(c))?,
            }
            rest = rest.get(at + c.len_utf8()..).unwrap_or_default();
        }
        self.0.write_str(rest)
    }
}

/// The text, with every character that must not be printed as its escape.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(Escaped(text).to_string())
}

/// A JSON document in which the characters that must not be printed are JSON escapes. The document means the same:
/// outside of strings JSON has no such characters but white space.
#[must_use]
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_fine = |c: char| is_printable(c) || matches!(c, '\n' | '\r' | '\t');
    if json.chars().all(is_fine) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_fine(c) {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(text)
}

/// The words of a server for an error: on one line, escaped, and not longer than a few lines of a terminal.
#[must_use]
pub fn server_words(words: &str) -> String {
    let one_line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = one_line.chars().take(MAX_WORDS).collect();
    if shown.len() < one_line.len() {
        shown.push('…');
    }
    escaped(&shown).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_escaped() {
        for (text, shown) in [
            ("plain, ünïcode, 你好 and \\n", "plain, ünïcode, 你好 and \\n"),
            ("👩\u{200d}💻 می\u{200c}خواهم", "👩\u{200d}💻 می\u{200c}خواهم"),
            ("\x1b[2J", "\\x1b[2J"),
            ("\x1b]52;c;eA==\x07", "\\x1b]52;c;eA==\\x07"),
            ("a\r\nb\tc\0", "a\\r\\nb\\tc\\x00"),
            ("\u{7f}\u{85}\u{9b}", "\\x7f\\u{85}\\u{9b}"),
            ("\u{202e}\u{2028}\u{2029}", "\\u{202e}\\u{2028}\\u{2029}"),
            ("\u{61c}\u{2066}\u{feff}", "\\u{61c}\\u{2066}\\u{feff}"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(escaped(text), shown);
            assert_eq!(Escaped(text).to_string(), shown);
            assert!(shown.chars().all(is_printable));
        }
    }

    #[test]
    fn escaped_json_means_the_same() {
        for text in ["\u{9b}\u{202e}\u{e0041}\u{7f}", "\x1b\r\n\u{2028}", "plain \\ \" ü"] {
            for json in [
                serde_json::to_string(text).unwrap(),
                serde_json::to_string_pretty(&[text]).unwrap(),
            ] {
                let shown = escaped_json(&json);
                assert!(shown.chars().all(|c| is_printable(c) || c == '\n'), "{shown}");
                let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
                assert_eq!(read(&shown), read(&json));
            }
        }
    }

    #[test]
    fn words_of_a_server_are_one_short_line() {
        assert_eq!(
            server_words("ERROR: no\nDETAIL:  \x1b[2J it "),
            "ERROR: no DETAIL: \\x1b[2J it"
        );
        let long = server_words(&"word ".repeat(1_000));
        assert_eq!(long.chars().count(), MAX_WORDS + 1);
        assert!(long.ends_with('…'));
    }
}
