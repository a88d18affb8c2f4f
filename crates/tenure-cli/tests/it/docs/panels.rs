//! The dashboard for Grafana shows every metric that there is, as the page about operations says.

use std::collections::BTreeSet;

use crate::docs::text;

/// The names of metrics in a text; what a histogram is asked for by goes without its ending.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics = words.filter(|word| word.starts_with("tenure_") && !word.ends_with('_'));
    metrics
        .map(|metric| metric.trim_end_matches("_bucket").to_owned())
        .collect()
}

#[test]
fn every_metric_has_a_place_on_the_dashboard() {
    let mut missing = BTreeSet::new();
    for file in [
        "tenure/src/meters.rs",
        "tenure-server/src/meters.rs",
        "tenure-adopt/src/registry/meters.rs",
        "tenure-adopt/src/sessions/meters.rs",
    ] {
        let source = text(&format!("crates/{file}"));
        // The names of metrics stand between quotes.
        let quoted = Vec::from_iter(source.split('"').skip(1).step_by(2));
        let metrics = named(&quoted.join(" "));
        assert!(metrics.len() > 4, "{file}: {metrics:?}");
        missing.extend(metrics);
    }
    assert!(missing.len() > 50, "{missing:?}");
    for metric in named(&text("deploy/grafana/tenure.json")) {
        missing.remove(&metric);
    }
    assert!(missing.is_empty(), "not on the dashboard: {missing:#?}");
}
