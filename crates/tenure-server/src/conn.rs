//! One connection: HTTP/1.1 over a socket whose other side has to keep reading.

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

/// How long a new connection may take for its first byte (with TLS: the first one after shaking hands).
const FIRST_BYTE: Duration = Duration::from_secs(5);
/// The most headers of a request.
const MAX_HEADERS: usize = 64;
/// The most bytes of a request's head, and of what is buffered of a connection.
const MAX_BUFFER: usize = 64 * 1024;

/// Serves a connection until its other side closes it, it idles too long, or `draining` lets it finish what is under way.
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
        return talk(app, router, socket, peer(None), draining).await;
    };
    // A task of its own, with an end: whoever does not shake hands holds up nobody.
    let shaken = within(&*app.clock, app.settings.handshake_timeout, tls.accept(socket));
    let shaken = tokio::select! {
        biased;
        () = draining.cancelled() => return,
        shaken = shaken => shaken,
    };
    match shaken {
        Some(Ok((stream, certificate))) => talk(app, router, stream, peer(certificate), draining).await,
        Some(Err(error)) => {
            meters::handshake_failed();
            tracing::debug!(%address, %error, "a handshake failed");
        }
        None => {
            meters::handshake_failed();
            tracing::debug!(%address, "a handshake took too long");
        }
    }
}

/// Speaks HTTP.
async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    app: Arc<App>,
    router: Router,
    socket: S,
    peer: Peer,
    draining: CancellationToken,
) {
    let io = Reading {
        socket,
        first: Some(app.clock.sleep(FIRST_BYTE.min(app.settings.idle_timeout))),
        link: Arc::clone(&peer.link),
        clock: Arc::clone(&app.clock),
        patience: app.settings.stall_timeout,
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
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// A socket that fails when its other side does not read for too long, so that nobody can hold memory of ours by not
/// reading, and when it sends nothing at first. It counts what comes.
struct Reading<S> {
    socket: S,
    /// Runs until the first byte.
    first: Option<Sleep>,
    link: Arc<Link>,
    clock: Arc<dyn Clock>,
    patience: Duration,
    /// Runs while a write waits.
    stalled: Option<Sleep>,
}

impl<S> Reading<S> {
    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let sleep = self.stalled.get_or_insert_with(|| self.clock.sleep(patience));
        ready!(sleep.as_mut().poll(context));
        meters::stalled();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Reading<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Reading<S> {
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

    fn reading<S>(socket: S, clock: &Arc<ManualClock>, patience: Duration) -> Reading<S> {
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        Reading {
            socket,
            first: Some(clock.sleep(FIRST_BYTE)),
            link: Arc::new(Link::new(from, clock.mono())),
            clock: clock.clone(),
            patience,
            stalled: None,
        }
    }

    #[tokio::test]
    async fn a_new_connection_has_five_seconds_for_its_first_byte() {
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
            "from then on it has its idle time"
        );
    }

    #[tokio::test]
    async fn a_last_word_that_nobody_reads_is_not_waited_for_for_ever() {
        let clock = Arc::new(ManualClock::new(0, 1));
        let patience = Duration::from_secs(20);
        let mut socket = reading(Full, &clock, patience);
        let mut goodbye = pin!(socket.shutdown());
        assert!(poll!(goodbye.as_mut()).is_pending());
        clock.advance(patience - Duration::from_millis(1));
        assert!(poll!(goodbye.as_mut()).is_pending());
        clock.advance(Duration::from_millis(1));
        match poll!(goodbye.as_mut()) {
            Poll::Ready(Err(error)) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
            other => panic!("{other:?}"),
        }
    }
}
