//! Limits for the length of files, functions and names.

use super::code::{has_word, without_prose};
use super::{Finding, Tree};

const LOOK_TWICE_AT_LINES: usize = 400;
const MOST_LINES: usize = 800;
const LONG_FUNCTION: usize = 70;
const MOST_OF_A_FUNCTION: usize = 100;
const MOST_OF_A_NAME: usize = 60;

/// Production lines of a file, without the tests at its end: a note above 400, an error above 800.
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let lines = file.production_lines();
        let finding = |advice: &str| Finding::new(file, lines, "file size", format!("{lines} lines; {advice}"));
        if lines > MOST_LINES {
            findings.push(finding("split it by noun (at most 800)"));
        } else if lines > LOOK_TWICE_AT_LINES {
            findings.push(finding("consider splitting it").noted());
        }
    }
    findings
}

/// Lines of a function: a note above 70, an error above 100.
pub(super) fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for function in functions_of(&file.text) {
            let Function { name, line, lines } = function;
            let advice = |limit| format!("`{name}` has {lines} lines; split it into named parts (at most {limit})");
            if lines > MOST_OF_A_FUNCTION {
                findings.push(Finding::new(file, line, "function length", advice(MOST_OF_A_FUNCTION)));
            } else if lines > LONG_FUNCTION {
                findings.push(Finding::new(file, line, "function length", advice(LONG_FUNCTION)).noted());
            }
        }
    }
    findings
}

/// Characters of a function's name, mostly a test's: an error above 60.
pub(super) fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for Function { name, line, .. } in functions_of(&file.text) {
            let size = name.len();
            if size > MOST_OF_A_NAME {
                let advice = format!("`{name}` has {size} characters; name the behaviour in at most {MOST_OF_A_NAME}");
                findings.push(Finding::new(file, line, "function name", advice));
            }
        }
    }
    findings
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

fn functions_of(text: &str) -> Vec<Function> {
    let plain = without_prose(text);
    let mut functions = Vec::new();
    let mut start = 0;
    for (index, line) in plain.lines().enumerate() {
        if has_word(line, "fn")
            && let Some(at) = line.find("fn ")
            && let Some(lines) = lines_of_body(&plain[start + at..])
        {
            let name = line[at + 3..]
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default();
            functions.push(Function {
                name: name.to_owned(),
                line: index + 1,
                lines,
            });
        }
        start += line.len() + 1;
    }
    functions
}

/// The lines from a function's head to its closing brace; `None` without a body.
fn lines_of_body(from: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut parentheses = 0_usize;
    for (at, c) in from.char_indices() {
        match c {
            '(' | '[' => parentheses += 1,
            ')' | ']' => parentheses = parentheses.saturating_sub(1),
            ';' if depth == 0 && parentheses == 0 => return None,
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(from[..=at].lines().count());
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, tree};

    #[test]
    fn long_files_are_listed_and_longer_ones_refused() {
        let tests = format!(
            "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
            "x\n".repeat(400),
            "x\n".repeat(900)
        );
        let found = files(&tree(&[
            ("crates/a/src/fine.rs", &tests),
            ("crates/a/src/long.rs", &"x\n".repeat(401)),
            ("crates/a/src/longer.rs", &"x\n".repeat(801)),
            ("crates/a/tests/longest.rs", &"x\n".repeat(2000)),
        ]));
        assert_eq!(
            places(&found),
            ["crates/a/src/long.rs:401", "crates/a/src/longer.rs:801"]
        );
        assert_eq!(
            found.iter().map(|finding| finding.is_note).collect::<Vec<_>>(),
            [true, false]
        );
    }

    #[test]
    fn long_functions_are_listed_and_longer_ones_refused() {
        let function =
            |name: &str, body: usize| format!("fn {name}(x: [u8; 2]) {{\n{}}}\n", "    \"}\";\n".repeat(body));
        let text = format!(
            "{}{}{}fn head();\n",
            function("fine", 68),
            function("long", 69),
            function("longer", 99)
        );
        let found = functions(&tree(&[("crates/a/src/a.rs", &text)]));
        assert_eq!(places(&found), ["crates/a/src/a.rs:71", "crates/a/src/a.rs:142"]);
        assert!(
            found[0].is_note && found[0].advice.contains("`long` has 71 lines"),
            "{}",
            found[0]
        );
        assert!(
            !found[1].is_note && found[1].advice.contains("`longer` has 101 lines"),
            "{}",
            found[1]
        );
    }

    #[test]
    fn names_above_60_characters_are_refused() {
        let text = format!(
            "#[test]\nfn {}() {{}}\n#[test]\nasync fn {}() {{}}\n",
            "x".repeat(60),
            "y".repeat(61)
        );
        let found = names(&tree(&[("crates/a/tests/a.rs", &text)]));
        assert_eq!(places(&found), ["crates/a/tests/a.rs:4"]);
        assert!(found[0].advice.contains("has 61 characters"), "{}", found[0]);
    }
}
