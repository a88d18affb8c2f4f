//! Reading one value from its text, with a message that shows the text and says what would be right.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use tenure_core::id::Group;
use tenure_core::time::parse_duration;

use crate::logging::LogFormat;

pub(super) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// An optional value.
pub(super) fn optional<T>(text: &str, read: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    read(text).map(Some)
}

pub(super) fn group(text: &str) -> Result<Group, String> {
    Group::new(text).map_err(|error| error.to_string())
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("the path is empty".to_owned());
    }
    Ok(PathBuf::from(text))
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// A name like `localhost` is looked up, the first address counts.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .ok()
        .or_else(|| text.to_socket_addrs().ok().and_then(|mut found| found.next()))
        .ok_or_else(|| format!("{text:?} is not an address to listen on; write host:port, like 127.0.0.1:7717"))
}

pub(super) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number"))
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| format!("{text:?} is not a share; write a number above 0 and up to 1, like 0.5"))
}

pub(super) fn sample(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|sample| (0.0..=1.0).contains(sample))
        .ok_or_else(|| format!("{text:?} is not a share of traces; write a number from 0 to 1, like 0.01"))
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("{text:?} is not a log format; there are text and json")),
    }
}
