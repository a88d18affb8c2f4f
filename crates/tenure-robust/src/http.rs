//! A small HTTP client on one connection. It never repeats a request, so that each call in a history is one call on the
//! wire; clients that repeat would hide what happened.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer, or how it failed.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Status and body.
    Said(u16, Value),
    /// Nothing was sent.
    NotSent,
    /// It was sent, and no whole answer came.
    Lost,
}

impl Answer {
    /// Its body.
    #[must_use]
    pub fn said(&self) -> Value {
        match self {
            Answer::Said(_, said) => said.clone(),
            _ => Value::Null,
        }
    }
}

/// A client of one daemon.
#[derive(Debug)]
pub struct Client {
    addr: SocketAddr,
    stream: Option<TcpStream>,
}

impl Client {
    /// A client without a connection yet.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr, stream: None }
    }

    /// Sends one request and waits for its answer, in all for at most `within`.
    pub async fn send(&mut self, method: &str, path: &str, head: &str, body: &Value, within: Duration) -> Answer {
        let mut was_sent = false;
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{head}\r\n{text}",
            self.addr,
            text.len()
        );
        let mut stream = self.stream.take();
        let exchange = async {
            let mut stream = match stream.take() {
                Some(stream) => stream,
                None => TcpStream::connect(self.addr).await?,
            };
            was_sent = true;
            stream.write_all(request.as_bytes()).await?;
            let (answer, keep) = read_answer(&mut stream).await?;
            anyhow::Ok((answer, keep.then_some(stream)))
        };
        match timeout(within, exchange).await {
            Ok(Ok(((status, body), stream))) => {
                self.stream = stream;
                Answer::Said(status, body)
            }
            _ if was_sent => Answer::Lost,
            _ => Answer::NotSent,
        }
    }
}

/// Reads one answer, and whether the connection stays open.
async fn read_answer(stream: &mut TcpStream) -> Result<((u16, Value), bool)> {
    let mut bytes = Vec::new();
    let body_at = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            bail!("closed");
        }
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..body_at]).to_ascii_lowercase();
    let status: u16 = head.split(' ').nth(1).context("a status")?.parse()?;
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let length = match (status, field("content-length:")) {
        (204, _) => 0,
        (_, Some(length)) => length.parse()?,
        (_, None) => bail!("an answer without a length"),
    };
    while bytes.len() < body_at + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            bail!("closed");
        }
    }
    let body = serde_json::from_slice(&bytes[body_at..body_at + length]);
    let keep = field("connection:") != Some("close");
    Ok(((status, body.unwrap_or(Value::Null)), keep))
}
