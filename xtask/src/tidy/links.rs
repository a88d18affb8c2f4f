//! Links between the documents.

use super::{Finding, Tree};

/// Relative links in Markdown lead somewhere.
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
                    let advice = format!("`{target}` leads nowhere; correct it or write the file");
                    findings.push(Finding::new(file, index + 1, "dead link", advice));
                }
            }
        }
    }
    findings
}

/// The targets within the project of a line's links, `[text](target)` and `[name]: target`, without their anchors.
fn targets(line: &str) -> Vec<&str> {
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
    let targets = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    targets
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
        .collect()
}

/// A link's path from the project's root, or `None` when it leads out of the project.
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
    fn links_that_lead_nowhere_are_found() {
        let text = "[ok](../README.md#part) [web](https://x.invalid/y) [here](#part)\n[gone](gone.md)\n\
                    ```\n[in code](gone.md)\n```\n[ref]: ../gone.md\n[out](../../../x)\n";
        let found = relative(&tree(&[("README.md", ""), ("docs/a.md", text)]));
        assert_eq!(places(&found), ["docs/a.md:2", "docs/a.md:6", "docs/a.md:7"]);
    }

    #[test]
    fn a_link_may_lead_to_a_folder_and_have_a_title() {
        let mut tree = tree(&[("README.md", "[guides](docs/guides/ \"All\") [root](./)\n")]);
        tree.paths.push("docs/guides".to_owned());
        assert!(relative(&tree).is_empty());
    }
}
