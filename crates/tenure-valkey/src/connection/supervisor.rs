//! Keeps one connection up: finds out whom to connect to, connects, watches, and connects anew with full-jitter backoff.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tenure_core::clock::{Clock, within};
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::remote_clock::RemoteClock;

use super::life::{self, Failure, Life};
use super::link::{Shared, State};
use super::options::Need;
use super::patient::{self, Duty};
use super::sentinel::{self, Found};
use super::wire::{self, unsent};
use crate::address::{Endpoint, Servers};
use crate::classify::Verdict;
use crate::reply::{Malformed, Reader};

/// The shortest bound of a backoff.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_millis(25);
/// The longest bound of a backoff.
const LAST_BACKOFF: Duration = Duration::from_secs(1);

const PROBE: &str = include_str!("../scripts/probe.lua");

/// Starts the supervisor on the connection's own runtime, and starts it again should it ever panic.
pub(super) fn start(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    let runtime = shared.runtime.clone();
    runtime.clone().spawn(async move {
        while !shared.is_closed() {
            if let Err(error) = runtime.spawn(supervise(Arc::clone(&shared))).await {
                tracing::error!(place = shared.address.place(), %error, "the supervisor of the store's connection ended; starting it again");
                shared.clock.sleep(LAST_BACKOFF).await;
            }
        }
    });
}

async fn supervise(shared: Arc<Shared>) {
    let mut failures = 0u32;
    while !shared.is_closed() {
        let number = shared.lives.fetch_add(1, Ordering::Relaxed) + 1;
        let began = shared.clock.mono();
        let reason = match connect(&shared, number).await {
            Ok((life, found, duty)) => {
                let reason = serve(&shared, &life, found.as_ref(), duty).await;
                // A connection that did not last is a failure like one that was refused.
                if shared.clock.mono().since(began) > LAST_BACKOFF {
                    failures = 0;
                }
                Error::unavailable(reason, Outcome::Unchanged)
            }
            Err(error) => error,
        };
        let backoff = backoff(failures);
        failures = failures.saturating_add(1);
        go_down(&shared, &reason, backoff);
        shared.tried.send_replace(true);
        shared.clock.sleep(full_jitter(&*shared.clock, backoff)).await;
    }
}

/// Publishes the connection and watches it until it ends; tells why it did.
async fn serve(shared: &Arc<Shared>, life: &Arc<Life>, found: Option<&Found>, duty: Option<Duty>) -> String {
    shared.set_state(State::Up(Arc::clone(life)));
    if shared.is_closed() {
        // `close` came between: it found nothing to end.
        shared.close();
    }
    shared.tried.send_replace(true);
    tracing::info!(place = shared.address.place(), "connected to the store");
    tokio::select! {
        why = life.until_ended() => why,
        why = keep_asking(shared, life) => why,
        why = keep_following(shared, life, found) => why,
        why = keep_confirming(shared, life, duty) => why,
    }
}

/// Sends what replicas have to confirm. Returns never.
async fn keep_confirming(shared: &Arc<Shared>, life: &Arc<Life>, duty: Option<Duty>) -> String {
    match (life.patient(), duty) {
        (Some(patient), Some(duty)) => patient::keep(shared, life, patient, duty).await,
        _ => std::future::pending().await,
    }
}

/// Looks whether sentinels name another primary by now. Returns never.
async fn keep_following(shared: &Arc<Shared>, life: &Arc<Life>, found: Option<&Found>) -> String {
    match (shared.address.servers(), found) {
        (Servers::Sentinels(sentinels), Some(found)) => sentinel::follow(shared, sentinels, life, found).await,
        _ => std::future::pending().await,
    }
}

/// Asks an idle connection whether it still works. Returns never; the end shows in [`Life::until_ended`].
async fn keep_asking(shared: &Arc<Shared>, life: &Arc<Life>) -> String {
    let interval = shared.options.ping_interval;
    loop {
        shared.clock.sleep(interval).await;
        if life.heard_within(interval, shared) {
            continue;
        }
        let bound = shared.options.request_timeout;
        match within(&*shared.clock, bound, life.ask_time(shared)).await {
            Some(Ok(())) => life.answered(),
            Some(Err(Failure::Broken(why))) => life.end(&why),
            Some(Err(failure)) => tracing::debug!(?failure, "the store refused to tell its time"),
            None => drop(life.timed_out(bound)),
        }
    }
}

fn go_down(shared: &Shared, reason: &Error, retry_after: Duration) {
    if shared.is_closed() {
        return;
    }
    let (kind, text) = (reason.kind(), reason.chain());
    let news = match &*shared.read_state() {
        State::Up(_) => true,
        State::Down { reason, .. } => *reason != text,
    };
    if news {
        tracing::warn!(
            place = shared.address.place(),
            reason = text,
            "the store is out of reach"
        );
    }
    shared.set_state(State::Down {
        kind,
        reason: text,
        retry_after,
    });
}

/// The bound of the wait after so many failures in a row: 25 ms, doubled each time, up to 1 s.
pub(super) fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.min(10)).min(LAST_BACKOFF)
}

/// Anything from nothing to the bound, so that those who lost one server together do not come back together.
pub(super) fn full_jitter(clock: &dyn Clock, bound: Duration) -> Duration {
    let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(clock.entropy() % nanos)
}

/// Resolves the name, connects, says who we are, asks the time, and looks whether we may do what we need.
async fn connect(shared: &Arc<Shared>, number: u64) -> Result<Established, Error> {
    let bound = shared.options.connect_timeout;
    let done = within(&*shared.clock, bound, establish(shared, number)).await;
    done.unwrap_or_else(|| {
        let bound = tenure_core::time::show_duration(bound);
        // A server without TLS takes the first words of TLS for an unfinished command, and waits for the rest.
        let hint = match shared.address.tls() {
            Some(_) => " (does the server speak TLS at this port?)",
            None => "",
        };
        let message = format!("no connection within {bound}{hint}");
        Err(Error::unavailable(message, Outcome::Unchanged))
    })
}

/// A connection, whom sentinels named, and what is to be done for what replicas confirm.
type Established = (Arc<Life>, Option<Found>, Option<Duty>);

async fn establish(shared: &Arc<Shared>, number: u64) -> Result<Established, Error> {
    let (at, found) = resolve(shared).await?;
    let (handshake, tls) = (shared.address.handshake(), shared.address.tls());
    let (mut wire, driver) = wire::open(&shared.runtime, &at, handshake, tls).await?;
    let asked = shared.clock.mono();
    let value = life::send(&mut wire, redis::cmd("TIME")).await.map_err(unsent)?;
    let arrived = shared.clock.mono();
    let now = life::read_time(value).map_err(|malformed| unsent(Failure::Broken(malformed.to_string())))?;
    let store_clock = RemoteClock::default();
    store_clock.learn(now, asked, arrived);
    if found.is_some() || shared.address.wants_primary() {
        check_role(&mut wire, &at, found.is_some()).await?;
    }
    probe(&mut wire, &shared.needs).await?;
    let (mut confirming, mut duty) = (None, None);
    if let Some(wait) = shared.address.wait() {
        let wire = wire::open(&shared.runtime, &at, handshake, tls).await?;
        let (patient, of_patient) = patient::begin(wire, at, wait);
        (confirming, duty) = (Some(patient), Some(of_patient));
    }
    let life = Life::new(number, (wire, driver), confirming, store_clock);
    Ok((life, found, duty))
}

/// Whom to connect to.
async fn resolve(shared: &Shared) -> Result<(Endpoint, Option<Found>), Error> {
    match shared.address.servers() {
        Servers::One(at) => Ok((at.clone(), None)),
        Servers::Sentinels(sentinels) => {
            let found = sentinel::find(shared, sentinels).await?;
            Ok((found.at.clone(), Some(found)))
        }
        Servers::Cluster(_) => Err(Error::new(
            ErrorKind::Internal,
            "a cluster is reached over a link to each node",
        )),
    }
}

/// A replica is read as willingly as a primary, and says nothing of how far behind it is; and one that the sentinels name
/// may not have heard yet that it is the primary, or not any more. A single server that may not be asked is believed: it
/// refuses to write if it is none.
async fn check_role(wire: &mut MultiplexedConnection, at: &Endpoint, by_sentinels: bool) -> Result<(), Error> {
    let role = match life::send(wire, redis::cmd("ROLE")).await {
        Ok(value) => Reader::new(value).and_then(|mut reader| reader.text()),
        Err(Failure::Refused(Verdict::Denied, words)) if by_sentinels => {
            let message = "the user may not ask a server that the sentinels name whether it is the primary; give it the \
                           rule +role";
            return Err(Error::new(ErrorKind::Denied, message).because(words));
        }
        Err(Failure::Refused(verdict, _)) if !by_sentinels && !matches!(verdict, Verdict::Leave | Verdict::Later) => {
            return Ok(());
        }
        Err(failure) => return Err(unsent(failure)),
    };
    let role = role.map_err(|malformed| unsent(Failure::Broken(malformed.to_string())))?;
    let message = match (role.as_str(), by_sentinels) {
        ("master", _) => return Ok(()),
        (role, true) => format!("the sentinels name {at} as the primary, which is a {role}"),
        ("slave", false) => format!(
            "{at} is a replica, and Tenure works on the primary only; name the primary in the URL, or its sentinels with \
             valkey-sentinel://"
        ),
        (role, false) => format!("{at} is a {role}, and not a primary that Tenure could work on"),
    };
    // It may be the primary soon.
    Err(Error::unavailable(message, Outcome::Unchanged))
}

/// Asks the server which of the needed commands this user may not run. Servers that cannot tell are believed.
async fn probe(wire: &mut MultiplexedConnection, needs: &[Need]) -> Result<(), Error> {
    if needs.is_empty() {
        return Ok(());
    }
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(PROBE).arg(0);
    for need in needs {
        cmd.arg(need.command).arg(need.key);
    }
    let value = life::send(wire, cmd).await.map_err(unsent)?;
    let denied = Reader::new(value)
        .and_then(Reader::texts)
        .map_err(|malformed: Malformed| unsent(Failure::Broken(malformed.to_string())))?;
    if denied.is_empty() {
        return Ok(());
    }
    let mut rules: Vec<String> = denied
        .iter()
        .filter_map(|pair| Some(format!("+{}", pair.split(' ').next()?.to_ascii_lowercase())))
        .collect();
    rules.sort();
    rules.dedup();
    Err(Error::new(
        ErrorKind::Denied,
        format!(
            "the user may not run: {}; give it the rules {} and the patterns of keys in docs/stores.md",
            denied.join(", "),
            rules.join(" ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use tenure_core::clock::ManualClock;

    use super::*;

    #[test]
    fn the_backoff_grows_from_25_ms_to_1_s_and_is_jittered_in_full() {
        assert_eq!(backoff(0), Duration::from_millis(25));
        assert_eq!(backoff(1), Duration::from_millis(50));
        assert_eq!(backoff(6), LAST_BACKOFF);
        assert_eq!(backoff(u32::MAX), LAST_BACKOFF);
        let clock = ManualClock::new(0, 3);
        let drawn: Vec<_> = (0..1000).map(|_| full_jitter(&clock, LAST_BACKOFF)).collect();
        assert!(drawn.iter().all(|wait| *wait < LAST_BACKOFF));
        assert!(
            drawn.iter().any(|wait| *wait < LAST_BACKOFF / 10)
                && drawn.iter().any(|wait| *wait > LAST_BACKOFF * 9 / 10)
        );
    }
}
