//! What a page from elsewhere must not do here, through the browser of somebody on the daemon's machine.
//!
//! A daemon that asks nobody for a token trusts its network, and on loopback its network is the machine. A browser on that
//! machine asks on behalf of any page. Two things keep such a page out:
//!
//! - A name of the page's own that is made to lead to 127.0.0.1 (DNS rebinding) would make the daemon part of its site.
//!   So the daemon answers to no names but those that a browser leads nowhere but to its own machine, and to addresses, which
//!   nobody can lead elsewhere.
//! - A request that needs no permission of ours (a form, or one without a body) reaches us from any page, which only cannot
//!   read the answer. The browser says where it comes from, and nothing is changed for others than our own page.
//!
//! It refuses nothing beyond loopback, where names are what clients use, and nothing where tokens are asked for: a browser
//! adds none by itself.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use tenure::wire::Code;

use crate::meters;
use crate::reply::Failure;
use crate::settings::Settings;

/// How many characters of a header are repeated.
const SHOWN: usize = 200;

/// Whether pages from elsewhere are kept out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Door {
    is_watched: bool,
}

impl Door {
    /// Of a server that listens there.
    pub(crate) fn new(settings: &Settings, addr: SocketAddr) -> Self {
        let is_watched = settings.tokens.is_none() && addr.ip().to_canonical().is_loopback();
        Self { is_watched }
    }

    /// Lets everybody in.
    pub(crate) fn open() -> Self {
        Self { is_watched: false }
    }

    /// Turns away what a page from elsewhere may have made a browser send. Whoever names no host (HTTP/1.0) is no browser.
    ///
    /// # Errors
    /// 421 `wrong_host`, 403 `wrong_origin`; nothing was done.
    pub(crate) fn check(self, request: &Request) -> Result<(), Failure> {
        if !self.is_watched {
            return Ok(());
        }
        let headers = request.headers();
        // A target with a host goes before the header (RFC 9112, 3.2.2), and a browser does not send it: both have to fit.
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

/// Whether a host, with a port or without, is an address, or a name that browsers lead to their own machine without asking
/// anybody (RFC 6761, 6.3).
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

/// Whether an origin (`scheme://host[:port]`) is that of the host that was asked. The scheme may be another: that is how a
/// proxy with TLS on the same machine looks.
fn is_of(origin: &[u8], own: Option<&[u8]>) -> bool {
    let host = [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    host.is_some_and(|host| own.is_some_and(|own| own.eq_ignore_ascii_case(host)))
}

#[cold]
fn wrong_host(host: &[u8]) -> Failure {
    let detail = format!(
        "the request is for the host {:?}; a daemon that listens on loopback and asks nobody for a token answers only to \
         localhost, names under .localhost and IP addresses, because a page from anywhere can make another name lead here: ask \
         for one of these, or start the daemon with --tokens",
        shown(host)
    );
    refused(Code::WrongHost, detail)
}

#[cold]
fn wrong_origin(origin: &[u8]) -> Failure {
    let detail = format!(
        "the request comes from a page of the origin {:?}; a daemon that listens on loopback and asks nobody for a token \
         changes nothing for pages but its own: send no Origin, or start the daemon with --tokens",
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
