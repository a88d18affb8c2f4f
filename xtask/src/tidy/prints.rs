//! The command line prints in one place, which escapes text of others.

use super::code::{has_word, without_prose};
use super::{Finding, Tree};

const COMMANDS: &str = "crates/tenure-cli/src/";
/// The files that escape what they print, or ask only whether there is a terminal; the manual is text of ours.
const PRINTERS: &[&str] = &[
    "output.rs",
    "logging.rs",
    "progress.rs",
    "style.rs",
    "man.rs",
    "cli/foreign.rs",
];

/// Commands that write to stdout or stderr by themselves.
pub(super) fn unescaped(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let command = file.path.strip_prefix(COMMANDS);
        if command.is_none_or(|command| PRINTERS.contains(&command)) {
            continue;
        }
        let plain = without_prose(&file.text);
        for (index, code) in plain.lines().enumerate().take(file.production_lines()) {
            let writes = ["stdout", "stderr", "print!", "println!", "eprint!", "eprintln!"];
            // A field of a child's output has no parentheses.
            let is_call =
                |name: &str| has_word(code, name) && (name.ends_with('!') || code.contains(&format!("{name}()")));
            if writes.into_iter().any(is_call) {
                let advice = "print through `output` or `exit::say`, which escape text of others";
                findings.push(Finding::new(file, index + 1, "output that is not escaped", advice));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, tree};

    #[test]
    fn output_beside_the_printers_is_found() {
        let found = unescaped(&tree(&[
            (
                "crates/tenure-cli/src/new.rs",
                "line(x)?;\nwriteln!(io::stdout(), x);\nprintln!(x);\nchild.stderr.take();\n",
            ),
            ("crates/tenure-cli/src/output.rs", "writeln!(io::stdout(), x);\n"),
            ("crates/tenure-bench/src/main.rs", "println!(x);\n"),
        ]));
        assert_eq!(
            places(&found),
            ["crates/tenure-cli/src/new.rs:2", "crates/tenure-cli/src/new.rs:3"]
        );
    }
}
