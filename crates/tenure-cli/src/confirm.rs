//! Asking before an act that cannot be undone.

use std::io::{self, BufRead, IsTerminal};

use crate::exit::{Usage, say};

/// Asks a yes-or-no question on the terminal. Anything but `y` or `yes` is a no.
///
/// # Errors
/// `Usage` with `without_terminal` when stdin is not a terminal.
pub(crate) fn confirm(question: &str, without_terminal: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Usage::new(without_terminal).into());
    }
    say(format_args!("{question} [y/N]"));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
