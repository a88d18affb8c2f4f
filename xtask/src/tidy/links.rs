//! Links between the documents.

use super::{Finding, Tree};

/// Relative links in Markdown must exist.
pub(super) fn relative(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let mut in_code = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            }
            let targets = if in_code { Vec::new() } else { targets(line) };
            for target in targets {
                let path = resolve(&file.path, target);
                if !path.is_some_and(|path| path.is_empty() || tree.paths.contains(&path)) {
                    let advice = format!("`{target}` does not exist; correct the link or create the file");
                    findings.push(Finding::new(file, index + 1, "dead link", advice));
                }
            }
        }
    }
    findings
}

/// Anchors of links between documents must be headings of the linked page.
pub(super) fn anchors(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in prose(&file.text) {
            for target in links(line) {
                let Some((page, anchor)) = target.split_once('#') else {
                    continue;
                };
                let path = if page.is_empty() {
                    Some(file.path.clone())
                } else {
                    resolve(&file.path, page)
                };
                // A missing page is reported by the other rule.
                let Some(page) = path
                    .and_then(|path| tree.file(&path))
                    .filter(|page| page.path.ends_with(".md"))
                else {
                    continue;
                };
                if !prose(&page.text).any(|(_, line)| slug(line).is_some_and(|slug| slug == anchor)) {
                    let advice = format!("`{}` has no heading `#{anchor}`; correct the link", page.path);
                    findings.push(Finding::new(file, number, "dead anchor", advice));
                }
            }
        }
    }
    findings
}

/// The lines of a document outside code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        (!in_code).then_some((index + 1, line))
    })
}

/// The anchor of a heading as GitHub makes it; `None` for other lines.
fn slug(line: &str) -> Option<String> {
    let heading = line.trim_start_matches('#');
    if heading.len() == line.len() || !heading.starts_with(' ') {
        return None;
    }
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    Some(kept.collect())
}

/// The targets of a line's links within the project, without anchors.
fn targets(line: &str) -> Vec<&str> {
    links(line)
        .into_iter()
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
        .collect()
}

/// The targets of a line's links within the project: `[text](target)` and `[name]: target`.
fn links(line: &str) -> Vec<&str> {
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target);
    let named = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, target)| target);
    let targets = inline
        .chain(named)
        .filter_map(|target| target.split_whitespace().next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// A link's path from the project's root, or `None` outside the project.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, tree};

    #[test]
    fn broken_links_are_found() {
        let text = "[ok](../README.md#part) [web](https://x.invalid/y) [here](#part)\n[gone](gone.md)\n\
                    ```\n[in code](gone.md)\n```\n[ref]: ../gone.md\n[out](../../../x)\n";
        let found = relative(&tree(&[("README.md", ""), ("docs/a.md", text)]));
        assert_eq!(places(&found), ["docs/a.md:2", "docs/a.md:6", "docs/a.md:7"]);
    }

    #[test]
    fn anchors_without_a_heading_are_found() {
        let there = "# A page\n## What to do, and when\n```sh\n# no heading\n```\n### `tenure run`\n";
        let text = "[a](b.md#what-to-do-and-when) [b](b.md#tenure-run)\n[c](b.md#no-heading)\n[d](#here)\n## Here\n[e](#gone)\n\
                    [f](missing.md#x) [g](https://x.invalid/#y) [h](code.rs#L7)\n";
        let files = [("docs/a.md", text), ("docs/b.md", there), ("docs/code.rs", "")];
        assert_eq!(places(&anchors(&tree(&files))), ["docs/a.md:2", "docs/a.md:5"]);
    }

    #[test]
    fn a_link_may_lead_to_a_folder_and_have_a_title() {
        let mut tree = tree(&[("README.md", "[guides](docs/guides/ \"All\") [root](./)\n")]);
        tree.paths.push("docs/guides".to_owned());
        assert!(relative(&tree).is_empty());
    }
}
