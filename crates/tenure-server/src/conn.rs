//! One connection: HTTP/1.1 over a socket whose other side has to keep reading.

use std::io;
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
use tenure_core::clock::{Clock, Sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::app::App;
use crate::meters::{self, Open};

/// The most headers of a request.
const MAX_HEADERS: usize = 64;
/// The most bytes of a request's head, and of what is buffered of a connection.
const MAX_BUFFER: usize = 64 * 1024;

/// Serves a connection until its other side closes it, it idles too long, or `draining` lets it finish what is under way.
pub(crate) async fn serve(app: Arc<App>, router: Router, socket: TcpStream, draining: CancellationToken) {
    let _open = Open::new();
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "a connection without TCP_NODELAY");
    }
    let io = Reading {
        socket,
        clock: Arc::clone(&app.clock),
        patience: app.settings.stall_timeout,
        stalled: None,
    };
    let service = service_fn(move |request: Request<Incoming>| router.clone().oneshot(request.map(Body::new)));
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
/// reading.
struct Reading {
    socket: TcpStream,
    clock: Arc<dyn Clock>,
    patience: Duration,
    /// Runs while a write waits.
    stalled: Option<Sleep>,
}

impl Reading {
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

impl AsyncRead for Reading {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for Reading {
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
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
