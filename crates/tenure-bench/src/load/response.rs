//! Reads HTTP/1.1 responses as the compared servers send them: with a length or in chunks.

use std::borrow::Cow;
use std::ops::Range;

use anyhow::{Context, Result, bail};

/// The positions of a response's parts in the bytes it was parsed from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// The status.
    pub(super) status: u16,
    /// Whether the server closes the connection afterwards.
    pub(super) close: bool,
    body: Vec<Range<usize>>,
}

impl Response {
    /// Parses a whole response; `None` if more bytes are needed.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(end) = find(bytes, b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = std::str::from_utf8(&bytes[..end]).context("a head that is no text")?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status: u16 = status
            .context("no status")?
            .parse()
            .context("a status that is no number")?;
        let (mut length, mut chunked, mut close) = (None, false, false);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse::<usize>().context("a length that is no number")?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                close = value.eq_ignore_ascii_case("close");
            }
        }
        let start = end + 4;
        let body = match length {
            _ if status == 204 || status == 304 => Some(vec![]),
            _ if chunked => chunks(bytes, start)?,
            Some(length) => (bytes.len() >= start + length).then(|| std::iter::once(start..start + length).collect()),
            None => bail!("an answer with neither a length nor chunks"),
        };
        Ok(body.map(|body| Self { status, close, body }))
    }

    /// The body, without a copy if it is contiguous.
    pub(super) fn body<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.body.as_slice() {
            [] => Cow::Borrowed(&[]),
            [whole] => Cow::Borrowed(&bytes[whole.clone()]),
            parts => Cow::Owned(parts.iter().flat_map(|part| &bytes[part.clone()]).copied().collect()),
        }
    }
}

/// The chunks of a body; `None` if the last one is missing.
fn chunks(bytes: &[u8], mut at: usize) -> Result<Option<Vec<Range<usize>>>> {
    let mut parts = Vec::new();
    loop {
        let Some(line) = bytes.get(at..).and_then(|rest| find(rest, b"\r\n")) else {
            return Ok(None);
        };
        let size = std::str::from_utf8(&bytes[at..at + line]).context("a chunk's size")?;
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
        let (start, size) = (at + line + 2, size.context("a chunk's size")?);
        if bytes.len() < start + size + 2 {
            return Ok(None);
        }
        if size == 0 {
            return Ok(Some(parts));
        }
        parts.push(start..start + size);
        at = start + size + 2;
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> (u16, bool, String) {
        for cut in 0..bytes.len() {
            assert_eq!(Response::parse(&bytes[..cut]).unwrap(), None, "cut at {cut}");
        }
        let answer = Response::parse(bytes).unwrap().unwrap();
        let body = String::from_utf8_lossy(&answer.body(bytes)).into_owned();
        (answer.status, answer.close, body)
    }

    #[test]
    fn answers_are_whole_only_with_their_last_byte() {
        let by_length = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
        assert_eq!(whole(by_length), (200, false, "hi".into()));
        let in_chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1;x\r\n!\r\n0\r\n\r\n";
        assert_eq!(whole(in_chunks), (200, false, "hi!".into()));
        let nothing = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
        assert_eq!(whole(nothing), (204, true, String::new()));
    }

    #[test]
    fn a_malformed_response_is_an_error() {
        for bytes in [
            "ok\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        ] {
            assert!(Response::parse(bytes.as_bytes()).is_err(), "{bytes}");
        }
    }
}
