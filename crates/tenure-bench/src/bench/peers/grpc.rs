//! The frames of HTTP/2 and gRPC that a stream of `LeaseKeepAlive` needs.
//!
//! By hand, so that etcd gets the same load generator as the others, and no gRPC library is linked for one call.
//!
//! Headers are literals without compression, and the windows are opened so far at the start that they last for any run.
//! Frames of the connection itself (settings, pings, window updates) are skipped; the server does not wait for their
//! acknowledgement.

use anyhow::{Context, Result, bail, ensure};

use crate::load::Reply;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The only stream of a connection.
const STREAM: u32 = 1;
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The start of a connection with one open stream.
pub(super) fn open(authority: &str) -> Vec<u8> {
    // SETTINGS_INITIAL_WINDOW_SIZE, and what the window of the connection lacks to the same size.
    let (window, missing) = (i32::MAX.to_be_bytes(), (i32::MAX - 65_535).to_be_bytes());
    let settings = [&[0, 4], &window[..]].concat();
    let headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/etcdserverpb.Lease/LeaseKeepAlive"),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let block: Vec<u8> = headers.iter().flat_map(|(name, value)| literal(name, value)).collect();
    [
        PREFACE.to_vec(),
        frame(SETTINGS, 0, 0, &settings),
        frame(WINDOW_UPDATE, 0, 0, &missing),
        frame(HEADERS, END_HEADERS, STREAM, &block),
        // Of the server's settings, which it sends in any case.
        frame(SETTINGS, ACK, 0, &[]),
    ]
    .concat()
}

/// Waits for the server's settings.
pub(super) fn opened(bytes: &[u8]) -> Result<Option<(usize, ())>> {
    let mut frames = Frames(bytes);
    while let Some(found) = frames.next_whole()? {
        if found.kind == SETTINGS && found.flags & ACK == 0 {
            return Ok(Some((bytes.len() - frames.0.len(), ())));
        }
    }
    Ok(None)
}

/// A heartbeat for each lease: `LeaseKeepAliveRequest { ID }`, each in a frame of its own, as the clients send them.
pub(super) fn keep_alive(leases: &[usize]) -> Vec<u8> {
    let mut frames = Vec::new();
    for lease in leases {
        let mut message = vec![1 << 3];
        put_varint(&mut message, *lease as u64);
        let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
        frames.extend(frame(DATA, 0, STREAM, &[&[0], &length[..], &message].concat()));
    }
    frames
}

/// Waits for this many `LeaseKeepAliveResponse`s. One without a TTL is of an expired lease.
pub(super) fn kept_alive(bytes: &[u8], expected: usize) -> Result<Option<Reply>> {
    let (mut frames, mut seen, mut expired) = (Frames(bytes), 0, 0);
    while seen < expected {
        let Some(found) = frames.next_whole()? else {
            return Ok(None);
        };
        match found.kind {
            DATA => {
                let mut rest = found.payload;
                while !rest.is_empty() {
                    let (message, after) = split_message(rest)?;
                    seen += 1;
                    expired += usize::from(ttl(message)? == 0);
                    rest = after;
                }
            }
            HEADERS if found.flags & END_STREAM != 0 => bail!("etcd ended the stream"),
            RESET | GO_AWAY => bail!("etcd closed the stream (frame {})", found.kind),
            _ => {}
        }
    }
    Ok(Some(Reply {
        bad: (expired > 0).then(|| format!("{expired} leases have expired")),
        ..Reply::good(bytes.len() - frames.0.len())
    }))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header that is neither compressed nor remembered. Names and values are shorter than 127 bytes.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap_or_default();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

struct Frame<'a> {
    kind: u8,
    flags: u8,
    payload: &'a [u8],
}

/// The frames at the start of some bytes.
struct Frames<'a>(&'a [u8]);

impl<'a> Frames<'a> {
    fn next_whole(&mut self) -> Result<Option<Frame<'a>>> {
        let bytes = self.0;
        if bytes.len() < HEAD {
            return Ok(None);
        }
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let Some(payload) = bytes.get(HEAD..HEAD + length) else {
            return Ok(None);
        };
        self.0 = &bytes[HEAD + length..];
        let (kind, flags) = (bytes[3], bytes[4]);
        Ok(Some(Frame { kind, flags, payload }))
    }
}

/// The first message, after its five bytes of length, and what follows.
fn split_message(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let head: [u8; 5] = bytes.first_chunk().copied().context("a short message")?;
    ensure!(head[0] == 0, "a compressed message");
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    bytes[5..]
        .split_at_checked(length)
        .context("a message in several frames")
}

/// Field 3 of a `LeaseKeepAliveResponse { header = 1, ID = 2, TTL = 3 }`.
fn ttl(mut message: &[u8]) -> Result<u64> {
    while let Some(tag) = take_varint(&mut message) {
        let value = take_varint(&mut message).context("a field without a value")?;
        match tag & 7 {
            0 if tag >> 3 == 3 => return Ok(value),
            0 => {}
            2 => message = message.get(usize::try_from(value)?..).context("a short field")?,
            kind => bail!("a field of kind {kind}"),
        }
    }
    Ok(0)
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `header` of two bytes, id 300, and a TTL.
    fn response(ttl: u64) -> Vec<u8> {
        let mut message = vec![1 << 3 | 2, 2, 8, 9, 2 << 3];
        put_varint(&mut message, 300);
        message.push(3 << 3);
        put_varint(&mut message, ttl);
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        frame(DATA, 0, STREAM, &[&[0], &length[..], &message].concat())
    }

    #[test]
    fn a_reply_is_whole_with_its_last_message() {
        let bytes = [frame(6, 0, 0, &[0; 8]), response(10), response(0)].concat();
        for cut in 0..bytes.len() {
            assert_eq!(kept_alive(&bytes[..cut], 2).unwrap(), None, "cut at {cut}");
        }
        let more = [&bytes[..], b"rest"].concat();
        let reply = kept_alive(&more, 2).unwrap().unwrap();
        assert_eq!(reply.size, bytes.len());
        assert_eq!(reply.bad.as_deref(), Some("1 leases have expired"));
    }

    #[test]
    fn a_closed_stream_is_an_error() {
        for frame in [
            frame(RESET, 0, STREAM, &[0; 4]),
            frame(HEADERS, END_STREAM, STREAM, &[]),
        ] {
            assert!(kept_alive(&frame, 1).is_err());
        }
    }

    #[test]
    fn a_request_is_a_message_with_its_length() {
        let request = keep_alive(&[300]);
        assert_eq!(request, [0, 0, 8, DATA, 0, 0, 0, 0, 1, 0, 0, 0, 0, 3, 8, 0xac, 2]);
    }
}
