//! Log lines that a terminal can be shown: one line feed at the end, and no controls but colours of ours.
//!
//! The subscriber escapes some controls in some fields. So it makes no colours, and everything is escaped here.

use std::io::{self, Write};

use tenure_core::escape::{escaped, escaped_json};
use tracing_subscriber::fmt::MakeWriter;

use super::LogFormat;
use crate::style::{Tone, painted};

/// Makes writers of escaped lines. Each line arrives in one write.
pub(super) struct EscapedLog<W> {
    pub(super) out: W,
    pub(super) format: LogFormat,
    pub(super) in_colour: bool,
}

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for EscapedLog<W> {
    type Writer = EscapedLog<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        EscapedLog {
            out: self.out.make_writer(),
            format: self.format,
            in_colour: self.in_colour,
        }
    }
}

impl<W: Write> Write for EscapedLog<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let shown = match self.format {
            LogFormat::Text if self.in_colour => with_colour(&escaped(text)),
            LogFormat::Text => escaped(text).into_owned(),
            LogFormat::Json => escaped_json(text).into_owned(),
        };
        self.out.write_all(format!("{shown}\n").as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

const LEVELS: [(&str, Tone); 3] = [("ERROR", Tone::Bad), (" WARN", Tone::Warning), (" INFO", Tone::Good)];

/// Colours the level, which stands after the time.
fn with_colour(line: &str) -> String {
    let (time, rest) = line.split_once(' ').unwrap_or((line, ""));
    for (level, tone) in LEVELS {
        if let Some(rest) = rest.strip_prefix(level) {
            return format!("{time} {}{rest}", painted(tone, level));
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const FOREIGN: &str = "a\r\nINFO forged\t\x1b[2J\x1b[31m\x1b]52;c;eA==\x07\u{9b}2J\u{202e}\u{2028}\0";

    fn logged(format: LogFormat, in_colour: bool) -> String {
        let kept = Kept::default();
        let out = kept.clone();
        let out = EscapedLog {
            out: move || out.clone(),
            format,
            in_colour,
        };
        let layer = tracing_subscriber::fmt::layer().with_writer(out).with_ansi(false);
        let log = || {
            let error: &dyn std::error::Error = &io::Error::other(FOREIGN);
            tracing::warn!(shown = %FOREIGN, text = FOREIGN, debug = ?FOREIGN, error, "message {FOREIGN}");
        };
        let registry = tracing_subscriber::registry();
        match format {
            LogFormat::Text => tracing::subscriber::with_default(registry.with(layer), log),
            LogFormat::Json => {
                let layer = layer.json().flatten_event(true);
                tracing::subscriber::with_default(registry.with(layer), log);
            }
        }
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn foreign_text_adds_no_line_and_no_control_to_the_log() {
        for (format, in_colour) in [
            (LogFormat::Text, false),
            (LogFormat::Text, true),
            (LogFormat::Json, false),
        ] {
            let line = logged(format, in_colour);
            let (text, rest) = line.split_once('\n').expect("a line");
            assert_eq!(rest, "", "one line: {line:?}");
            let bare = text.replace("\x1b[33m", "").replace("\x1b[0m", "");
            assert_eq!(text != bare, in_colour, "{text:?}");
            assert!(bare.chars().all(tenure_core::escape::is_printable), "{bare:?}");
            assert!(text.contains("message a"), "{text}");
        }
        let json: serde_json::Value = serde_json::from_str(&logged(LogFormat::Json, false)).expect("JSON");
        assert_eq!(json["text"], FOREIGN);
    }
}
