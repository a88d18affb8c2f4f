//! HTTP/1.1 on the load generator's connections.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::connection::{Connection, Reply};
use super::response::Response;

/// The time-out of a single request, longer than any that a server holds back.
const PATIENCE: Duration = Duration::from_secs(90);

/// Builds a whole request as bytes.
#[must_use]
pub fn request(addr: SocketAddr, method: &str, path: &str, body: &str) -> Vec<u8> {
    let (kind, length) = ("Content-Type: application/json", body.len());
    format!("{method} {path} HTTP/1.1\r\nHost: {addr}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Parses a response and checks its status and body.
pub(super) fn parse(bytes: &[u8], good: fn(&[u8]) -> bool) -> Result<Option<Reply>> {
    let Some(response) = Response::parse(bytes)? else {
        return Ok(None);
    };
    let body = response.body(bytes);
    let is_good = (200..300).contains(&response.status) && good(&body);
    let bad = (!is_good).then(|| {
        let text: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        format!("{} {text}", response.status)
    });
    Ok(Some(Reply {
        // Nothing follows: there is one request in flight.
        size: bytes.len(),
        bad,
        close: response.close,
    }))
}

/// A client for single requests.
pub struct Http {
    addr: SocketAddr,
    connection: Connection,
}

impl Http {
    /// Connects.
    ///
    /// # Errors
    /// If the server does not accept.
    pub async fn connect(addr: SocketAddr) -> Result<Self> {
        let connection = Connection::connect(addr).await?;
        Ok(Self { addr, connection })
    }

    /// Sends a request and returns the body of the response.
    ///
    /// # Errors
    /// If there is no response within 90 s, or its status is not 2xx.
    pub async fn call(&mut self, method: &str, path: &str, body: &str) -> Result<String> {
        let request = request(self.addr, method, path, body);
        let parse = |bytes: &[u8]| {
            let Some(response) = Response::parse(bytes)? else {
                return Ok(None);
            };
            let body = String::from_utf8_lossy(&response.body(bytes)).into_owned();
            Ok(Some((bytes.len(), (response.status, response.close, body))))
        };
        let (status, close, body) = self.connection.exchange_within(PATIENCE, &request, parse).await?;
        if close {
            self.connection.reconnect().await?;
        }
        ensure!((200..300).contains(&status), "{method} {path}: {status} {body}");
        Ok(body)
    }
}
