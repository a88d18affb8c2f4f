//! One connection through the proxy: two directions, each a reader that judges by the weather and a writer that
//! delivers in order.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until};

use super::{Mode, Shared, Weather};

const CHUNK: usize = 16 * 1024;
/// Chunks that wait for delivery before the sender feels it, as with any full buffer on the way.
const QUEUE: usize = 1024;

/// The connection can't go on and is to be reset.
struct Cut;

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
            // The cutting modes are none of a direction's business: the whole connection ends.
            _ => Flow::Pass,
        }
    }
}

/// Some bytes on their way, or the end of the stream when there are none.
struct Parcel {
    bytes: Vec<u8>,
    due: Option<Instant>,
    /// Held until there were more releases than this.
    held_since: Option<u64>,
    shared: Arc<Shared>,
}

impl Parcel {
    fn new(bytes: &[u8], shared: &Arc<Shared>) -> Parcel {
        let size = bytes.len() as u64;
        shared.count(|counts| counts.held += size);
        Parcel {
            bytes: bytes.to_vec(),
            due: None,
            held_since: None,
            shared: Arc::clone(shared),
        }
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.shared.count(|counts| counts.held -= self.bytes.len() as u64);
    }
}

/// Relays the connection of a client that came in the weather of `born`, until it ends by itself or is cut.
pub(super) async fn run(mut client: TcpStream, born: Weather, shared: Arc<Shared>) {
    shared.count(|counts| counts.open += 1);
    let mut weather = shared.weather.clone();
    let mut upstream = None;
    let end = tokio::select! {
        biased;
        _ = weather.wait_for(|weather| weather.mode.cuts() || weather.cuts > born.cuts) => Err(Cut),
        end = relay(&mut client, &mut upstream, &shared) => end,
    };
    if end.is_err() {
        for stream in [Some(client), upstream].into_iter().flatten() {
            // Closing a socket that must not linger is what sends the reset; it may be reset already.
            let _ = stream.set_zero_linger();
        }
        shared.count(|counts| counts.reset += 1);
    }
    shared.count(|counts| counts.open -= 1);
}

async fn relay(client: &mut TcpStream, upstream: &mut Option<TcpStream>, shared: &Arc<Shared>) -> Result<(), Cut> {
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

/// The server isn't there: its client is told so, except across a black hole.
async fn refuse(from_client: ReadHalf<'_>, shared: &Arc<Shared>) -> Result<(), Cut> {
    let now = *shared.weather.borrow();
    match now.mode {
        Mode::BlackHole => Err(swallow(from_client, 0, now, shared).await),
        _ => Err(Cut),
    }
}

async fn pump(from: ReadHalf<'_>, to: WriteHalf<'_>, direction: Direction, shared: &Arc<Shared>) -> Result<(), Cut> {
    let (queue, parcels) = mpsc::channel(QUEUE);
    tokio::try_join!(
        take_in(from, queue, direction, shared),
        deliver(to, parcels, direction, shared)
    )
    .map(drop)
}

async fn take_in(
    mut from: ReadHalf<'_>,
    queue: mpsc::Sender<Parcel>,
    direction: Direction,
    shared: &Arc<Shared>,
) -> Result<(), Cut> {
    let mut held_since = None;
    let mut buffer = vec![0; CHUNK];
    loop {
        let size = match from.read(&mut buffer).await {
            Ok(size) => size,
            // A client that went away may have left requests that are held; they are still to be delivered.
            Err(_) if direction == Direction::Requests => 0,
            Err(_) => return Err(Cut),
        };
        let now = *shared.weather.borrow();
        let mut parcel = Parcel::new(&buffer[..size], shared);
        // What follows something that is held must not overtake it.
        let behind = held_since == Some(now.releases);
        match direction.flow(now.mode) {
            Flow::Swallow if !behind => {
                drop(parcel);
                return Err(swallow(from, size, now, shared).await);
            }
            Flow::Delay(delay) => parcel.due = Some(Instant::now() + delay),
            Flow::Hold => held_since = Some(now.releases),
            Flow::Pass | Flow::Swallow => {}
        }
        parcel.held_since = held_since;
        let ended = queue.send(parcel).await.is_err() || size == 0;
        if ended {
            return Ok(());
        }
    }
}

/// Reads and forgets, until the mode changes; the stream has a hole then and can only be cut.
async fn swallow(mut from: ReadHalf<'_>, first: usize, since: Weather, shared: &Arc<Shared>) -> Cut {
    let mut weather = shared.weather.clone();
    let mut buffer = vec![0; CHUNK];
    let mut size = first;
    let mut ended = false;
    loop {
        shared.count(|counts| counts.swallowed += size as u64);
        tokio::select! {
            _ = weather.wait_for(|weather| weather.changes > since.changes) => return Cut,
            read = from.read(&mut buffer), if !ended => {
                size = read.unwrap_or(0);
                ended = size == 0;
            }
        }
    }
}

async fn deliver(
    mut to: WriteHalf<'_>,
    mut parcels: mpsc::Receiver<Parcel>,
    direction: Direction,
    shared: &Arc<Shared>,
) -> Result<(), Cut> {
    let mut weather = shared.weather.clone();
    while let Some(mut parcel) = parcels.recv().await {
        if let Some(since) = parcel.held_since {
            weather
                .wait_for(|weather| weather.releases > since)
                .await
                .map_err(|_| Cut)?;
        }
        if let Some(due) = parcel.due {
            sleep_until(due).await;
        }
        let bytes = std::mem::take(&mut parcel.bytes);
        let size = bytes.len() as u64;
        // Counted before it is sent: who has received something finds it counted.
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
        // A client that went away doesn't miss its replies; a server that did ends the connection.
        if sent.is_err() && direction == Direction::Requests {
            return Err(Cut);
        }
    }
    Ok(())
}
