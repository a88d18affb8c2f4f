//! Asking sentinels who the primary is.
//!
//! All are asked at once and the answer of the highest epoch is believed: a sentinel that was cut off still names the
//! primary of before. What a majority of the configured sentinels names in three rounds in a row counts more: sentinels that
//! were redeployed start at epoch 0 again, and no two processes can see different majorities. They are asked all the time that a
//! connection is up, since a primary that was replaced behind a partition neither says so nor goes away. (They would also publish a switch; but a subscription can die in silence, so
//! that one has to ask anyway.)
//!
//! Two questions make one answer. Where the primary is, only `SENTINEL GET-MASTER-ADDR-BY-NAME` tells: the sentinel that
//! leads a failover names the promoted replica there as soon as its epoch counts, while `SENTINEL MASTER` goes on printing
//! the address of before until the other replicas were told, or for the whole of `failover-timeout`. The epoch, only
//! `SENTINEL MASTER` tells. It is asked first: a switch in between then shows as a new address with the epoch of before,
//! which the next answer corrects, and never as an old address with an epoch that nothing would beat. (Behaviour of
//! `sentinel.c`, Redis 7.0 and Valkey 8.0.)

use std::cmp::Reverse;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisConnectionInfo, Value};
use tenure_core::clock::{Clock, Mono, within};
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_tls::ClientTls;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::life::{self, Life};
use super::link::Shared;
use super::wire::{self, Driver, unsent};
use crate::address::{Endpoint, Sentinels};
use crate::reply::{Malformed, Read, Reader, parse};

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
    fn all(shared: &Shared, sentinels: &Sentinels) -> Vec<Sentinel> {
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
        let unasked = |asking| Sentinel { asking, wire: None };
        sentinels.at.iter().map(of).map(unasked).collect()
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, Driver), Error> {
        wire::open(&self.runtime, &self.at, &self.handshake, self.tls.as_ref()).await
    }

    async fn ask(&self, wire: &mut MultiplexedConnection) -> Result<Found, Error> {
        let nonsense = |malformed: Malformed| {
            Error::unavailable("a sentinel's answer made no sense", Outcome::Unchanged).because(malformed)
        };
        // In this order; see above.
        let epoch = read_epoch(self.question(wire, "MASTER").await?).map_err(nonsense)?;
        let at = read_address(self.question(wire, "GET-MASTER-ADDR-BY-NAME").await?).map_err(nonsense)?;
        Ok(Found { at, epoch })
    }

    async fn question(&self, wire: &mut MultiplexedConnection, about: &str) -> Result<Value, Error> {
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg(about).arg(&self.name);
        match life::send(wire, cmd).await {
            Ok(value) => Ok(value),
            Err(life::Failure::Refused(_, words)) if words.to_ascii_lowercase().contains("no such master") => {
                let message = format!("the sentinel at {} knows no primary called {:?}", self.at, self.name);
                Err(Error::new(ErrorKind::Misconfigured, message))
            }
            Err(life::Failure::Refused(_, words)) if words.contains("NOAUTH") || words.contains("NOPERM") => {
                let message = format!(
                    "the sentinel at {} refuses to name the primary; give sentinel_user and sentinel_password, and the \
                     user `+sentinel|master +sentinel|get-master-addr-by-name`",
                    self.at
                );
                Err(Error::new(ErrorKind::Denied, message).because(words))
            }
            Err(failure) => Err(unsent(failure)),
        }
    }

    /// Bounds a step.
    async fn bounded<T>(&self, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        within(&*self.clock, self.bound, step).await.unwrap_or_else(|| {
            let message = format!("the sentinel at {} does not answer", self.at);
            Err(Error::unavailable(message, Outcome::Unchanged))
        })
    }
}

/// A sentinel, and the connection to it, kept from one question to the next.
struct Sentinel {
    asking: Asking,
    wire: Option<(MultiplexedConnection, Driver)>,
}

impl Sentinel {
    /// Asks; a connection over which no answer came is let go of.
    async fn ask(mut self) -> (Self, Result<Found, Error>) {
        let (asking, kept) = (&self.asking, self.wire.take());
        let asked = asking.bounded(async move {
            let (mut wire, driver) = match kept {
                Some(kept) => kept,
                None => asking.connect().await?,
            };
            let found = asking.ask(&mut wire).await?;
            Ok((found, (wire, driver)))
        });
        match asked.await {
            Ok((found, wire)) => {
                self.wire = Some(wire);
                (self, Ok(found))
            }
            Err(error) => (self, Err(error)),
        }
    }
}

/// Asks all sentinels, and waits for each of them within its bound. The sentinels come back in any order.
async fn ask_all(sentinels: Vec<Sentinel>) -> (Vec<Sentinel>, Vec<Result<Found, Error>>) {
    let asked: JoinSet<_> = sentinels.into_iter().map(Sentinel::ask).collect();
    asked.join_all().await.into_iter().unzip()
}

/// Whom to believe: the highest epoch, which may be the one that was believed before; with the same epoch whom most name,
/// and then the first address, so that all who hear the same believe the same. Pure; O(answers²).
fn believe(before: Option<&Found>, answers: &[Found]) -> Option<Found> {
    let votes = |found: &Found| answers.iter().filter(|answer| *answer == found).count();
    let told = answers
        .iter()
        .max_by_key(|found| (found.epoch, votes(found), Reverse(&found.at)));
    match (before, told) {
        (Some(before), Some(told)) if told.epoch < before.epoch => Some(before.clone()),
        (before, told) => told.or(before).cloned(),
    }
}

/// In so many rounds a majority has to contradict the epochs before it is believed.
const ROUNDS: u32 = 3;

/// What a majority of the configured sentinels says against the epochs, round after round.
#[derive(Debug, Default)]
pub(super) struct Dissent {
    named: Option<Endpoint>,
    rounds: u32,
    counted_at: Mono,
}

impl Dissent {
    /// Takes the answers of one round, and says which primary to believe after it. Rounds that follow each other within `apart` count
    /// as one.
    fn judge(
        &mut self,
        before: Option<&Found>,
        answers: &[Found],
        configured: usize,
        (now, apart): (Mono, Duration),
    ) -> Option<Found> {
        let by_epoch = believe(before, answers);
        let named =
            majority(answers, configured).filter(|named| by_epoch.as_ref().is_some_and(|found| found.at != *named));
        if named.is_none() || named != self.named {
            (self.rounds, self.counted_at) = (u32::from(named.is_some()), now);
            self.named = named;
        } else if now.since(self.counted_at) >= apart {
            (self.rounds, self.counted_at) = (self.rounds.saturating_add(1), now);
        }
        match &self.named {
            Some(at) if self.rounds >= ROUNDS => {
                let of = answers.iter().filter(|answer| answer.at == *at);
                of.max_by_key(|answer| answer.epoch).cloned()
            }
            _ => by_epoch,
        }
    }
}

/// The address that more than half of the configured sentinels name. Pure; O(answers²).
fn majority(answers: &[Found], configured: usize) -> Option<Endpoint> {
    let votes = |at: &Endpoint| answers.iter().filter(|answer| answer.at == *at).count();
    let named = answers.iter().find(|answer| votes(&answer.at) > configured / 2);
    named.map(|answer| answer.at.clone())
}

/// Judges a round of answers, with what was said in the rounds before.
fn judge(shared: &Shared, sentinels: &Sentinels, before: Option<&Found>, answers: &[Found]) -> Option<Found> {
    let when = (shared.clock.mono(), shared.options.ping_interval);
    let mut dissent = shared.dissent.lock().unwrap_or_else(PoisonError::into_inner);
    dissent.judge(before, answers, sentinels.at.len(), when)
}

/// Asks all sentinels for the primary.
///
/// # Errors
/// When none of them tells: what is most useful of what they said.
pub(super) async fn find(shared: &Shared, sentinels: &Sentinels) -> Result<Found, Error> {
    let (_, answers) = ask_all(Asking::all(shared, sentinels)).await;
    let (mut told, mut failed): (Vec<Found>, Option<Error>) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(found) => told.push(found),
            // An error that somebody has to mend tells more than a sentinel that is away.
            Err(error) if failed.as_ref().is_none_or(Error::is_unavailable) => failed = Some(error),
            Err(_) => {}
        }
    }
    judge(shared, sentinels, None, &told).ok_or_else(|| {
        let failed = failed.unwrap_or_else(|| Error::unavailable("nobody was asked", Outcome::Unchanged));
        let message = format!("none of the {} sentinels names the primary", sentinels.at.len());
        Error::new(failed.kind(), message).because(failed)
    })
}

/// Goes on asking all of them while a connection is up, and ends it when the primary is another by now. Never returns; the
/// end shows in [`Life::until_ended`].
pub(super) async fn follow(shared: &Shared, sentinels: &Sentinels, life: &Life, ours: &Found) -> String {
    let (mut all, mut ours) = (Asking::all(shared, sentinels), ours.clone());
    loop {
        shared.clock.sleep(shared.options.ping_interval).await;
        let (asked, answers) = ask_all(all).await;
        all = asked;
        let silent = |error: &Error| tracing::debug!(error = error.chain(), "a sentinel does not tell");
        let told: Vec<Found> = answers
            .into_iter()
            .filter_map(|answer| answer.inspect_err(silent).ok())
            .collect();
        match judge(shared, sentinels, Some(&ours), &told) {
            Some(found) if found.at != ours.at => {
                life.end(&format!("the sentinels name another primary, {}", found.at));
                return std::future::pending().await;
            }
            // Its epoch may have risen all the same.
            Some(found) => ours = found,
            None => {}
        }
    }
}

/// Reads the epoch from the answer to `SENTINEL MASTER`: names and values in turn.
fn read_epoch(value: Value) -> Read<u64> {
    let mut reader = Reader::new(value)?;
    while reader.left() > 1 {
        let (field, value) = (reader.text()?, reader.text()?);
        if field == "config-epoch" {
            return parse("an epoch", &value);
        }
    }
    Err(Malformed("no epoch of a primary".to_owned()))
}

/// Reads the answer to `SENTINEL GET-MASTER-ADDR-BY-NAME`: the host and the port.
fn read_address(value: Value) -> Read<Endpoint> {
    let mut reader = Reader::new(value)?;
    let (host, port) = (reader.text()?, parse("a port", &reader.text()?)?);
    Ok(Endpoint { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn array(texts: &[&str]) -> Value {
        Value::Array(texts.iter().copied().map(text).collect())
    }

    fn at(host: &str, epoch: u64) -> Found {
        let (host, port) = (host.to_owned(), 1);
        Found {
            at: Endpoint { host, port },
            epoch,
        }
    }

    #[test]
    fn the_address_and_the_epoch_are_read() {
        let fields = [
            "name",
            "main",
            "ip",
            "::1",
            "port",
            "7",
            "config-epoch",
            "3",
            "quorum",
            "2",
        ];
        assert_eq!(read_epoch(array(&fields)), Ok(3));
        assert_eq!(read_address(array(&["::1", "7"])).unwrap().to_string(), "[::1]:7");
        for bad in [array(&["ip", "a"]), array(&["config-epoch", "-1"]), Value::Nil] {
            read_epoch(bad).unwrap_err();
        }
        for bad in [array(&["a"]), array(&["a", "65536"]), Value::Nil] {
            read_address(bad).unwrap_err();
        }
    }

    #[test]
    fn the_highest_epoch_is_believed_whoever_tells_it_and_however_often_another_is_told() {
        assert_eq!(believe(None, &[]), None);
        let answers = [at("old", 1), at("new", 2), at("old", 1)];
        for turn in 0..answers.len() {
            let mut answers = answers.clone();
            answers.rotate_left(turn);
            assert_eq!(believe(None, &answers), Some(at("new", 2)));
            assert_eq!(believe(Some(&at("old", 1)), &answers), Some(at("new", 2)));
            assert_eq!(believe(Some(&at("new", 2)), &answers), Some(at("new", 2)));
        }
    }

    #[test]
    fn what_was_believed_gives_way_to_nothing_older_and_to_another_of_the_same_epoch() {
        let ours = at("new", 2);
        for told in [&[][..], &[at("old", 1)], &[at("old", 1), at("old", 1)]] {
            assert_eq!(believe(Some(&ours), told), Some(ours.clone()));
        }
        assert_eq!(believe(Some(&at("old", 2)), &[at("new", 2)]), Some(at("new", 2)));
        // An epoch that rises while the primary stays is kept.
        assert_eq!(believe(Some(&ours), &[at("new", 4), at("old", 3)]), Some(at("new", 4)));
    }

    const ROUND: Duration = Duration::from_secs(1);

    /// The primary that is believed after a round, so long after the start.
    fn judged(dissent: &mut Dissent, before: Option<&Found>, answers: &[Found], millis: u64) -> Option<Found> {
        let now = Mono::from_origin(Duration::from_millis(millis));
        dissent.judge(before, answers, 3, (now, ROUND))
    }

    #[test]
    fn a_majority_of_lower_epoch_is_believed_after_three_rounds() {
        let ours = at("old", 5);
        let redeployed = [at("new", 0), at("new", 0), at("old", 5)];
        let mut dissent = Dissent::default();
        for (millis, believed) in [(0, "old"), (10, "old"), (1_000, "old"), (2_000, "new"), (2_010, "new")] {
            let found = judged(&mut dissent, Some(&ours), &redeployed, millis).unwrap();
            assert_eq!(found.at.host, believed, "{millis}");
        }
        // A new connection then believes the same, although one sentinel still has the higher epoch.
        assert_eq!(judged(&mut dissent, None, &redeployed, 2_050), Some(at("new", 0)));
    }

    #[test]
    fn fewer_than_a_majority_or_three_rounds_change_nothing() {
        let ours = at("old", 5);
        let (redeployed, one) = ([at("new", 0), at("new", 0)], [at("new", 0)]);
        let mut dissent = Dissent::default();
        for round in 0..10 {
            assert_eq!(
                judged(&mut dissent, Some(&ours), &one, round * 1_000),
                Some(ours.clone())
            );
        }
        // A round without them begins the count again.
        for (round, answers) in [&redeployed[..], &redeployed, &[], &redeployed, &redeployed]
            .into_iter()
            .enumerate()
        {
            let millis = 20_000 + round as u64 * 1_000;
            assert_eq!(judged(&mut dissent, Some(&ours), answers, millis), Some(ours.clone()));
        }
        // A majority for what the epochs say, however long, does not delay a failover.
        let agreed = [at("old", 5), at("old", 5), at("old", 5)];
        for round in 0..10 {
            let millis = 30_000 + round * 1_000;
            assert_eq!(judged(&mut dissent, Some(&ours), &agreed, millis), Some(ours.clone()));
        }
        let failover = [at("new", 6), at("old", 5), at("old", 5)];
        assert_eq!(judged(&mut dissent, Some(&ours), &failover, 41_000), Some(at("new", 6)));
    }

    #[test]
    fn sentinels_that_disagree_within_an_epoch_are_believed_alike_by_all() {
        let answers = [at("b", 2), at("a", 2), at("b", 2)];
        let split = [at("b", 2), at("a", 2), at("c", 1)];
        for turn in 0..answers.len() {
            let (mut answers, mut split) = (answers.clone(), split.clone());
            answers.rotate_left(turn);
            split.rotate_left(turn);
            for ours in [None, Some(&at("a", 2)), Some(&at("b", 2)), Some(&at("c", 1))] {
                assert_eq!(believe(ours, &answers), Some(at("b", 2)));
                assert_eq!(believe(ours, &split), Some(at("a", 2)));
            }
        }
    }
}
