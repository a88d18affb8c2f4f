//! Colour where a terminal shows it, and plain text everywhere else.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use clap::ColorChoice;
use clap::builder::styling::{AnsiColor, Style, Styles};
use tenure_core::escape::Escaped;

/// `--color`, once it was read.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// The meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Title,
    Good,
    Warning,
    Bad,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Title => Style::new().bold(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
        }
    }
}

/// The colours of help and usage errors.
pub(crate) const HELP: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Takes `--color` for all that this process prints.
pub(crate) fn choose(choice: ColorChoice) {
    // A command line is read once.
    let _ = CHOICE.set(choice);
}

/// Whether stdout gets colours.
pub(crate) fn on_stdout() -> bool {
    is_coloured(io::stdout().is_terminal())
}

/// Whether stderr gets colours.
pub(crate) fn on_stderr() -> bool {
    is_coloured(io::stderr().is_terminal())
}

fn is_coloured(is_terminal: bool) -> bool {
    let variable = |name: &str| std::env::var(name).ok();
    decide(
        CHOICE.get().copied().unwrap_or(ColorChoice::Auto),
        is_terminal,
        &variable,
    )
}

/// `--color` decides, then `NO_COLOR`, then `CLICOLOR_FORCE`, then the terminal.
fn decide(choice: ColorChoice, is_terminal: bool, variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set("NO_COLOR") => false,
        ColorChoice::Auto if variable("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0") => true,
        ColorChoice::Auto => is_terminal && variable("TERM").is_none_or(|term| term != "dumb"),
    }
}

/// A line in parts. Their texts are escaped, and the colours of their tones are the only controls in it.
#[derive(Debug)]
pub(crate) struct Line {
    in_colour: bool,
    shown: String,
}

impl Line {
    /// A line for stdout.
    pub(crate) fn on_stdout() -> Self {
        let (in_colour, shown) = (on_stdout(), String::new());
        Self { in_colour, shown }
    }

    /// A line for stderr.
    pub(crate) fn on_stderr() -> Self {
        let (in_colour, shown) = (on_stderr(), String::new());
        Self { in_colour, shown }
    }

    /// Adds a text.
    pub(crate) fn text(self, text: impl fmt::Display) -> Self {
        self.toned(None, text)
    }

    /// Adds a text in its tone.
    pub(crate) fn toned(mut self, tone: Option<Tone>, text: impl fmt::Display) -> Self {
        match tone.filter(|_| self.in_colour) {
            Some(tone) => self.shown.push_str(&painted(tone, text)),
            None => self.shown.push_str(&Escaped(text).to_string()),
        }
        self
    }

    /// The line as it is printed.
    pub(crate) fn as_str(&self) -> &str {
        self.shown.trim_end()
    }
}

/// A text in its tone, wherever it is printed.
pub(crate) fn painted(tone: Tone, text: impl fmt::Display) -> String {
    let (style, text) = (tone.style(), Escaped(text));
    format!("{style}{text}{style:#}")
}

/// The tone of a value in a column of a table, by the column's name.
pub(crate) fn tone_of(column: &str, value: &str) -> Option<Tone> {
    use Tone::{Bad, Good, Warning};
    Some(match (column, value) {
        ("alive" | "reachable", "yes") | ("severity", "ok") => Good,
        ("alive" | "reachable", "no") | ("severity", "ERROR") | ("braked", "yes") => Bad,
        ("severity", "warning") | ("paused", "yes") => Warning,
        ("brake", value) if value != "-" => Bad,
        ("panics" | "failures", value) if value != "0" => Warning,
        ("last error", value) if value != "-" => Warning,
        ("settled", value) if value.starts_with("no:") => Warning,
        ("state", value) if value.starts_with("unsettled") => Warning,
        ("state", "orphan") => Bad,
        ("state", "disconnected" | "deactivated") => Warning,
        ("outcome", "granted" | "kept" | "new" | "released") => Good,
        ("outcome", "unsettled" | "reserved") => Warning,
        ("outcome", value) if value.starts_with("moved") => Warning,
        ("outcome", value) if value.starts_with("held") || value == "not owner" => Bad,
        ("type", "joined" | "lease_granted" | "session_resumed" | "group_settled" | "sweep_unbraked") => Good,
        ("type", "lapsed" | "expelled" | "no_progress" | "superseded" | "sweep_braked" | "group_unsettled") => Bad,
        ("type", "evicted" | "lease_taken_over" | "lease_revoked" | "session_reaped" | "session_disconnected") => {
            Warning
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_beats_variables_and_variables_beat_the_terminal() {
        let with = |choice, is_terminal, given: &[(&str, &str)]| {
            let variable = |name: &str| {
                given
                    .iter()
                    .find(|(one, _)| *one == name)
                    .map(|(_, value)| (*value).to_owned())
            };
            decide(choice, is_terminal, &variable)
        };
        let auto = ColorChoice::Auto;
        assert!(with(auto, true, &[]) && !with(auto, false, &[]));
        assert!(!with(auto, true, &[("TERM", "dumb")]));
        assert!(!with(auto, true, &[("NO_COLOR", "1")]) && with(auto, true, &[("NO_COLOR", "")]));
        assert!(with(auto, false, &[("CLICOLOR_FORCE", "1")]) && !with(auto, false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!with(auto, false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
        assert!(with(ColorChoice::Always, false, &[("NO_COLOR", "1")]));
        assert!(!with(ColorChoice::Never, true, &[("CLICOLOR_FORCE", "1")]));
    }

    #[test]
    fn a_painted_text_ends_with_the_end_of_its_colour() {
        assert_eq!(painted(Tone::Good, "ok\x1b[0m"), "\x1b[32mok\\x1b[0m\x1b[0m");
    }
}
