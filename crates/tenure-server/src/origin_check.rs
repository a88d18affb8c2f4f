//! Checks of `Host` and `Origin` that protect a daemon without tokens from web pages in a browser on its machine.
//!
//! A daemon without tokens on loopback trusts its machine, but a browser there sends requests on behalf of any page:
//!
//! - **DNS rebinding.** A page can point its own host name at 127.0.0.1 and read the daemon as its own origin. So the daemon
//!   answers only to IP addresses and to names that browsers always resolve to the local machine.
//! - **Cross-site requests.** A form or a request without a body reaches the daemon from any page without a CORS preflight.
//!   The browser names the page in `Origin`; a change is refused unless that is the daemon's own origin.
//!
//! The checks are off beyond loopback, where clients use host names, and when tokens are required: a browser does not add a
//! bearer token on its own.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use tenure::wire::Code;

use crate::meters;
use crate::reply::Failure;
use crate::settings::Settings;

/// How many characters of a header an error quotes.
const SHOWN: usize = 200;

/// The host and origin check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OriginCheck {
    is_watched: bool,
}

impl OriginCheck {
    /// The check for a server that listens on `addr`.
    pub(crate) fn new(settings: &Settings, addr: SocketAddr) -> Self {
        let is_watched = settings.tokens.is_none() && addr.ip().to_canonical().is_loopback();
        Self { is_watched }
    }

    /// Admits every request.
    pub(crate) fn open() -> Self {
        Self { is_watched: false }
    }

    /// Refuses a request that a foreign page may have triggered. A request without a host (HTTP/1.0) is not from a browser.
    ///
    /// # Errors
    /// 421 `wrong_host`, 403 `wrong_origin`.
    pub(crate) fn check(self, request: &Request) -> Result<(), Failure> {
        if !self.is_watched {
            return Ok(());
        }
        let headers = request.headers();
        // A host in the request target takes precedence over the header (RFC 9112, 3.2.2): both are checked.
        let target = request.uri().authority().map(|host| host.as_str().as_bytes());
        let hosts = || {
            target
                .into_iter()
                .chain(headers.get_all(HOST).iter().map(|host| host.as_bytes()))
        };
        if let Some(other) = hosts().find(|host| !leads_here(host)) {
            return Err(wrong_host(other));
        }
        if request.method().is_safe() {
            return Ok(());
        }
        let own = hosts().next();
        let mut origins = headers.get_all(ORIGIN).iter().map(|origin| origin.as_bytes());
        match origins.find(|origin| !is_of(origin, own)) {
            Some(other) => Err(wrong_origin(other)),
            None => Ok(()),
        }
    }
}

/// Whether a host, with or without a port, is an IP address or a name that browsers resolve to loopback without DNS
/// (RFC 6761, 6.3).
fn leads_here(authority: &[u8]) -> bool {
    let Ok(authority) = std::str::from_utf8(authority) else {
        return false;
    };
    if let Some(rest) = authority.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let host = match authority.split_once(':') {
        Some((host, port)) if is_port(port) => host,
        Some(_) => return false,
        None => authority,
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost") || host.parse::<Ipv4Addr>().is_ok()
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether an origin (`scheme://host[:port]`) has the host of the request. The scheme may differ: a TLS proxy on the same
/// machine looks like that.
fn is_of(origin: &[u8], own: Option<&[u8]>) -> bool {
    let host = [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    host.is_some_and(|host| own.is_some_and(|own| own.eq_ignore_ascii_case(host)))
}

#[cold]
fn wrong_host(host: &[u8]) -> Failure {
    let detail = format!(
        "the request is for the host {:?}; a daemon on loopback without tokens answers only to localhost, names under \
         .localhost and IP addresses, because any web page can point another name at it: use one of these, or start the \
         daemon with --tokens",
        shown(host)
    );
    refused(Code::WrongHost, detail)
}

#[cold]
fn wrong_origin(origin: &[u8]) -> Failure {
    let detail = format!(
        "the request comes from a page of the origin {:?}; a daemon on loopback without tokens accepts changes only from \
         its own page: send no Origin, or start the daemon with --tokens",
        shown(origin)
    );
    refused(Code::WrongOrigin, detail)
}

fn shown(header: &[u8]) -> String {
    String::from_utf8_lossy(header).chars().take(SHOWN).collect()
}

fn refused(code: Code, detail: String) -> Failure {
    meters::refused(code);
    Failure::new(code, detail)
}
