//! A blocking client of the Redis protocol, for tests to read keys.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// The time-out of a call, so that a paused server cannot block a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A simple string, `+OK`.
    Simple(String),
    /// An error, `-ERR …`.
    Error(String),
    /// An integer, `:1`.
    Int(i64),
    /// A byte string.
    Bulk(Vec<u8>),
    /// No value.
    Nil,
    /// Several replies in one.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a simple, error, integer or bulk reply (lossy for bytes that are not UTF-8); empty for others.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Reply::Simple(text) | Reply::Error(text) => text.clone(),
            Reply::Int(number) => number.to_string(),
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Nil | Reply::Array(_) => String::new(),
        }
    }

    /// The number of an integer reply, or of a bulk reply with a number as text.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Reply::Int(number) => Some(*number),
            Reply::Bulk(_) => self.text().parse().ok(),
            _ => None,
        }
    }

    /// The replies in an array; none for others.
    #[must_use]
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            _ => &[],
        }
    }

    /// The texts of the replies in an array.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.items().iter().map(Reply::text).collect()
    }
}

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn connect(addr: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE).with_context(|| format!("connect to {addr}"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client {
            stream: BufReader::new(stream),
        })
    }

    /// Sends one command and reads its reply. An error reply is `Ok(Reply::Error(…))`.
    ///
    /// # Errors
    /// If the connection fails or twenty seconds pass without a reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply> {
        self.send(args)?;
        self.receive()
    }

    /// Sends one command without reading its reply.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<()> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).context("send the command")
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// If the connection fails, twenty seconds pass, or the reply is malformed.
    pub fn receive(&mut self) -> Result<Reply> {
        read_reply(&mut self.stream)
    }
}

/// Reads one reply, or a command as clients send it: an array of strings.
pub(crate) fn read_reply(stream: &mut impl BufRead) -> Result<Reply> {
    let mut line = String::new();
    ensure!(
        stream.read_line(&mut line).context("read a reply")? > 0,
        "the server closed the connection"
    );
    let line = line.trim_end_matches(['\r', '\n']);
    ensure!(line.is_char_boundary(1) && !line.is_empty(), "an empty reply");
    let (kind, rest) = line.split_at(1);
    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Int(rest.parse().context("an integer reply")?)),
        "$" => match length(rest)? {
            None => Ok(Reply::Nil),
            Some(length) => {
                let mut bytes = vec![0; length + 2];
                stream.read_exact(&mut bytes).context("read a bulk reply")?;
                bytes.truncate(length);
                Ok(Reply::Bulk(bytes))
            }
        },
        "*" => match length(rest)? {
            None => Ok(Reply::Nil),
            Some(length) => (0..length)
                .map(|_| read_reply(stream))
                .collect::<Result<_>>()
                .map(Reply::Array),
        },
        _ => bail!("not a reply: {line}"),
    }
}

/// A length on the wire; -1 means no value.
fn length(text: &str) -> Result<Option<usize>> {
    let number: i64 = text.parse().context("a length")?;
    Ok(usize::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(mut wire: &[u8]) -> Result<Reply> {
        read_reply(&mut wire)
    }

    #[test]
    fn reads_every_kind_of_reply() {
        assert_eq!(parse(b"+OK\r\n").unwrap(), Reply::Simple("OK".into()));
        assert_eq!(parse(b"-ERR no\r\n").unwrap(), Reply::Error("ERR no".into()));
        assert_eq!(parse(b":-7\r\n").unwrap(), Reply::Int(-7));
        assert_eq!(parse(b"$4\r\na\r\nb\r\n").unwrap(), Reply::Bulk(b"a\r\nb".to_vec()));
        assert_eq!(parse(b"$-1\r\n").unwrap(), Reply::Nil);
        let nested = parse(b"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n").unwrap();
        assert_eq!(nested.items()[1].texts(), ["x"]);
    }

    #[test]
    fn malformed_replies_and_a_closed_connection_fail() {
        assert!(parse(b"HTTP/1.1 400\r\n").is_err());
        assert!(parse(b"\r\n").is_err());
        assert!(parse(b"").unwrap_err().to_string().contains("closed"));
    }
}
