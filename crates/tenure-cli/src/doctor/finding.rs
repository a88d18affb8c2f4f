//! A finding as it is told: how bad, what was found, what to do.

use serde::Serialize;
use tenure_core::store::{Finding, Severity};

use crate::cli::FormatArgs;
use crate::output::{json, table};

/// A finding, with what to do about it where the detail does not say that by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Told {
    #[serde(flatten)]
    pub(super) finding: Finding,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

impl From<Finding> for Told {
    fn from(finding: Finding) -> Self {
        Self { finding, advice: None }
    }
}

impl Told {
    pub(super) fn new(check: &str, severity: Severity, detail: impl Into<String>) -> Self {
        Finding::new(check, severity, detail).into()
    }

    pub(super) fn advise(self, advice: &'static str) -> Self {
        let advice = Some(advice);
        Self { advice, ..self }
    }
}

#[derive(Serialize)]
struct All {
    findings: Vec<Told>,
}

/// Prints them in the order in which they were looked for.
///
/// # Errors
/// When stdout cannot be written.
pub(super) fn print(findings: Vec<Told>, format: &FormatArgs) -> anyhow::Result<()> {
    if format.json {
        return json(&All { findings });
    }
    let rows = findings.into_iter().map(|told| {
        let Finding {
            check,
            severity,
            detail,
        } = told.finding;
        let detail = told
            .advice
            .map_or_else(|| detail.clone(), |advice| format!("{detail}; {advice}"));
        [word(severity).to_owned(), check, detail]
    });
    table(["severity", "check", "detail"], rows.collect())
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Warning => "warning",
        Severity::Error => "ERROR",
    }
}
