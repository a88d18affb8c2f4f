//! One multiplexed connection to one server: resolved, connected, encrypted if configured, and authenticated.

use std::sync::Arc;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use rustls::pki_types::ServerName;
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_tls::ClientTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;

use super::greeting::greet;
use super::live::{self, Failure};
use crate::address::{Endpoint, unusable};

/// Connects. Not bounded in time; the caller bounds it.
///
/// # Errors
/// `Unavailable` when the server does not answer; `Denied` or `Misconfigured` when authentication or TLS fails.
pub(super) async fn open(
    runtime: &Handle,
    endpoint: &Endpoint,
    handshake: &RedisConnectionInfo,
    tls: Option<&ClientTls>,
) -> Result<(MultiplexedConnection, Driver), Error> {
    let stream = connect(endpoint).await?;
    match tls {
        None => introduce(runtime, handshake, stream).await,
        Some(files) => introduce(runtime, handshake, encrypt(runtime, endpoint, files, stream).await?).await,
    }
}

/// Opens a connection for a subscription.
///
/// # Errors
/// Those of [`open`].
pub(super) async fn open_subscriber(
    runtime: &Handle,
    endpoint: &Endpoint,
    handshake: &RedisConnectionInfo,
    tls: Option<&ClientTls>,
) -> Result<PubSub, Error> {
    let mut stream = connect(endpoint).await?;
    let opened = match tls {
        None => PubSub::new(&greet(handshake, &mut stream).await?, stream).await,
        Some(files) => {
            let mut stream = encrypt(runtime, endpoint, files, stream).await?;
            PubSub::new(&greet(handshake, &mut stream).await?, stream).await
        }
    };
    opened.map_err(|error| unsent(live::failure_of(&error)))
}

async fn connect(endpoint: &Endpoint) -> Result<TcpStream, Error> {
    let unreachable = |error: std::io::Error| {
        Error::unavailable(format!("cannot connect to {endpoint}"), Outcome::Unchanged).because(error)
    };
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(unreachable)?;
    // Otherwise a small request waits for the acknowledgement of the previous one.
    stream.set_nodelay(true).map_err(unreachable)?;
    Ok(stream)
}

async fn introduce<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    runtime: &Handle,
    handshake: &RedisConnectionInfo,
    mut stream: S,
) -> Result<(MultiplexedConnection, Driver), Error> {
    let opened = greet(handshake, &mut stream).await?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let (wire, driver) = MultiplexedConnection::new_with_config(&opened, stream, config)
        .await
        .map_err(|error| unsent(live::failure_of(&error)))?;
    let driver = runtime.spawn(driver).abort_handle();
    Ok((wire, Driver(driver)))
}

/// Starts TLS. The files are read for each connection, so a new certificate is used from the next one on.
async fn encrypt(
    runtime: &Handle,
    endpoint: &Endpoint,
    files: &ClientTls,
    stream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Error> {
    let files = files.clone();
    let config = runtime
        .spawn_blocking(move || files.config())
        .await
        .map_err(|error| Error::unavailable("the TLS files were not read", Outcome::Unchanged).because(error))?
        .map_err(unusable)?;
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|error| misconfigured("the host cannot be the name in a certificate").because(error))?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| explain(endpoint, error))
}

/// Explains a failed TLS handshake and its fix.
fn explain(endpoint: &Endpoint, error: std::io::Error) -> Error {
    use rustls::Error as Tls;
    let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref::<Tls>()) else {
        let message = format!(
            "no TLS at {endpoint}: the server closed the connection; either this port does not speak TLS, or the server \
                 has no connection left (maxclients)"
        );
        return Error::unavailable(message, Outcome::Unchanged).because(error);
    };
    match cause {
        Tls::InvalidCertificate(_) => misconfigured(format!(
            "the certificate of {endpoint} is not trusted; name the authority that signed it with tls_ca=PATH, and the \
             server by a name that is in it"
        )),
        Tls::AlertReceived(_) => refused_by_server(),
        _ => misconfigured(format!(
            "no TLS at {endpoint}; for a port without TLS write valkey:// or redis://"
        )),
    }
    .because(error)
}

fn misconfigured(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

fn refused_by_server() -> Error {
    Error::new(
        ErrorKind::Denied,
        "the server ends the TLS connection: it requires a client certificate from an authority that it trusts; give \
         tls_cert=PATH and tls_key=PATH",
    )
}

/// The error of a failure before the caller's request was sent.
pub(super) fn unsent(failure: Failure) -> Error {
    match failure {
        // With TLS 1.3 the server checks the client's certificate after the client has finished its handshake.
        Failure::Broken(why) if why.contains("fatal alert") => refused_by_server().because(why),
        Failure::Broken(why) => Error::unavailable(
            "the connection ended before the server answered; for a port that speaks TLS write valkeys:// or rediss://",
            Outcome::Unchanged,
        )
        .because(why),
        failure => live::into_error(failure),
    }
}

/// Aborts the driver of a connection when dropped.
pub(super) struct Driver(tokio::task::AbortHandle);

impl Driver {
    /// Aborts the driver now.
    pub(super) fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}
