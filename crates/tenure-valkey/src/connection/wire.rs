//! One multiplexed connection to one server: resolved, connected, encrypted if asked for, and introduced.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use rustls::pki_types::ServerName;
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_tls::ClientTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;

use super::life::{self, Failure};
use crate::address::{Endpoint, unusable};

/// Connects. Unbounded; whoever calls bounds it.
///
/// # Errors
/// `Unavailable` when nobody answers; `Denied` or `Misconfigured` when one side does not believe the other.
pub(super) async fn open(
    runtime: &Handle,
    endpoint: &Endpoint,
    handshake: &RedisConnectionInfo,
    tls: Option<&ClientTls>,
) -> Result<(MultiplexedConnection, Driver), Error> {
    let unreachable = |error: std::io::Error| {
        Error::unavailable(format!("cannot connect to {endpoint}"), Outcome::Unchanged).because(error)
    };
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(unreachable)?;
    // Without it a small request waits for the acknowledgement of the one before it.
    stream.set_nodelay(true).map_err(unreachable)?;
    match tls {
        None => introduce(runtime, handshake, stream).await,
        Some(files) => introduce(runtime, handshake, encrypt(runtime, endpoint, files, stream).await?).await,
    }
}

async fn introduce<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    runtime: &Handle,
    handshake: &RedisConnectionInfo,
    stream: S,
) -> Result<(MultiplexedConnection, Driver), Error> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let (wire, driver) = MultiplexedConnection::new_with_config(handshake, stream, config)
        .await
        .map_err(|error| unsent(life::failure_of(&error)))?;
    let driver = runtime.spawn(driver).abort_handle();
    Ok((wire, Driver(driver)))
}

/// Speaks TLS. The files are read anew for each connection, so that a new certificate is used from the next one on.
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
        .map_err(|error| Error::unavailable("the files of TLS were not read", Outcome::Unchanged).because(error))?
        .map_err(unusable)?;
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|error| misconfigured("the host cannot be the name in a certificate").because(error))?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| explain(endpoint, error))
}

/// What a handshake that failed means for whoever has to mend it.
fn explain(endpoint: &Endpoint, error: std::io::Error) -> Error {
    use rustls::Error as Tls;
    let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref::<Tls>()) else {
        let message =
            format!("no TLS at {endpoint}: the connection was closed; does the server speak TLS at this port?");
        return Error::unavailable(message, Outcome::Unchanged).because(error);
    };
    match cause {
        Tls::InvalidCertificate(_) => misconfigured(format!(
            "the certificate of {endpoint} is not believed; name the authority that signed it with tls_ca=PATH, and the \
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
        "the server ends the TLS connection: it wants a client's certificate of an authority that it believes; give \
         tls_cert=PATH and tls_key=PATH",
    )
}

/// The error of a failure before anything of a caller's was sent.
pub(super) fn unsent(failure: Failure) -> Error {
    match failure {
        // With TLS 1.3 a server judges the client's certificate after the client's side of the handshake is done.
        Failure::Broken(why) if why.contains("fatal alert") => refused_by_server().because(why),
        Failure::Broken(why) => Error::unavailable(
            "the connection broke before it was up (a port that speaks TLS needs valkeys:// or rediss://)",
            Outcome::Unchanged,
        )
        .because(why),
        failure => life::into_error(failure),
    }
}

/// Ends the driver of a connection with whoever has it.
pub(super) struct Driver(tokio::task::AbortHandle);

impl Driver {
    /// Ends it now.
    pub(super) fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}
