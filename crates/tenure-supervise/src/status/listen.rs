//! The status over HTTP: every GET returns it. The code is `200` while the child runs and is ready, otherwise `503`, so
//! the endpoint serves as a health check.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tenure_core::clock::{Clock, within};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::Status;

/// The limit of concurrent connections; further ones wait.
const AT_ONCE: usize = 16;
/// The timeout of one connection, which serves one request. A silent connection holds its slot no longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause after a failed accept: the process may be out of descriptors.
const REST: Duration = Duration::from_millis(100);

/// The status server. It stops when the handle is dropped.
#[derive(Debug)]
pub struct StatusServer {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl StatusServer {
    /// The address it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the status.
///
/// # Errors
/// When the address cannot be bound.
pub async fn listen(address: &str, status: watch::Receiver<Status>, clock: Arc<dyn Clock>) -> io::Result<StatusServer> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        loop {
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (status, clock) = (status.clone(), Arc::clone(&clock));
                    tokio::spawn(async move {
                        within(&*clock, PATIENCE, answer(stream, status)).await;
                        drop(place);
                    });
                }
                Err(_) => clock.sleep(REST).await,
            }
        }
    });
    Ok(StatusServer { address, task })
}

async fn answer(stream: TcpStream, status: watch::Receiver<Status>) {
    let service = service_fn(|request: Request<Incoming>| {
        let status = status.borrow().clone();
        async move { Ok::<_, Infallible>(reply(request.method(), &status)) }
    });
    // A client that disconnects early is ignored.
    let _ = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn reply(method: &Method, status: &Status) -> Response<String> {
    let code = match *method {
        Method::GET | Method::HEAD if status.state == "running" => StatusCode::OK,
        Method::GET | Method::HEAD => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::METHOD_NOT_ALLOWED,
    };
    let mut response = Response::new(status.to_json());
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
