//! One question to a daemon that no store answers: how the daemon itself is.

use std::time::Duration;

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use tenure::wire::Problem;
use tenure_core::clock::{Clock, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long the daemon may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// No answer is longer; whatever is, is no daemon of ours.
const LONGEST: u64 = 64 << 20;

/// Asks `GET <path>` of the daemon at `base` (`http://HOST:PORT`).
///
/// # Errors
/// When it cannot be reached, takes too long, or answers something else.
pub(crate) async fn ask<T: DeserializeOwned>(clock: &dyn Clock, base: &str, path: &str) -> anyhow::Result<T> {
    let answer = within(clock, PATIENCE, fetch(base, path)).await;
    let answer = answer.with_context(|| format!("{base} did not answer within {PATIENCE:?}"))??;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("{base} does not speak HTTP"))?;
    let status: u16 = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    if status != 200 {
        let problem = serde_json::from_str::<Problem>(body).map(|problem| problem.detail);
        bail!(
            "{base} answers {status} to {path}: {}",
            problem.unwrap_or_else(|_| "is it a daemon of Tenure?".to_owned())
        );
    }
    serde_json::from_str(body).with_context(|| format!("{base} answers {path} with what cannot be read"))
}

/// HTTP/1.0, so that the answer is neither in chunks nor followed by another.
async fn fetch(base: &str, path: &str) -> anyhow::Result<String> {
    let rest = base
        .strip_prefix("http://")
        .with_context(|| format!("{base} is not an http:// URL"))?;
    let (host, prefix) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let address = if has_port(host) {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let mut stream = TcpStream::connect(&address)
        .await
        .with_context(|| format!("cannot connect to {base}"))?;
    let prefix = prefix.trim_end_matches('/');
    let request = format!("GET {prefix}{path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .with_context(|| format!("cannot ask {base}"))?;
    let mut answer = Vec::new();
    stream
        .take(LONGEST)
        .read_to_end(&mut answer)
        .await
        .with_context(|| format!("cannot hear {base}"))?;
    String::from_utf8(answer).with_context(|| format!("{base} answers what is no text"))
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_what_follows_the_last_colon() {
        for (host, has) in [
            ("a:1", true),
            ("a", false),
            ("[::1]:7717", true),
            ("[::1]", false),
            ("a:", false),
        ] {
            assert_eq!(has_port(host), has, "{host}");
        }
    }
}
