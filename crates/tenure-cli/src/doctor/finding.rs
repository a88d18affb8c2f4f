//! A finding with its severity, detail and advice.

use serde::Serialize;
use tenure_core::store::{Finding, Severity};

use crate::cli::FormatArgs;
use crate::output::{json, table};

/// A finding, with advice where its detail has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Diagnosis {
    #[serde(flatten)]
    pub(super) finding: Finding,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

impl From<Finding> for Diagnosis {
    fn from(finding: Finding) -> Self {
        Self { finding, advice: None }
    }
}

impl Diagnosis {
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
    findings: Vec<Diagnosis>,
}

/// Prints findings in the order of the checks.
///
/// # Errors
/// When stdout cannot be written.
pub(super) fn print(findings: Vec<Diagnosis>, format: &FormatArgs) -> anyhow::Result<()> {
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
