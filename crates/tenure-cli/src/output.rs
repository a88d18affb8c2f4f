//! What commands print on stdout: a table for people, JSON for programs.
//!
//! Every command prints through this module or [`say`](crate::exit::say). Both escape what a terminal would obey, so that a
//! label or a foreign key cannot forge a line; colours are added after that.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use tenure_core::escape::{Escaped, escaped, escaped_json};

use crate::style::{self, Line, Tone, painted, tone_of};

/// Prints one JSON document, on several lines.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<()> {
    verbatim(&escaped_json(&serde_json::to_string_pretty(document)?))
}

/// Prints a JSON document as one line, for streams.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn json_line(document: &impl Serialize) -> anyhow::Result<()> {
    verbatim(&escaped_json(&serde_json::to_string(document)?))
}

/// Prints a line. A line feed in it is escaped, too.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn line(text: impl fmt::Display) -> anyhow::Result<()> {
    verbatim(&Escaped(text).to_string())
}

/// Prints a line with colours.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn coloured(line: &Line) -> anyhow::Result<()> {
    verbatim(line.as_str())
}

/// Prints text of several lines. Only for text in which a line feed is ours.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn lines(text: &str) -> anyhow::Result<()> {
    let escaped: Vec<_> = text.lines().map(escaped).collect();
    verbatim(&escaped.join("\n"))
}

/// Prints text as it is: a script, or text that is escaped already.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn verbatim(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Prints a table without frames, so that `awk` and people read the same thing; nothing but the header when there are
/// no rows. On a terminal the header is bold, and values that need attention have a colour.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> anyhow::Result<()> {
    let rows: Vec<_> = rows
        .into_iter()
        .map(|row| row.map(|cell| escaped(&cell).into_owned()))
        .collect();
    let lines = render(header, &rows);
    if !style::on_stdout() {
        return verbatim(&lines.join("\n"));
    }
    verbatim(&in_colour(header, &rows, &lines).join("\n"))
}

fn render<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    let mut table = Table::new();
    // Lines are never wrapped: a row is a line, whatever the width of the terminal.
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.map(str::to_uppercase));
    table.add_rows(rows.iter().map(|row| row.as_slice()));
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// The lines of a table with the tones of their values.
fn in_colour<const N: usize>(header: [&str; N], rows: &[[String; N]], lines: &[String]) -> Vec<String> {
    let Some((title, body)) = lines.split_first() else {
        return Vec::new();
    };
    let body = body
        .iter()
        .zip(rows)
        .map(|(line, row)| coloured_line(&header, row, line));
    std::iter::once(painted(Tone::Title, title)).chain(body).collect()
}

/// A value stands behind the one before it, with only spaces between.
fn coloured_line<const N: usize>(header: &[&str; N], row: &[String; N], line: &str) -> String {
    let (mut shown, mut rest) = (String::new(), line);
    for (column, value) in header.iter().zip(row.iter().map(|value| value.trim())) {
        let Some((gap, behind)) = rest.split_once(value) else {
            break;
        };
        shown.push_str(gap);
        match tone_of(column, value) {
            Some(tone) => shown.push_str(&painted(tone, value)),
            None => shown.push_str(value),
        }
        rest = behind;
    }
    shown + rest
}

/// A duration for people: about two digits that matter, `870ms`, `12s`, `3m05s`, `2h10m`.
pub(crate) fn brief(duration: Duration) -> String {
    let (seconds, ms) = (duration.as_secs(), duration.subsec_millis());
    match seconds {
        0 => format!("{ms}ms"),
        1..=9 => format!("{seconds}.{}s", ms / 100),
        10..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A value that may be missing.
pub(crate) fn or_dash(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A yes or no.
pub(crate) fn yes_no(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// Pairs as `a=1, b=2`, or a dash.
pub(crate) fn pairs<'a, V: fmt::Display + 'a>(pairs: impl IntoIterator<Item = (&'a String, V)>) -> String {
    let shown: Vec<_> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if shown.is_empty() {
        "-".to_owned()
    } else {
        shown.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_lines_of_columns_without_frames() {
        let rows = vec![
            ["a".to_owned(), "1".to_owned()],
            ["longer".to_owned(), "x y".to_owned()],
        ];
        let rendered = |rows: &[[String; 2]]| render(["name", "value"], rows).join("\n");
        assert_eq!(rendered(&rows), "NAME    VALUE\na       1\nlonger  x y");
        assert_eq!(rendered(&[]), "NAME  VALUE");
    }

    #[test]
    fn colours_change_no_character_of_a_table() {
        let rows = vec![
            ["no".to_owned(), "no".to_owned(), String::new()],
            ["b".to_owned(), "yes".to_owned(), "x y".to_owned()],
        ];
        let header = ["member", "alive", "labels"];
        let lines = render(header, &rows);
        let shown = in_colour(header, &rows, &lines);
        assert_eq!(shown[1], "no      \x1b[1m\x1b[31mno\x1b[0m");
        assert_eq!(shown[2], "b       \x1b[32myes\x1b[0m    x y");
        let plain: Vec<_> = shown.iter().map(|line| strip(line)).collect();
        assert_eq!(plain, lines);
    }

    /// A line without the codes of colours.
    fn strip(line: &str) -> String {
        let mut parts = line.split("\x1b[");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |plain, part| {
            plain + part.split_once('m').map_or(part, |(_, text)| text)
        })
    }

    #[test]
    fn durations_show_what_matters() {
        for (ms, shown) in [
            (0, "0ms"),
            (870, "870ms"),
            (9_940, "9.9s"),
            (12_900, "12s"),
            (185_000, "3m05s"),
            (7_800_000, "2h10m"),
            (90_000_000, "1d01h"),
        ] {
            assert_eq!(brief(Duration::from_millis(ms)), shown);
        }
    }
}
