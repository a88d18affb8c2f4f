//! What commands print on stdout: a table for people, JSON for programs.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::style::{self, Tone, painted, tone_of};

/// Prints one JSON document, on several lines.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document)?;
    writeln!(out)?;
    Ok(())
}

/// Prints a JSON document as one line, for streams.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn json_line(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, document)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Prints a line.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn line(text: impl fmt::Display) -> anyhow::Result<()> {
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
    let lines = render(header, &rows);
    if !style::on_stdout() {
        return line(lines.join("\n"));
    }
    line(coloured(header, &rows, &lines).join("\n"))
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

/// The lines of a table with the tones of their values. A table with values of several lines stays as it is.
fn coloured<const N: usize>(header: [&str; N], rows: &[[String; N]], lines: &[String]) -> Vec<String> {
    let Some((title, body)) = lines.split_first().filter(|(_, body)| body.len() == rows.len()) else {
        return lines.to_vec();
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
        let shown = coloured(header, &rows, &lines);
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
