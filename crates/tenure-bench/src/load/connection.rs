//! A connection with one request in flight, for any protocol whose responses can be told apart.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The time-out of a response, after which the run has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum size of a response.
const MAX_RESPONSE: usize = 16 << 20;

/// A response, as a parser finds it at the start of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// The bytes that belong to it; what follows is kept for the next one.
    pub size: usize,
    /// What is wrong with it, shortened.
    pub bad: Option<String>,
    /// Whether the server closes the connection afterwards.
    pub close: bool,
}

impl Reply {
    /// An expected response of this size.
    #[must_use]
    pub fn good(size: usize) -> Self {
        Self {
            size,
            bad: None,
            close: false,
        }
    }
}

/// Parses the response to one request; `None` if more bytes are needed.
pub type Parse = Arc<dyn Fn(&[u8]) -> Result<Option<Reply>> + Send + Sync>;

/// One connection.
pub struct Connection {
    addr: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// If the server does not accept.
    pub async fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr)
            .await
            .with_context(|| format!("connect to {addr}"))?;
        stream.set_nodelay(true)?;
        let buffer = Vec::new();
        Ok(Self { addr, stream, buffer })
    }

    /// Connects again.
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn reconnect(&mut self) -> Result<()> {
        *self = Self::connect(self.addr).await?;
        Ok(())
    }

    /// Sends a request and waits for what `parse` finds in the received bytes. What it does not consume, as the size
    /// that it returns, stays for the next exchange.
    ///
    /// # Errors
    /// If the connection fails, the response is malformed or takes more than ten seconds.
    pub async fn exchange<T>(
        &mut self,
        request: &[u8],
        parse: impl FnMut(&[u8]) -> Result<Option<(usize, T)>>,
    ) -> Result<T> {
        self.exchange_within(PATIENCE, request, parse).await
    }

    /// The same with a time-out of its own, for requests that the server holds back.
    ///
    /// # Errors
    /// As [`Connection::exchange`].
    pub async fn exchange_within<T>(
        &mut self,
        patience: Duration,
        request: &[u8],
        mut parse: impl FnMut(&[u8]) -> Result<Option<(usize, T)>>,
    ) -> Result<T> {
        let work = async {
            self.stream.write_all(request).await.context("send a request")?;
            loop {
                if let Some((size, found)) = parse(&self.buffer)? {
                    self.buffer.drain(..size);
                    return Ok(found);
                }
                ensure!(
                    self.buffer.len() < MAX_RESPONSE,
                    "an answer of more than {MAX_RESPONSE} bytes"
                );
                self.buffer.reserve(16 << 10);
                let read = self.stream.read_buf(&mut self.buffer).await.context("read an answer")?;
                ensure!(read > 0, "the server closed the connection in the middle of an answer");
            }
        };
        tokio::time::timeout(patience, work)
            .await
            .context("no answer in time")?
    }
}
