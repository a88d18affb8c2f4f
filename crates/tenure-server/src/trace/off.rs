//! The span of a request in a build without the feature `otel`: none, at no cost.

use axum::extract::Request;

use crate::middleware::Class;

/// No span.
pub(crate) struct RequestSpan;

impl RequestSpan {
    pub(crate) fn none() -> Self {
        Self
    }

    pub(crate) fn begin(_: Class, _: &'static str, _: &str, _: &Request) -> Self {
        Self
    }

    pub(crate) fn around<F: Future>(&self, work: F) -> F {
        work
    }

    pub(crate) fn answered(self, _: u16) {}
}

pub(crate) fn here<F: Future>(work: F) -> F {
    work
}
