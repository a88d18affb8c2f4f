//! Text of others is printed without the controls in it, by every command.

mod adopted;
mod refused;
mod stored;

use std::process::Command;

use serde_json::Value;

use crate::support::{Ran, run};

/// A screen that is cleared, a clipboard that is written, a line that is forged, a text that is turned around.
const FOREIGN: &str = "x\u{1b}[2J\u{1b}]52;c;eA==\u{7}\rFORGED\nFORGED\u{202e}\u{2028}FORGED\u{9b}31m\u{61c}\u{7f}\0";
/// The same without C0, for names that refuse those.
const INVISIBLE: &str = "x\u{202e}\u{2028}\u{2066}\u{61c}y";

/// The codes of our own colours.
const COLOURS: [&str; 6] = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"];

fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks that an output has no control but line feeds of ours, and our colours if there may be any.
#[track_caller]
fn is_clean(what: &str, output: &str, in_colour: bool) {
    let mut bare = output.to_owned();
    for code in COLOURS.iter().filter(|_| in_colour) {
        bare = bare.replace(code, "");
    }
    for line in bare.split('\n') {
        assert!(!line.contains(is_control), "{what}: {line:?} in {output:?}");
        assert!(
            !line.trim_start().starts_with("FORGED"),
            "{what}: a forged line in {output:?}"
        );
    }
}

/// Runs a command plain and in colour. Both must be clean; returns what the plain one printed.
#[track_caller]
fn clean(command: impl Fn() -> Command) -> Ran {
    let ran = [false, true].map(|in_colour| {
        let mut command = command();
        command
            .env_remove("NO_COLOR")
            .env("CLICOLOR_FORCE", if in_colour { "1" } else { "0" });
        let what = format!("{:?}", command.get_args().collect::<Vec<_>>());
        let ran = run(command);
        is_clean(&what, &ran.out, in_colour);
        is_clean(&what, &ran.err, in_colour);
        ran
    });
    let [plain, _] = ran;
    plain
}

/// Whether a JSON value has this text somewhere.
fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(one) => one == text,
        Value::Array(items) => items.iter().any(|item| has_text(item, text)),
        Value::Object(fields) => fields.iter().any(|(name, value)| name == text || has_text(value, text)),
        _ => false,
    }
}
