//! A request for the state of the daemon itself, which is not part of the store interface.

use std::time::Duration;

use anyhow::Context;
use serde::de::DeserializeOwned;
use tenure::http::{HttpSettings, HttpStore};
use tenure_core::clock::{Clock, SystemClock, within};
use tenure_core::time::show_duration;
use tokio::runtime::Handle;

use crate::connect::token;

/// Time-out for a single question to a daemon; longer than a short stall.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Asks `GET <path>` of the daemon at `base` (`http://HOST:PORT` or `https://HOST:PORT`), and shows it the token of this
/// process.
///
/// # Errors
/// When it cannot be reached, takes too long, refuses, or answers something else.
pub(crate) async fn ask<T: DeserializeOwned>(clock: &dyn Clock, base: &str, path: &str) -> anyhow::Result<T> {
    let settings = HttpSettings {
        request_timeout: PATIENCE,
        ..HttpSettings::default()
    };
    let store = HttpStore::with_token(base, SystemClock::shared(), Handle::current(), settings, token()?)?;
    let answer = within(clock, PATIENCE, store.ask(path)).await;
    Ok(answer.with_context(|| format!("{base} did not answer within {}", show_duration(PATIENCE)))??)
}
