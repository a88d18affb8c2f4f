//! One connection through the proxy: for each direction a reader that applies the mode, and a writer that delivers in
//! order.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until};

use super::{Mode, ModeState, ProxyState};

const CHUNK_SIZE: usize = 16 * 1024;
/// Chunks queued for delivery before the sender blocks, as with any full buffer.
const QUEUE: usize = 1024;

/// The connection must be reset.
struct Reset;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

enum Flow {
    Pass,
    Delay(Duration),
    Hold,
    Swallow,
}

impl Direction {
    fn flow(self, mode: Mode) -> Flow {
        match (mode, self) {
            (Mode::Delay { requests: delay, .. }, Direction::Requests)
            | (Mode::Delay { replies: delay, .. }, Direction::Replies) => Flow::Delay(delay),
            (Mode::BlackHole, _) | (Mode::DropReplies, Direction::Replies) => Flow::Swallow,
            (Mode::HoldAll, _) | (Mode::HoldRequests, Direction::Requests) => Flow::Hold,
            // Resets end the whole connection, not one direction.
            _ => Flow::Pass,
        }
    }
}

/// A chunk in transit; empty at the end of the stream.
struct Chunk {
    bytes: Vec<u8>,
    due: Option<Instant>,
    /// Held until there are more releases than this.
    held_since: Option<u64>,
    shared: Arc<ProxyState>,
}

impl Chunk {
    fn new(bytes: &[u8], shared: &Arc<ProxyState>) -> Chunk {
        let size = bytes.len() as u64;
        shared.count(|counts| counts.held += size);
        Chunk {
            bytes: bytes.to_vec(),
            due: None,
            held_since: None,
            shared: Arc::clone(shared),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.shared.count(|counts| counts.held -= self.bytes.len() as u64);
    }
}

/// Relays the connection of a client that connected in state `born`, until it ends or is reset.
pub(super) async fn run(mut client: TcpStream, born: ModeState, shared: Arc<ProxyState>) {
    shared.count(|counts| counts.open += 1);
    let mut state = shared.state.clone();
    let mut upstream = None;
    let end = tokio::select! {
        biased;
        _ = state.wait_for(|state| state.mode.cuts() || state.cuts > born.cuts) => Err(Reset),
        end = relay(&mut client, &mut upstream, &shared) => end,
    };
    if end.is_err() {
        for stream in [Some(client), upstream].into_iter().flatten() {
            // Closing a socket without linger sends the reset; it may be reset already.
            let _ = stream.set_zero_linger();
        }
        shared.count(|counts| counts.reset += 1);
    }
    shared.count(|counts| counts.open -= 1);
}

async fn relay(
    client: &mut TcpStream,
    upstream: &mut Option<TcpStream>,
    shared: &Arc<ProxyState>,
) -> Result<(), Reset> {
    let _ = client.set_nodelay(true);
    let (from_client, to_client) = client.split();
    let Ok(connected) = TcpStream::connect(shared.upstream()).await else {
        return refuse(from_client, shared).await;
    };
    let _ = connected.set_nodelay(true);
    let (from_upstream, to_upstream) = upstream.insert(connected).split();
    tokio::try_join!(
        pump(from_client, to_upstream, Direction::Requests, shared),
        pump(from_upstream, to_client, Direction::Replies, shared),
    )
    .map(drop)
}

/// The server is down: its client's connection is reset, except in a black hole.
async fn refuse(from_client: ReadHalf<'_>, shared: &Arc<ProxyState>) -> Result<(), Reset> {
    let now = *shared.state.borrow();
    match now.mode {
        Mode::BlackHole => Err(swallow(from_client, 0, now, shared).await),
        _ => Err(Reset),
    }
}

async fn pump(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    direction: Direction,
    shared: &Arc<ProxyState>,
) -> Result<(), Reset> {
    let (queue, chunks) = mpsc::channel(QUEUE);
    tokio::try_join!(
        take_in(from, queue, direction, shared),
        deliver(to, chunks, direction, shared)
    )
    .map(drop)
}

async fn take_in(
    mut from: ReadHalf<'_>,
    queue: mpsc::Sender<Chunk>,
    direction: Direction,
    shared: &Arc<ProxyState>,
) -> Result<(), Reset> {
    let mut held_since = None;
    let mut buffer = vec![0; CHUNK_SIZE];
    loop {
        let size = match from.read(&mut buffer).await {
            Ok(size) => size,
            // A client that has gone may leave held requests; they are still delivered.
            Err(_) if direction == Direction::Requests => 0,
            Err(_) => return Err(Reset),
        };
        let now = *shared.state.borrow();
        let mut chunk = Chunk::new(&buffer[..size], shared);
        // Bytes must not overtake held ones.
        let behind = held_since == Some(now.releases);
        match direction.flow(now.mode) {
            Flow::Swallow if !behind => {
                drop(chunk);
                return Err(swallow(from, size, now, shared).await);
            }
            Flow::Delay(delay) => chunk.due = Some(Instant::now() + delay),
            Flow::Hold => held_since = Some(now.releases),
            Flow::Pass | Flow::Swallow => {}
        }
        chunk.held_since = held_since;
        let ended = queue.send(chunk).await.is_err() || size == 0;
        if ended {
            return Ok(());
        }
    }
}

/// Drops all bytes until the mode changes. The stream then has a gap and must be reset.
async fn swallow(mut from: ReadHalf<'_>, first: usize, since: ModeState, shared: &Arc<ProxyState>) -> Reset {
    let mut state = shared.state.clone();
    let mut buffer = vec![0; CHUNK_SIZE];
    let mut size = first;
    let mut ended = false;
    loop {
        shared.count(|counts| counts.swallowed += size as u64);
        tokio::select! {
            _ = state.wait_for(|state| state.changes > since.changes) => return Reset,
            read = from.read(&mut buffer), if !ended => {
                size = read.unwrap_or(0);
                ended = size == 0;
            }
        }
    }
}

async fn deliver(
    mut to: WriteHalf<'_>,
    mut chunks: mpsc::Receiver<Chunk>,
    direction: Direction,
    shared: &Arc<ProxyState>,
) -> Result<(), Reset> {
    let mut state = shared.state.clone();
    while let Some(mut chunk) = chunks.recv().await {
        if let Some(since) = chunk.held_since {
            state
                .wait_for(|state| state.releases > since)
                .await
                .map_err(|_| Reset)?;
        }
        if let Some(due) = chunk.due {
            sleep_until(due).await;
        }
        let bytes = std::mem::take(&mut chunk.bytes);
        let size = bytes.len() as u64;
        // Counted before it is sent, so that a receiver finds it counted.
        shared.count(|counts| {
            counts.held -= size;
            match direction {
                Direction::Requests => counts.requests += size,
                Direction::Replies => counts.replies += size,
            }
        });
        let sent = if size == 0 {
            to.shutdown().await
        } else {
            to.write_all(&bytes).await
        };
        // A client that has gone needs no replies; a server that has gone ends the connection.
        if sent.is_err() && direction == Direction::Requests {
            return Err(Reset);
        }
    }
    Ok(())
}
