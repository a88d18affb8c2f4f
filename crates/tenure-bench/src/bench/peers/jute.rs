//! The frames of ZooKeeper's protocol that a session with an ephemeral node needs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::load::Reply;

const CREATE: i32 = 1;
const EXISTS: i32 = 3;
const GET_CHILDREN: i32 = 8;
const PING: i32 = 11;

/// The number of pings and their responses.
const PING_XID: i32 = -2;
/// The number of notifications of watches.
const EVENT_XID: i32 = -1;

/// The error of a node that exists already.
const NODE_EXISTS: i32 = -110;
const EPHEMERAL: i32 = 1;
const PERSISTENT: i32 = 0;
/// One entry of an access list: all permissions.
const ALL: [i32; 2] = [1, 31];

/// Asks for a new session.
pub(super) fn connect(timeout: Duration) -> Vec<u8> {
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // Version, last seen transaction, time-out, session id, password, and not read-only.
    let (seen, password) = ([0; 12], text(&[0; 16]));
    framed(&[&seen[..], &timeout.to_be_bytes(), &[0; 8], &password, &[0]].concat())
}

/// The first frame, which answers [`connect`]: the agreed time-out.
pub(super) fn connected(bytes: &[u8]) -> Result<Option<(usize, Duration)>> {
    let Some((size, body)) = first(bytes) else {
        return Ok(None);
    };
    let timeout = u64::try_from(int(body, 4)?).context("a time-out")?;
    ensure!(timeout > 0, "the server refused the session");
    Ok(Some((size, Duration::from_millis(timeout))))
}

/// A heartbeat.
pub(super) fn ping() -> Vec<u8> {
    framed(&header(PING_XID, PING))
}

/// The response to a heartbeat.
pub(super) fn pinged(bytes: &[u8]) -> Result<Option<Reply>> {
    Ok(answer_of(bytes, PING_XID)?.map(|(size, answer)| Reply {
        bad: (answer.error != 0).then(|| format!("error {}", answer.error)),
        ..Reply::good(size)
    }))
}

/// Creates a node, ephemeral or lasting.
pub(super) fn create(xid: i32, path: &str, ephemeral: bool) -> Vec<u8> {
    let flags = if ephemeral { EPHEMERAL } else { PERSISTENT };
    let all = ALL.map(i32::to_be_bytes).concat();
    let acl = [all, text(b"world"), text(b"anyone")].concat();
    let node = [text(path.as_bytes()), text(b"v"), acl, flags.to_be_bytes().to_vec()].concat();
    framed(&[header(xid, CREATE), node].concat())
}

/// Whether a node exists, with a watch for its end.
pub(super) fn exists(xid: i32, path: &str) -> Vec<u8> {
    framed(&[header(xid, EXISTS), text(path.as_bytes()), vec![1]].concat())
}

/// The names below a node.
pub(super) fn children(xid: i32, path: &str) -> Vec<u8> {
    framed(&[header(xid, GET_CHILDREN), text(path.as_bytes()), vec![0]].concat())
}

/// An answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) error: i32,
    /// The number at the start of the body: of children, for [`children`].
    pub(super) count: i32,
}

impl Answer {
    /// Whether a node was created, not found in place.
    pub(super) fn created(&self) -> Result<bool> {
        ensure!(self.error == 0 || self.error == NODE_EXISTS, "error {}", self.error);
        Ok(self.error == 0)
    }
}

/// Waits for the answer with this number, past notifications.
pub(super) fn answer_of(mut bytes: &[u8], xid: i32) -> Result<Option<(usize, Answer)>> {
    let mut before = 0;
    while let Some((size, body)) = first(bytes) {
        before += size;
        if int(body, 0)? == xid {
            // The number, the last transaction, the error.
            let (error, count) = (int(body, 12)?, int(body, 16).unwrap_or(0));
            return Ok(Some((before, Answer { error, count })));
        }
        bytes = &bytes[size..];
    }
    Ok(None)
}

/// Waits for a notification.
pub(super) fn notified(bytes: &[u8]) -> Result<Option<(usize, ())>> {
    Ok(answer_of(bytes, EVENT_XID)?.map(|(size, _)| (size, ())))
}

fn header(xid: i32, kind: i32) -> Vec<u8> {
    [xid.to_be_bytes(), kind.to_be_bytes()].concat()
}

/// A string or buffer with its length.
fn text(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).unwrap_or_default();
    [&length.to_be_bytes(), bytes].concat()
}

fn framed(body: &[u8]) -> Vec<u8> {
    text(body)
}

/// The first frame, if it is whole: its size with the length, and its body.
fn first(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let length = u32::from_be_bytes(bytes.first_chunk().copied()?) as usize;
    Some((length + 4, bytes.get(4..length + 4)?))
}

fn int(body: &[u8], at: usize) -> Result<i32> {
    let bytes = body.get(at..).and_then(|rest| rest.first_chunk().copied());
    Ok(i32::from_be_bytes(bytes.context("a short frame")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(xid: i32, error: i32) -> Vec<u8> {
        framed(&[&xid.to_be_bytes()[..], &[0; 8], &error.to_be_bytes()].concat())
    }

    #[test]
    fn an_answer_is_found_past_notifications() {
        let bytes = [answer(EVENT_XID, 0), answer(7, NODE_EXISTS), answer(PING_XID, 0)].concat();
        let (size, found) = answer_of(&bytes, 7).unwrap().unwrap();
        assert_eq!((size, found.created().unwrap()), (40, false));
        for cut in 0..40 {
            assert_eq!(answer_of(&bytes[..cut], 7).unwrap(), None, "cut at {cut}");
        }
        assert_eq!(pinged(&bytes[size..]).unwrap(), Some(Reply::good(20)));
    }

    #[test]
    fn a_request_has_its_length_first() {
        assert_eq!(ping(), [0, 0, 0, 8, 255, 255, 255, 254, 0, 0, 0, 11]);
        assert_eq!(connect(Duration::from_secs(6)).len(), 49);
        let path = create(1, "/a", true);
        assert_eq!(path.len(), 4 + 8 + 6 + 5 + 4 + 4 + 9 + 10 + 4);
    }
}
