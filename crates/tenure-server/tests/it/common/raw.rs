//! A connection without a client library, for what a library hides: whether an answer says that its connection closes.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{Daemon, PATIENCE};

/// One TCP connection to a daemon. It stays open between requests.
pub struct RawConnection(BufReader<TcpStream>);

impl RawConnection {
    pub async fn open(daemon: &Daemon) -> Self {
        let socket = TcpStream::connect(daemon.server.addr()).await.expect("a connection");
        Self(BufReader::new(socket))
    }

    /// Sends a request line with headers, and a body as it is.
    pub async fn send(&mut self, head: &str, body: &str) {
        let request = format!("{head}\r\nHost: localhost\r\n\r\n{body}");
        // A daemon that refuses may close before it has read everything: its answer is what counts.
        self.0.write_all(request.as_bytes()).await.ok();
    }

    /// Sends the rest of a body.
    pub async fn send_body(&mut self, body: &str) {
        self.0.write_all(body.as_bytes()).await.expect("the body is sent");
    }

    /// The head of the next answer in lower case, its body skipped; `None` when the connection closed without one.
    pub async fn answer(&mut self) -> Option<String> {
        let (mut head, mut length) = (String::new(), 0);
        let read = async {
            while !head.ends_with("\r\n\r\n") {
                let mut line = String::new();
                if self.0.read_line(&mut line).await.ok()? == 0 {
                    return None;
                }
                let line = line.to_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().expect("a length");
                }
                head += &line;
            }
            self.0.read_exact(&mut vec![0; length]).await.ok()
        };
        tokio::time::timeout(PATIENCE, read).await.expect("an end")?;
        Some(head)
    }

    /// Sends a request, and reads the head of its answer.
    pub async fn ask(&mut self, head: &str, body: &str) -> Option<String> {
        self.send(head, body).await;
        self.answer().await
    }

    /// Whether the daemon closes the connection and sends nothing more.
    pub async fn is_closed(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.0.read(&mut [0])).await;
        matches!(read.expect("an end"), Ok(0) | Err(_))
    }
}
