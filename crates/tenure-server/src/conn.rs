//! One HTTP/1.1 connection, and its time-outs.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tenure_core::clock::{Clock, Sleep, within};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::app::App;
use crate::auth::Peer;
use crate::connections::Link;
use crate::meters;

/// The time limit for the first byte of a new connection (with TLS: after the handshake).
const FIRST_BYTE: Duration = Duration::from_secs(5);
/// The most headers of a request.
const MAX_HEADERS: usize = 64;
/// The most bytes of a request head, and of a connection's buffer.
const MAX_BUFFER: usize = 64 * 1024;

/// Serves a connection until the client closes it, it is idle too long, or `draining` is cancelled and its current request
/// is answered.
pub(crate) async fn serve(
    app: Arc<App>,
    router: Router,
    (socket, address): (TcpStream, SocketAddr),
    link: Arc<Link>,
    draining: CancellationToken,
) {
    let peer = |certificate| Peer {
        address,
        certificate,
        link,
    };
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "a connection without TCP_NODELAY");
    }
    let Some(tls) = app.tls.clone() else {
        return serve_http(app, router, socket, peer(None), draining).await;
    };
    // In the task of this connection, with a time limit: a slow handshake delays no other connection.
    let shaken = within(&*app.clock, app.settings.handshake_timeout, tls.accept(socket));
    let shaken = tokio::select! {
        biased;
        () = draining.cancelled() => return,
        shaken = shaken => shaken,
    };
    match shaken {
        Some(Ok((stream, certificate))) => serve_http(app, router, stream, peer(certificate), draining).await,
        Some(Err(error)) => {
            meters::handshake_failed();
            tracing::debug!(%address, %error, "TLS handshake failed");
        }
        None => {
            meters::handshake_failed();
            tracing::debug!(%address, "TLS handshake timed out");
        }
    }
}

async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    app: Arc<App>,
    router: Router,
    socket: S,
    peer: Peer,
    draining: CancellationToken,
) {
    let io = WatchedSocket {
        socket,
        first: Some(app.clock.sleep(FIRST_BYTE.min(app.settings.idle_timeout))),
        link: Arc::clone(&peer.link),
        clock: Arc::clone(&app.clock),
        stall_timeout: app.settings.stall_timeout,
        stalled: None,
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.settings.idle_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = draining.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection failed");
    }
}

/// A socket that fails when the client does not read for too long (it would hold our memory), or sends no first byte in
/// time. Counts received bytes.
struct WatchedSocket<S> {
    socket: S,
    /// The timer for the first byte.
    first: Option<Sleep>,
    link: Arc<Link>,
    clock: Arc<dyn Clock>,
    stall_timeout: Duration,
    /// The timer of a blocked write.
    stalled: Option<Sleep>,
}

impl<S> WatchedSocket<S> {
    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stall_timeout = self.stall_timeout;
        let sleep = self.stalled.get_or_insert_with(|| self.clock.sleep(stall_timeout));
        ready!(sleep.as_mut().poll(context));
        meters::stalled();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        if read.is_ready() {
            self.first = None;
            self.link.received(buffer.filled().len() - before);
        } else if let Some(first) = &mut self.first {
            ready!(first.as_mut().poll(context));
            let silent = io::Error::new(io::ErrorKind::TimedOut, "the client sends nothing");
            return Poll::Ready(Err(silent));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, pieces);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS it has a last word to write, and waits for room for it.
        let shut = Pin::new(&mut self.socket).poll_shutdown(context);
        self.watch(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use tenure_core::clock::ManualClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A socket whose other side reads nothing any more.
    struct Full;

    impl AsyncWrite for Full {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    fn reading<S>(socket: S, clock: &Arc<ManualClock>, stall_timeout: Duration) -> WatchedSocket<S> {
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        WatchedSocket {
            socket,
            first: Some(clock.sleep(FIRST_BYTE)),
            link: Arc::new(Link::new(from, clock.mono())),
            clock: clock.clone(),
            stall_timeout,
            stalled: None,
        }
    }

    #[tokio::test]
    async fn first_byte_times_out_after_five_seconds() {
        let clock = Arc::new(ManualClock::new(0, 1));
        let (mut other, socket) = tokio::io::duplex(64);
        let mut socket = reading(socket, &clock, FIRST_BYTE * 10);
        let mut byte = [0];
        {
            let mut silent = pin!(socket.read(&mut byte));
            assert!(poll!(silent.as_mut()).is_pending());
            clock.advance(FIRST_BYTE - Duration::from_millis(1));
            assert!(poll!(silent.as_mut()).is_pending());
            clock.advance(Duration::from_millis(1));
            match poll!(silent.as_mut()) {
                Poll::Ready(Err(error)) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
                other => panic!("{other:?}"),
            }
        }
        socket.first = Some(clock.sleep(FIRST_BYTE));
        other.write_all(b"G").await.unwrap();
        assert_eq!(socket.read(&mut byte).await.unwrap(), 1);
        clock.advance(FIRST_BYTE * 2);
        assert!(
            poll!(pin!(socket.read(&mut byte))).is_pending(),
            "from then on the idle time-out applies"
        );
    }

    #[tokio::test]
    async fn shutdown_of_a_socket_that_is_not_read_times_out() {
        let clock = Arc::new(ManualClock::new(0, 1));
        let stall_timeout = Duration::from_secs(20);
        let mut socket = reading(Full, &clock, stall_timeout);
        let mut goodbye = pin!(socket.shutdown());
        assert!(poll!(goodbye.as_mut()).is_pending());
        clock.advance(stall_timeout - Duration::from_millis(1));
        assert!(poll!(goodbye.as_mut()).is_pending());
        clock.advance(Duration::from_millis(1));
        match poll!(goodbye.as_mut()) {
            Poll::Ready(Err(error)) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
            other => panic!("{other:?}"),
        }
    }
}
