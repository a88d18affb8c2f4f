//! A blocking HTTP request to a test server, to probe its readiness and read a peer's state.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a request and returns the status and the body of the response.
///
/// The request is HTTP/1.0, so the response is neither chunked nor kept alive.
///
/// # Errors
/// If the connection fails, twenty seconds pass, or the response is not HTTP.
pub fn request(addr: SocketAddr, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    request_with(addr, method, path, &[], body)
}

/// Sends a request with additional headers.
///
/// # Errors
/// As [`request`].
pub fn request_with(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE).with_context(|| format!("connect to {addr}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    let more: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = format!("{method} {path} HTTP/1.0\r\nHost: {addr}\r\nContent-Length: {length}\r\n{more}\r\n");
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .context("send the request")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("read the response")?;
    parse(&String::from_utf8_lossy(&answer))
}

/// Sends a GET.
///
/// # Errors
/// As [`request`].
pub fn get(addr: SocketAddr, path: &str) -> Result<(u16, String)> {
    request(addr, "GET", path, "")
}

fn parse(answer: &str) -> Result<(u16, String)> {
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("a response without an end of headers")?;
    let status = head.split(' ').nth(1).context("a response without a status")?;
    Ok((
        status.parse().context("a status that is not a number")?,
        body.to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_status_and_a_body() {
        let answer = "HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
        assert_eq!(parse(answer).unwrap(), (404, "no".to_owned()));
        assert!(parse("garbage").is_err());
    }
}
