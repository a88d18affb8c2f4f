//! Rust source with comments, strings or code blanked out, for searching the rest. Lines keep their numbers.

/// The text without comments.
pub(super) fn without_comments(text: &str) -> String {
    filter(text, |prose| prose != Some(Prose::Comment))
}

/// The text without comments, strings and characters.
pub(super) fn without_prose(text: &str) -> String {
    filter(text, |prose| prose.is_none())
}

/// The comments alone.
pub(super) fn comments(text: &str) -> String {
    filter(text, |prose| prose == Some(Prose::Comment))
}

/// Whether `line` contains `word` as a whole, not as a part of a longer name.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let open_start = word.starts_with(is_name) && before.is_some_and(is_name);
        let open_end = word.ends_with(is_name) && after.is_some_and(is_name);
        !open_start && !open_end
    })
}

/// The text with every token blanked out for which `keep` is false.
fn filter(text: &str, keep: impl Fn(Option<Prose>) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        let (size, prose) = token(rest, before);
        let token = &rest[..size.max(first.len_utf8())];
        if keep(prose) {
            out.push_str(token);
        } else {
            out.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        before = token.chars().next_back();
        rest = &rest[token.len()..];
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Prose {
    Comment,
    Quoted,
}

/// The size of the token at the start of `rest`, and its kind if it is prose.
fn token(rest: &str, before: Option<char>) -> (usize, Option<Prose>) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Some(Prose::Comment));
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), Some(Prose::Comment));
    }
    if rest.starts_with('"') {
        return (quoted(rest, '"'), Some(Prose::Quoted));
    }
    let after_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !after_name && let Some(size) = raw_string(rest) {
        return (size, Some(Prose::Quoted));
    }
    if rest.starts_with('\'') && is_char(rest) {
        return (quoted(rest, '\''), Some(Prose::Quoted));
    }
    (1, None)
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, `br#"…"#`.
fn raw_string(rest: &str) -> Option<usize> {
    let start = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = start.len() - start.trim_start_matches('#').len();
    let body = start[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opened = rest.len() - body.len();
    Some(body.find(&end).map_or(rest.len(), |at| opened + at + end.len()))
}

/// Whether a quote begins a character, not a lifetime.
fn is_char(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    let (first, second) = (chars.next(), chars.next());
    first == Some('\\') || second == Some('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_removed_and_lines_stay() {
        let text = "a // b \"c\"\n/* d /* e */\nf */ g\n\"// kept\"";
        let plain = without_comments(text);
        assert_eq!(plain.len(), text.len());
        let lines: Vec<&str> = plain.lines().map(str::trim).collect();
        assert_eq!(lines, ["a", "", "g", "\"// kept\""]);
    }

    #[test]
    fn strings_and_characters_are_removed() {
        let plain = |text: &str| without_prose(text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(plain(r#"x("a\"b{") y"#), "x( ) y");
        assert_eq!(plain(r##"x(r#"a"{"#) y"##), "x( ) y");
        assert_eq!(plain(r"x('{', '\'', b'}') y"), "x( , , b ) y");
        assert_eq!(
            plain("fn f<'a>(x: &'a str) { for_\"}\" }"),
            "fn f<'a>(x: &'a str) { for_ }"
        );
        assert_eq!(plain("über // ß\nö"), "über ö");
    }

    #[test]
    fn a_word_is_not_a_part_of_another() {
        assert!(has_word("use redis::Client;", "redis::"));
        assert!(!has_word("use my_redis::Client;", "redis::"));
        assert!(has_word("axum::serve", "axum") && !has_word("utoipa_axum::x", "axum"));
    }
}
