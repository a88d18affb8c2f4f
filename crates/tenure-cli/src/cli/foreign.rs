//! Values of the command line and of variables in usage errors and in help.

use std::env::{args_os, var_os, vars_os};
use std::ffi::OsStr;
use std::io::Write;
use std::process::exit;

use clap::Command;
use clap::error::ContextValue;
use tenure_core::escape::{escaped, is_printable};

fn is_clean(text: &OsStr) -> bool {
    text.to_str().is_some_and(|text| text.chars().all(is_printable))
}

/// Leaves variables out of the help whose value a terminal would obey.
pub(super) fn hide_values(command: Command) -> Command {
    let command = command.mut_subcommands(hide_values);
    command.mut_args(|arg| {
        let is_foul = arg.get_env().and_then(var_os).is_some_and(|value| !is_clean(&value));
        if is_foul { arg.hide_env_values(true) } else { arg }
    })
}

/// Prints a usage error, or the help, and ends the process. Beside a value that has to be escaped there are no colours.
pub(super) fn end(mut error: clap::Error) -> ! {
    let mut variables = vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TENURE_"));
    if args_os().all(|arg| is_clean(&arg)) && variables.all(|(_, value)| is_clean(&value)) {
        error.exit();
    }
    let texts: Vec<_> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => Some((kind, escaped(text).into_owned())),
            _ => None,
        })
        .collect();
    for (kind, text) in texts {
        error.insert(kind, ContextValue::String(text));
    }
    let text = error.render().to_string();
    let text: Vec<_> = text.lines().map(escaped).collect();
    let text = text.join("\n");
    // Nothing can be done when that fails.
    let _ = if error.use_stderr() {
        writeln!(std::io::stderr(), "{text}")
    } else {
        writeln!(std::io::stdout(), "{text}")
    };
    exit(error.exit_code());
}
