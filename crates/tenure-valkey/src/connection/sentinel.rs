//! Asking sentinels who the primary is.
//!
//! All are asked at once and the answer of the highest epoch is believed: a sentinel that was cut off still names the
//! primary of before. While a connection is up they go on being asked, one after the other, since a primary that was
//! replaced behind a partition neither says so nor goes away. (They would also publish a switch; but a subscription can
//! die in silence, so that one has to ask anyway.)

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisConnectionInfo, Value};
use tenure_core::clock::{Clock, within};
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_tls::ClientTls;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::life::{self, Life};
use super::link::Shared;
use super::wire::{self, Driver, unsent};
use crate::address::{Endpoint, Sentinels};
use crate::reply::{Malformed, Read, Reader};

/// What a sentinel believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Where the primary is.
    pub(super) at: Endpoint,
    /// Rises with each failover.
    pub(super) epoch: u64,
}

/// What is needed to ask one sentinel.
#[derive(Clone)]
struct Asking {
    at: Endpoint,
    name: String,
    handshake: RedisConnectionInfo,
    tls: Option<ClientTls>,
    runtime: Handle,
    clock: Arc<dyn Clock>,
    bound: Duration,
}

impl Asking {
    fn all(shared: &Shared, sentinels: &Sentinels) -> Vec<Self> {
        let of = |at: &Endpoint| Self {
            at: at.clone(),
            name: sentinels.name.clone(),
            handshake: sentinels.handshake.clone(),
            tls: shared.address.tls().cloned(),
            runtime: shared.runtime.clone(),
            clock: Arc::clone(&shared.clock),
            // One that does not answer must leave time to connect to the primary that the others name.
            bound: shared.options.connect_timeout / 3,
        };
        sentinels.at.iter().map(of).collect()
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, Driver), Error> {
        wire::open(&self.runtime, &self.at, &self.handshake, self.tls.as_ref()).await
    }

    async fn ask(&self, wire: &mut MultiplexedConnection) -> Result<Found, Error> {
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg("MASTER").arg(&self.name);
        let value = match life::send(wire, cmd).await {
            Ok(value) => value,
            Err(life::Failure::Refused(_, words)) if words.to_ascii_lowercase().contains("no such master") => {
                let message = format!("the sentinel at {} knows no primary called {:?}", self.at, self.name);
                return Err(Error::new(ErrorKind::Misconfigured, message));
            }
            Err(life::Failure::Refused(_, words)) if words.contains("NOAUTH") || words.contains("NOPERM") => {
                let message = format!(
                    "the sentinel at {} refuses to name the primary; give sentinel_user and sentinel_password, and the \
                     user `+sentinel|master`",
                    self.at
                );
                return Err(Error::new(ErrorKind::Denied, message).because(words));
            }
            Err(failure) => return Err(unsent(failure)),
        };
        read(value).map_err(|malformed| {
            Error::unavailable("a sentinel's answer made no sense", Outcome::Unchanged).because(malformed)
        })
    }

    /// Bounds a step.
    async fn bounded<T>(&self, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        within(&*self.clock, self.bound, step).await.unwrap_or_else(|| {
            let message = format!("the sentinel at {} does not answer", self.at);
            Err(Error::unavailable(message, Outcome::Unchanged))
        })
    }

    async fn once(self) -> Result<Found, Error> {
        let asked = async {
            let (mut wire, _guard) = self.connect().await?;
            self.ask(&mut wire).await
        };
        self.bounded(asked).await
    }
}

/// Asks all sentinels for the primary.
///
/// # Errors
/// When none of them tells: what is most useful of what they said.
pub(super) async fn find(shared: &Shared, sentinels: &Sentinels) -> Result<Found, Error> {
    let mut asked: JoinSet<_> = Asking::all(shared, sentinels).into_iter().map(Asking::once).collect();
    let (mut found, mut failed): (Option<Found>, Option<Error>) = (None, None);
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(answer)) if found.as_ref().is_none_or(|found| answer.epoch > found.epoch) => found = Some(answer),
            Ok(Ok(_)) => {}
            // An error that somebody has to mend tells more than a sentinel that is away.
            Ok(Err(error)) if failed.as_ref().is_none_or(Error::is_unavailable) => failed = Some(error),
            Ok(Err(_)) | Err(_) => {}
        }
    }
    found.ok_or_else(|| {
        let failed = failed.unwrap_or_else(|| Error::unavailable("nobody was asked", Outcome::Unchanged));
        let message = format!("none of the {} sentinels names the primary", sentinels.at.len());
        Error::new(failed.kind(), message).because(failed)
    })
}

/// Goes on asking while a connection is up, and ends it when the primary is another by now. Never returns; the end shows
/// in [`Life::until_ended`].
pub(super) async fn follow(shared: &Shared, sentinels: &Sentinels, life: &Life, ours: &Found) -> String {
    let all = Asking::all(shared, sentinels);
    for asking in all.iter().cycle() {
        if let Err(error) = watch(shared, asking, life, ours).await {
            tracing::debug!(at = %asking.at, error = error.chain(), "a sentinel does not tell; asking the next");
        }
        shared.clock.sleep(shared.options.ping_interval).await;
    }
    // There is at least one sentinel, so nobody comes here.
    std::future::pending().await
}

/// Asks one sentinel again and again, until it does not answer.
async fn watch(shared: &Shared, asking: &Asking, life: &Life, ours: &Found) -> Result<(), Error> {
    let (mut wire, _guard) = asking.bounded(asking.connect()).await?;
    loop {
        let found = asking.bounded(asking.ask(&mut wire)).await?;
        if found.epoch > ours.epoch && found.at != ours.at {
            life.end(&format!("the sentinels name another primary, {}", found.at));
        }
        shared.clock.sleep(shared.options.ping_interval).await;
    }
}

/// Reads the answer to `SENTINEL MASTER`: names and values in turn.
fn read(value: Value) -> Read<Found> {
    let mut reader = Reader::new(value)?;
    let (mut host, mut port, mut epoch) = (None, None, None);
    while reader.left() > 1 {
        let (field, value) = (reader.text()?, reader.text()?);
        match field.as_str() {
            "ip" => host = Some(value),
            "port" => port = value.parse().ok(),
            "config-epoch" => epoch = value.parse().ok(),
            _ => {}
        }
    }
    match (host, port, epoch) {
        (Some(host), Some(port), Some(epoch)) => Ok(Found {
            at: Endpoint { host, port },
            epoch,
        }),
        _ => Err(Malformed("no address or epoch of a primary".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_and_the_epoch_are_found_among_the_rest() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = [
            "name",
            "main",
            "ip",
            "::1",
            "port",
            "7",
            "flags",
            "master",
            "config-epoch",
            "3",
        ];
        let found = read(Value::Array(fields.map(text).to_vec())).unwrap();
        assert_eq!((found.at.to_string(), found.epoch), ("[::1]:7".to_owned(), 3));
        read(Value::Array(["ip", "a", "port", "7"].map(text).to_vec())).unwrap_err();
        read(Value::Nil).unwrap_err();
    }
}
