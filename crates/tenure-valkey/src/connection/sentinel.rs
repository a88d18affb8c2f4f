//! Finds the primary by asking sentinels.
//!
//! All sentinels are asked in parallel; the answer with the highest epoch wins: a partitioned sentinel still names the
//! old primary. A primary that a majority of the configured sentinels names in three consecutive rounds wins over the
//! epochs: redeployed sentinels restart at epoch 0, and two processes cannot see different majorities. Sentinels are
//! polled while a connection is up, because a primary that was replaced behind a partition neither reports it nor
//! disconnects. (Sentinels also publish a switch, but a subscription can fail silently, so polling is needed anyway.)
//!
//! One answer takes two queries. Only `SENTINEL GET-MASTER-ADDR-BY-NAME` gives the current address: the sentinel that
//! leads a failover names the promoted replica there as soon as its epoch counts, while `SENTINEL MASTER` prints the
//! old address until the other replicas are reconfigured, or for the whole `failover-timeout`. Only `SENTINEL MASTER`
//! gives the epoch. It is queried first: a switch in between then shows as a new address with the old epoch, which the
//! next round corrects, and never as an old address with an unbeatable epoch. (Behaviour of `sentinel.c`, Redis 7.0 and
//! Valkey 8.0.)

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

use super::link::LinkContext;
use super::live::{self, LiveConnection};
use super::wire::{self, Driver, unsent};
use crate::address::{Endpoint, Sentinels};
use crate::reply::{Malformed, Read, Reader, parse};

/// The primary that a sentinel names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedPrimary {
    /// Its address.
    pub(super) at: Endpoint,
    /// Incremented by each failover.
    pub(super) epoch: u64,
}

/// The parameters of a query to one sentinel.
#[derive(Clone)]
struct SentinelQuery {
    at: Endpoint,
    name: String,
    handshake: RedisConnectionInfo,
    tls: Option<ClientTls>,
    runtime: Handle,
    clock: Arc<dyn Clock>,
    bound: Duration,
}

impl SentinelQuery {
    fn all(context: &LinkContext, sentinels: &Sentinels) -> Vec<Sentinel> {
        let of = |at: &Endpoint| Self {
            at: at.clone(),
            name: sentinels.name.clone(),
            handshake: sentinels.handshake.clone(),
            tls: context.address.tls().cloned(),
            runtime: context.runtime.clone(),
            clock: Arc::clone(&context.clock),
            // A silent sentinel must leave time to connect to the primary that the others name.
            bound: context.options.connect_timeout / 3,
        };
        let unconnected = |query| Sentinel { query, wire: None };
        sentinels.at.iter().map(of).map(unconnected).collect()
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, Driver), Error> {
        wire::open(&self.runtime, &self.at, &self.handshake, self.tls.as_ref()).await
    }

    async fn ask(&self, wire: &mut MultiplexedConnection) -> Result<NamedPrimary, Error> {
        let nonsense = |malformed: Malformed| {
            Error::unavailable("a sentinel's reply is malformed", Outcome::Unchanged).because(malformed)
        };
        // The order matters; see the module documentation.
        let epoch = read_epoch(self.question(wire, "MASTER").await?).map_err(nonsense)?;
        let at = read_address(self.question(wire, "GET-MASTER-ADDR-BY-NAME").await?).map_err(nonsense)?;
        Ok(NamedPrimary { at, epoch })
    }

    async fn question(&self, wire: &mut MultiplexedConnection, about: &str) -> Result<Value, Error> {
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg(about).arg(&self.name);
        match live::send(wire, cmd).await {
            Ok(value) => Ok(value),
            Err(live::Failure::Refused(_, words)) if words.to_ascii_lowercase().contains("no such master") => {
                let message = format!("the sentinel at {} knows no primary called {:?}", self.at, self.name);
                Err(Error::new(ErrorKind::Misconfigured, message))
            }
            Err(live::Failure::Refused(_, words)) if words.contains("NOAUTH") || words.contains("NOPERM") => {
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

    /// Bounds a step in time.
    async fn bounded<T>(&self, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        within(&*self.clock, self.bound, step).await.unwrap_or_else(|| {
            let message = format!("the sentinel at {} does not reply", self.at);
            Err(Error::unavailable(message, Outcome::Unchanged))
        })
    }
}

/// A sentinel, and its connection, which is kept between queries.
struct Sentinel {
    query: SentinelQuery,
    wire: Option<(MultiplexedConnection, Driver)>,
}

impl Sentinel {
    /// Queries the sentinel; drops the connection on an error.
    async fn ask(mut self) -> (Self, Result<NamedPrimary, Error>) {
        let (query, kept) = (&self.query, self.wire.take());
        let asked = query.bounded(async move {
            let (mut wire, driver) = match kept {
                Some(kept) => kept,
                None => query.connect().await?,
            };
            let found = query.ask(&mut wire).await?;
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

/// Queries all sentinels, each within its own bound. Returns the sentinels in any order.
async fn ask_all(sentinels: Vec<Sentinel>) -> (Vec<Sentinel>, Vec<Result<NamedPrimary, Error>>) {
    let asked: JoinSet<_> = sentinels.into_iter().map(Sentinel::ask).collect();
    asked.join_all().await.into_iter().unzip()
}

/// Chooses the primary: the highest epoch, which may be the one chosen before; at the same epoch the most votes, then
/// the first address, so that the same answers give the same result everywhere. Pure; O(answers²).
fn choose(before: Option<&NamedPrimary>, answers: &[NamedPrimary]) -> Option<NamedPrimary> {
    let votes = |found: &NamedPrimary| answers.iter().filter(|answer| *answer == found).count();
    let told = answers
        .iter()
        .max_by_key(|found| (found.epoch, votes(found), Reverse(&found.at)));
    match (before, told) {
        (Some(before), Some(told)) if told.epoch < before.epoch => Some(before.clone()),
        (before, told) => told.or(before).cloned(),
    }
}

/// How many rounds a majority must contradict the epochs before it wins.
const ROUNDS: u32 = 3;

/// The votes of a majority of the configured sentinels against the epochs, over consecutive rounds.
#[derive(Debug, Default)]
pub(super) struct MajorityVote {
    named: Option<Endpoint>,
    rounds: u32,
    counted_at: Mono,
}

impl MajorityVote {
    /// Adds the answers of one round and chooses the primary. Rounds closer together than `apart` count as one.
    fn decide(
        &mut self,
        before: Option<&NamedPrimary>,
        answers: &[NamedPrimary],
        configured: usize,
        (now, apart): (Mono, Duration),
    ) -> Option<NamedPrimary> {
        let by_epoch = choose(before, answers);
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
fn majority(answers: &[NamedPrimary], configured: usize) -> Option<Endpoint> {
    let votes = |at: &Endpoint| answers.iter().filter(|answer| answer.at == *at).count();
    let named = answers.iter().find(|answer| votes(&answer.at) > configured / 2);
    named.map(|answer| answer.at.clone())
}

/// Chooses the primary from a round of answers and the rounds before.
fn decide(
    context: &LinkContext,
    sentinels: &Sentinels,
    before: Option<&NamedPrimary>,
    answers: &[NamedPrimary],
) -> Option<NamedPrimary> {
    let when = (context.clock.mono(), context.options.ping_interval);
    let mut majority_vote = context.majority_vote.lock().unwrap_or_else(PoisonError::into_inner);
    majority_vote.decide(before, answers, sentinels.at.len(), when)
}

/// Asks all sentinels for the primary.
///
/// # Errors
/// When no sentinel names it: the most useful of their errors.
pub(super) async fn find(context: &LinkContext, sentinels: &Sentinels) -> Result<NamedPrimary, Error> {
    let (_, answers) = ask_all(SentinelQuery::all(context, sentinels)).await;
    let (mut told, mut failed): (Vec<NamedPrimary>, Option<Error>) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(found) => told.push(found),
            // An error that needs an operator is more useful than an unreachable sentinel.
            Err(error) if failed.as_ref().is_none_or(Error::is_unavailable) => failed = Some(error),
            Err(_) => {}
        }
    }
    decide(context, sentinels, None, &told).ok_or_else(|| {
        let failed = failed.unwrap_or_else(|| Error::unavailable("no sentinel was asked", Outcome::Unchanged));
        let message = format!("none of the {} sentinels names the primary", sentinels.at.len());
        Error::new(failed.kind(), message).because(failed)
    })
}

/// Polls the sentinels while a connection is up, and ends the connection when the primary has changed. Never returns;
/// the end shows in [`LiveConnection::until_ended`].
pub(super) async fn follow(
    context: &LinkContext,
    sentinels: &Sentinels,
    live: &LiveConnection,
    ours: &NamedPrimary,
) -> String {
    let (mut all, mut ours) = (SentinelQuery::all(context, sentinels), ours.clone());
    loop {
        context.clock.sleep(context.options.ping_interval).await;
        let (asked, answers) = ask_all(all).await;
        all = asked;
        let silent = |error: &Error| tracing::debug!(error = error.chain(), "a sentinel did not name the primary");
        let told: Vec<NamedPrimary> = answers
            .into_iter()
            .filter_map(|answer| answer.inspect_err(silent).ok())
            .collect();
        match decide(context, sentinels, Some(&ours), &told) {
            Some(found) if found.at != ours.at => {
                live.end(&format!("the sentinels name another primary, {}", found.at));
                return std::future::pending().await;
            }
            // The epoch may have risen without a new address.
            Some(found) => ours = found,
            None => {}
        }
    }
}

/// Parses the epoch from the reply to `SENTINEL MASTER`: alternating names and values.
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

/// Parses the reply to `SENTINEL GET-MASTER-ADDR-BY-NAME`: the host and the port.
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

    fn at(host: &str, epoch: u64) -> NamedPrimary {
        let (host, port) = (host.to_owned(), 1);
        NamedPrimary {
            at: Endpoint { host, port },
            epoch,
        }
    }

    #[test]
    fn address_and_epoch_are_read() {
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
    fn highest_epoch_wins_over_more_votes() {
        assert_eq!(choose(None, &[]), None);
        let answers = [at("old", 1), at("new", 2), at("old", 1)];
        for turn in 0..answers.len() {
            let mut answers = answers.clone();
            answers.rotate_left(turn);
            assert_eq!(choose(None, &answers), Some(at("new", 2)));
            assert_eq!(choose(Some(&at("old", 1)), &answers), Some(at("new", 2)));
            assert_eq!(choose(Some(&at("new", 2)), &answers), Some(at("new", 2)));
        }
    }

    #[test]
    fn older_epoch_is_ignored_and_equal_epoch_replaces() {
        let ours = at("new", 2);
        for told in [&[][..], &[at("old", 1)], &[at("old", 1), at("old", 1)]] {
            assert_eq!(choose(Some(&ours), told), Some(ours.clone()));
        }
        assert_eq!(choose(Some(&at("old", 2)), &[at("new", 2)]), Some(at("new", 2)));
        // An epoch that rises while the primary stays is kept.
        assert_eq!(choose(Some(&ours), &[at("new", 4), at("old", 3)]), Some(at("new", 4)));
    }

    const ROUND: Duration = Duration::from_secs(1);

    /// The primary that is chosen after a round at this time.
    fn decided(
        majority_vote: &mut MajorityVote,
        before: Option<&NamedPrimary>,
        answers: &[NamedPrimary],
        millis: u64,
    ) -> Option<NamedPrimary> {
        let now = Mono::from_origin(Duration::from_millis(millis));
        majority_vote.decide(before, answers, 3, (now, ROUND))
    }

    #[test]
    fn majority_of_lower_epoch_wins_after_three_rounds() {
        let ours = at("old", 5);
        let redeployed = [at("new", 0), at("new", 0), at("old", 5)];
        let mut majority_vote = MajorityVote::default();
        for (millis, believed) in [(0, "old"), (10, "old"), (1_000, "old"), (2_000, "new"), (2_010, "new")] {
            let found = decided(&mut majority_vote, Some(&ours), &redeployed, millis).unwrap();
            assert_eq!(found.at.host, believed, "{millis}");
        }
        // A new connection chooses the same, although one sentinel still has the higher epoch.
        assert_eq!(
            decided(&mut majority_vote, None, &redeployed, 2_050),
            Some(at("new", 0))
        );
    }

    #[test]
    fn no_switch_without_majority_and_three_rounds() {
        let ours = at("old", 5);
        let (redeployed, one) = ([at("new", 0), at("new", 0)], [at("new", 0)]);
        let mut majority_vote = MajorityVote::default();
        for round in 0..10 {
            assert_eq!(
                decided(&mut majority_vote, Some(&ours), &one, round * 1_000),
                Some(ours.clone())
            );
        }
        // A round without the majority restarts the count.
        for (round, answers) in [&redeployed[..], &redeployed, &[], &redeployed, &redeployed]
            .into_iter()
            .enumerate()
        {
            let millis = 20_000 + round as u64 * 1_000;
            assert_eq!(
                decided(&mut majority_vote, Some(&ours), answers, millis),
                Some(ours.clone())
            );
        }
        // A long majority in agreement with the epochs does not delay a failover.
        let agreed = [at("old", 5), at("old", 5), at("old", 5)];
        for round in 0..10 {
            let millis = 30_000 + round * 1_000;
            assert_eq!(
                decided(&mut majority_vote, Some(&ours), &agreed, millis),
                Some(ours.clone())
            );
        }
        let failover = [at("new", 6), at("old", 5), at("old", 5)];
        assert_eq!(
            decided(&mut majority_vote, Some(&ours), &failover, 41_000),
            Some(at("new", 6))
        );
    }

    #[test]
    fn equal_epoch_tie_is_resolved_the_same_way_everywhere() {
        let answers = [at("b", 2), at("a", 2), at("b", 2)];
        let split = [at("b", 2), at("a", 2), at("c", 1)];
        for turn in 0..answers.len() {
            let (mut answers, mut split) = (answers.clone(), split.clone());
            answers.rotate_left(turn);
            split.rotate_left(turn);
            for ours in [None, Some(&at("a", 2)), Some(&at("b", 2)), Some(&at("c", 1))] {
                assert_eq!(choose(ours, &answers), Some(at("b", 2)));
                assert_eq!(choose(ours, &split), Some(at("a", 2)));
            }
        }
    }
}
