//! The page about the HTTP API has the routes and the errors that there are.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use tenure::wire::Code;

use crate::docs::{root, text};

const PAGE: &str = "docs/api.md";
/// Writes the tables instead of comparing them.
const UPDATE: &str = "TENURE_UPDATE_DOCS";

#[tokio::test]
async fn the_page_lists_every_route_as_it_describes_itself() {
    let document: Value = serde_json::from_str(&tenure_server::document()).unwrap();
    let mut by_tag: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let tag = operation["tags"][0].as_str().unwrap_or("other");
            let summary = operation["summary"].as_str().unwrap();
            let row = format!("| `{} {path}` | {summary} |", method.to_uppercase());
            by_tag.entry(tag.to_owned()).or_default().push(row);
        }
    }
    let mut table = String::from("| Route | What |\n|---|---|\n");
    for (tag, rows) in by_tag {
        writeln!(table, "| **{tag}** | |\n{}", rows.join("\n")).unwrap();
    }
    compare("routes", &table);
}

#[test]
fn the_page_lists_every_error_with_its_status() {
    let mut table = String::from("| Status | Code | |\n|---|---|---|\n");
    for code in Code::ALL {
        writeln!(table, "| {} | `{}` | {} |", code.status(), code.as_str(), code.title()).unwrap();
    }
    compare("errors", &table);
}

/// Compares what stands between the marks with what should.
#[track_caller]
fn compare(mark: &str, wanted: &str) {
    let page = text(PAGE);
    let (begin, end) = (format!("<!-- {mark} -->\n"), "<!-- end -->\n");
    let (before, rest) = page.split_once(&begin).expect("the page has the mark");
    let (there, after) = rest.split_once(end).expect("the page has the end of the mark");
    if there == wanted {
        return;
    }
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(root().join(PAGE), format!("{before}{begin}{wanted}{end}{after}")).unwrap();
        return;
    }
    let missing = Vec::from_iter(wanted.lines().filter(|line| !there.contains(line)));
    let surplus = Vec::from_iter(there.lines().filter(|line| !wanted.contains(line)));
    panic!("{PAGE}: the {mark} are other ones ({UPDATE}=1 writes them); missing {missing:#?}, too many {surplus:#?}");
}
