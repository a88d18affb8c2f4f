//! Where a daemon sends its traces.

#[cfg(feature = "otel")]
mod exporter;
#[cfg(not(feature = "otel"))]
#[path = "traces/off.rs"]
mod exporter;

use axum::http::Uri;
use tenure_core::error::{Error, ErrorKind, Result};

pub(super) use exporter::Traces;

/// Where traces go, and how many there are.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSettings {
    /// The URL of a collector that takes OTLP over HTTP; `/v1/traces` is added.
    pub endpoint: String,
    /// The share of new traces that are recorded, 0 to 1. A request that belongs to the trace of its caller is recorded when that
    /// trace is.
    pub sample: f64,
}

/// The path of traces, below that of the collector.
const PATH: &str = "/v1/traces";

impl TraceSettings {
    /// Validates the settings. A program that is built without the feature `otel` rejects all of them.
    ///
    /// # Errors
    /// `Misconfigured`, with what to do.
    pub fn check(&self) -> Result<()> {
        self.url(cfg!(feature = "otel")).map(drop)
    }

    /// The URL to post traces to, in a program that `can_trace` or not.
    fn url(&self, can_trace: bool) -> Result<String> {
        let bad = |message: String| Error::new(ErrorKind::Misconfigured, message);
        if !can_trace {
            return Err(bad(
                "this program was built without traces: remove the setting, or build it with the feature `otel`, like \
                 `cargo build --release -p tenure-cli --features otel`"
                    .to_owned(),
            ));
        }
        if !(0.0..=1.0).contains(&self.sample) {
            return Err(bad(format!("the share {} of traces is not from 0 to 1", self.sample)));
        }
        let example = "write the URL of a collector, like http://127.0.0.1:4318";
        let url: Uri = self
            .endpoint
            .parse()
            .map_err(|_| bad(format!("this is not a URL; {example}")))?;
        let scheme = url.scheme_str().unwrap_or_default();
        let Some(authority) = url.authority().filter(|_| matches!(scheme, "http" | "https")) else {
            return Err(bad(format!("this is not an http or https URL; {example}")));
        };
        if authority.as_str().contains('@') {
            let advice =
                "the URL contains credentials; put them into OTEL_EXPORTER_OTLP_HEADERS, like authorization=Basic%20…";
            return Err(bad(advice.to_owned()));
        }
        if url.query().is_some() {
            return Err(bad(format!("the URL has a query; {example}")));
        }
        let path = url.path().trim_end_matches('/');
        Ok(format!(
            "{scheme}://{authority}{}{PATH}",
            path.strip_suffix(PATH).unwrap_or(path)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(endpoint: &str) -> TraceSettings {
        let endpoint = endpoint.to_owned();
        TraceSettings { endpoint, sample: 1.0 }
    }

    #[test]
    fn path_of_traces_is_added_once() {
        for (given, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector/", "http://collector/v1/traces"),
            ("https://host/otlp", "https://host/otlp/v1/traces"),
            ("https://host/v1/traces", "https://host/v1/traces"),
        ] {
            assert_eq!(settings(given).url(true).unwrap(), url);
        }
    }

    #[test]
    fn unusable_endpoint_is_refused_without_showing_it() {
        for (given, must_say) in [
            ("collector:4318", "http or https"),
            ("grpc://s3cret", "http or https"),
            ("http://", "not a URL"),
            ("http://user:s3cret@host", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://host?key=s3cret", "query"),
        ] {
            let error = settings(given).url(true).expect_err(given).to_string();
            assert!(
                error.contains(must_say) && !error.contains("s3cret"),
                "{given}: {error}"
            );
        }
        for sample in [-0.1, 1.1, f64::NAN] {
            let endpoint = "http://host".to_owned();
            assert!(TraceSettings { endpoint, sample }.url(true).is_err(), "{sample}");
        }
    }

    #[test]
    fn build_without_traces_says_how_to_get_them() {
        let error = settings("http://127.0.0.1:4318").url(false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("--features otel"), "{error}");
    }
}
