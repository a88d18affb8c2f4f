//! Plain English in comments and documents: counts words that mark a sentence as translated.
//!
//! A count is a symptom, so a few hits are fine. The limit is for the whole project.

use std::collections::BTreeMap;

use super::code::comments;
use super::{File, Finding, Tree};

const RULE: &str = "plain English";

/// The words and phrases, all in lower case.
const PHRASES: &[&str] = &[
    "anew",
    "anybody",
    "are no",
    "are told",
    "at once",
    "by itself",
    "by themselves",
    "came to",
    "goes by",
    "goes on",
    "has to",
    "have to",
    "is heard of",
    "is no",
    "is to be",
    "is told",
    "let go",
    "lets go",
    "meanwhile",
    "no more",
    "nobody",
    "somebody",
    "stand still",
    "stands still",
    "tells",
    "that there is not",
    "those who",
    "what became of",
    "whoever",
    "whom",
];

/// The most hits per 10,000 words of all comments and documents.
const MOST: f64 = 12.0;

/// One note per crate with hits, and the total: an error above [`MOST`].
pub(super) fn words(tree: &Tree) -> Vec<Finding> {
    let mut parts: BTreeMap<String, Count> = BTreeMap::new();
    for file in &tree.files {
        let lines = match file.path.rsplit_once('.') {
            Some((_, "rs")) => comment_lines(&file.text),
            Some((_, "md")) if file.path != "CHANGELOG.md" => text_lines(&file.text),
            _ => continue,
        };
        parts.entry(part_of(&file.path)).or_default().add(file, &lines);
    }
    let mut total = Count::default();
    let mut findings = Vec::new();
    for (part, count) in &parts {
        total.words += count.words;
        total.hits += count.hits;
        if count.hits > 0 {
            findings.push(Finding::at(part, 1, RULE, count.to_string()).noted());
        }
    }
    let rate = total.rate();
    let advice = format!("{rate:.1} per 10,000 words over all (at most {MOST}); rewrite the sentences, not the words");
    let finding = Finding::at(".", 1, RULE, advice);
    findings.push(if rate > MOST { finding } else { finding.noted() });
    findings
}

/// The crate of a file, or the folder of a document.
fn part_of(path: &str) -> String {
    let folders = if path.starts_with("crates/") { 2 } else { 1 };
    match path.match_indices('/').nth(folders - 1) {
        Some((at, _)) => path[..at].to_owned(),
        None => "documents".to_owned(),
    }
}

#[derive(Default)]
struct Count {
    words: usize,
    hits: usize,
    by_phrase: BTreeMap<&'static str, usize>,
    first: Option<String>,
}

impl Count {
    fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts of words")]
        let (hits, words) = (self.hits as f64, self.words.max(1) as f64);
        10_000.0 * hits / words
    }

    /// Counts lines of prose. A phrase may continue on the next line, but not past punctuation.
    fn add(&mut self, file: &File, lines: &[(usize, String)]) {
        let mut recent = String::new();
        let mut before = 0;
        for (number, line) in lines {
            if *number != before + 1 || line.trim().is_empty() {
                recent.clear();
            }
            before = *number;
            for token in tokens(line) {
                if !token.starts_with(char::is_alphabetic) {
                    recent.clear();
                    continue;
                }
                self.words += 1;
                recent.push(' ');
                recent.push_str(&token.to_lowercase());
                let found = PHRASES
                    .iter()
                    .find(|phrase| recent.strip_suffix(**phrase).is_some_and(|rest| rest.ends_with(' ')));
                if let Some(phrase) = found {
                    self.hits += 1;
                    *self.by_phrase.entry(phrase).or_default() += 1;
                    self.first.get_or_insert_with(|| format!("{}:{number}", file.path));
                }
            }
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (hits, rate) = (self.hits, self.rate());
        let mut by_phrase: Vec<_> = self.by_phrase.iter().collect();
        by_phrase.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let most: Vec<String> = by_phrase
            .iter()
            .take(5)
            .map(|(phrase, count)| format!("{count} {phrase}"))
            .collect();
        let first = self.first.as_deref().unwrap_or_default();
        write!(
            f,
            "{hits} hits, {rate:.1} per 10,000 words ({}), first at {first}",
            most.join(", ")
        )
    }
}

/// The words of a line, and every other visible character as a token of its own.
fn tokens(line: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest
            .find(|c: char| !c.is_alphabetic() && c != '\'')
            .unwrap_or(rest.len());
        let (token, after) = rest.split_at(if first.is_alphabetic() { word } else { first.len_utf8() });
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// The text of a Rust file's comments, by line.
fn comment_lines(text: &str) -> Vec<(usize, String)> {
    let plain = comments(text);
    let is_mark = |c: char| c.is_whitespace() || matches!(c, '/' | '!' | '*');
    let lines = plain.lines().map(|line| line.trim_start_matches(is_mark));
    without_code(lines.enumerate().filter(|(_, line)| !line.is_empty()))
}

/// The text of a document, by line.
fn text_lines(text: &str) -> Vec<(usize, String)> {
    without_code(text.lines().enumerate())
}

/// Leaves out code blocks, quoted lines, inline code and text between double quotes. Numbers the lines from 1.
fn without_code<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut in_code = false;
    let mut kept = Vec::new();
    for (index, line) in lines {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !line.trim_start().starts_with('>') {
            kept.push((index + 1, without_quotes(line)));
        }
    }
    kept
}

/// Replaces each quoted part of a line by a dash, which ends a phrase.
fn without_quotes(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['`', '"']) {
        let quote = &rest[at..=at];
        let Some(end) = rest[at + 1..].find(quote) else { break };
        out.push_str(&rest[..at]);
        out.push('-');
        rest = &rest[at + end + 2..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree;

    fn hits(path: &str, text: &str) -> usize {
        let found = words(&tree(&[(path, text)]));
        let note = found.iter().find(|finding| finding.path != ".");
        note.map_or(0, |finding| {
            finding
                .advice
                .split(' ')
                .next()
                .unwrap_or_default()
                .parse()
                .unwrap_or_default()
        })
    }

    #[test]
    fn listed_words_are_counted_in_comments_and_documents() {
        let code = "/// Nobody is told\n/// at once.\nfn nobody() { tells(\"nobody\"); } // it has to\n";
        assert_eq!(hits("crates/a/src/a.rs", code), 4);
        assert_eq!(hits("docs/a.md", "Whoever\nlets go"), 2);
        assert_eq!(hits("CHANGELOG.md", "nobody"), 0);
        assert_eq!(hits("crates/a/src/a.sql", "nobody"), 0);
    }

    #[test]
    fn phrases_end_at_punctuation_and_blank_lines() {
        assert_eq!(hits("a.md", "so it is. No rule; at\n\nonce"), 0);
        assert_eq!(hits("a.md", "hiss no, this no"), 0);
    }

    #[test]
    fn code_and_quotes_are_left_out() {
        let text = "`nobody` and \"whoever\"\n> whom\n```text\nanew\n```\n";
        assert_eq!(hits("a.md", text), 0);
        let comment = "/// ```\n/// nobody();\n/// ```\n/// Said \"at once\".\nfn f() {}\n";
        assert_eq!(hits("crates/a/src/a.rs", comment), 0);
    }

    #[test]
    fn only_the_total_is_an_error() {
        let few = format!("nobody {}", "word ".repeat(999));
        let found = words(&tree(&[
            ("crates/a/src/a.md", &few),
            ("docs/b.md", &"word ".repeat(9_000)),
        ]));
        assert!(found.iter().all(|finding| finding.is_note), "{found:?}");
        assert!(
            found[0].advice.starts_with("1 hits, 10.0 per 10,000 words (1 nobody)"),
            "{}",
            found[0]
        );
        let found = words(&tree(&[("crates/a/src/a.md", &few), ("docs/b.md", "anew")]));
        let errors: Vec<_> = found.iter().filter(|finding| !finding.is_note).collect();
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].path, ".");
    }
}
