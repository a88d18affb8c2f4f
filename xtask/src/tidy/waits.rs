//! Tests wait for events, not for a fixed time.

use super::code::{has_word, without_prose};
use super::{Finding, Tree};

/// The comment that a necessary sleep needs on its line or the one before: what it waits for.
const REASON: &str = "// tidy: waits on ";

/// Sleeps in tests. A fixed sleep is too long on a fast machine and too short on a busy one.
pub(super) fn sleeps(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let not_ours = |path: &str| path.starts_with("crates/") && !path.starts_with("crates/tenure-testkit/");
    for file in tree.rust().filter(|file| not_ours(&file.path)) {
        let plain = without_prose(&file.text);
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, code) in plain.lines().enumerate().skip(file.production_lines()) {
            let is_sleep = ["thread::sleep", "time::sleep", "time::sleep_until"]
                .iter()
                .any(|name| has_word(code, name));
            let has_reason = |line: &&str| line.contains(REASON);
            let is_explained =
                has_reason(&lines[index]) || index.checked_sub(1).is_some_and(|above| has_reason(&lines[above]));
            if is_sleep && !is_explained {
                let advice = format!("wait for an event (`tenure_testkit::wait`), or give the reason: `{REASON}…`");
                findings.push(Finding::new(file, index + 1, "sleep in a test", advice));
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
    fn unexplained_sleeps_in_tests_are_found() {
        let test = format!(
            "thread::sleep(x);\ntokio::time::sleep(x); {REASON}a deadline\n{REASON}a deadline\nstd::thread::sleep(x);\nclock.sleep(x);\n"
        );
        let found = sleeps(&tree(&[
            ("crates/a/tests/a.rs", &test),
            (
                "crates/a/src/a.rs",
                "tokio::time::sleep(x);\n#[cfg(test)]\nmod tests {\ntokio::time::sleep(x);\n}\n",
            ),
            ("crates/tenure-testkit/tests/a.rs", "thread::sleep(x);\n"),
        ]));
        assert_eq!(places(&found), ["crates/a/tests/a.rs:1", "crates/a/src/a.rs:4"]);
    }
}
