//! Maintains one connection: resolves the server, connects, monitors, and reconnects with full-jitter backoff.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tenure_core::clock::{Clock, within};
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::remote_clock::RemoteClock;

use super::link::{LinkContext, LinkState};
use super::live::{self, Failure, LiveConnection};
use super::options::{Mark, Need};
use super::sentinel::{self, NamedPrimary};
use super::wait_connection::{self, WaitTask};
use super::wire::{self, unsent};
use crate::address::{Endpoint, Servers};
use crate::classify::RefusalClass;
use crate::reply::{Malformed, Reader};

/// The shortest bound of a backoff.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_millis(25);
/// The longest bound of a backoff.
const LAST_BACKOFF: Duration = Duration::from_secs(1);

const PROBE: &str = include_str!("../scripts/probe.lua");

/// Starts the supervisor on the connection's own runtime and restarts it after a panic.
pub(super) fn start(context: &Arc<LinkContext>) {
    let context = Arc::clone(context);
    let runtime = context.runtime.clone();
    runtime.clone().spawn(async move {
        while !context.is_closed() {
            if let Err(error) = runtime.spawn(supervise(Arc::clone(&context))).await {
                tracing::error!(place = context.address.place(), %error, "the supervisor of the store's connection ended; restarting it");
                context.clock.sleep(LAST_BACKOFF).await;
            }
        }
    });
}

async fn supervise(context: Arc<LinkContext>) {
    let mut failures = 0u32;
    while !context.is_closed() {
        let number = context.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let began = context.clock.mono();
        let reason = match connect(&context, number).await {
            Ok((live, found, wait_task)) => {
                let reason = serve(&context, &live, found.as_ref(), wait_task).await;
                // A short-lived connection counts as a failure, like a refused one.
                if context.clock.mono().since(began) > LAST_BACKOFF {
                    failures = 0;
                }
                Error::unavailable(reason, Outcome::Unchanged)
            }
            Err(error) => error,
        };
        let backoff = backoff(failures);
        failures = failures.saturating_add(1);
        go_down(&context, &reason, backoff);
        context.tried.send_replace(true);
        context.clock.sleep(full_jitter(&*context.clock, backoff)).await;
    }
}

/// Publishes the connection and monitors it until it ends; returns the reason.
async fn serve(
    context: &Arc<LinkContext>,
    live: &Arc<LiveConnection>,
    found: Option<&NamedPrimary>,
    wait_task: Option<WaitTask>,
) -> String {
    context.set_state(LinkState::Up(Arc::clone(live)));
    if context.is_closed() {
        // `close` ran in between and found nothing to end.
        context.close();
    }
    context.tried.send_replace(true);
    tracing::info!(place = context.address.place(), "connected to the store");
    tokio::select! {
        why = live.until_ended() => why,
        why = ping_when_idle(context, live) => why,
        why = follow_sentinels(context, live, found) => why,
        why = run_wait_connection(context, live, wait_task) => why,
    }
}

/// Runs the connection for `WAIT`, if there is one. Never returns.
async fn run_wait_connection(
    context: &Arc<LinkContext>,
    live: &Arc<LiveConnection>,
    wait_task: Option<WaitTask>,
) -> String {
    match (live.waiting(), wait_task) {
        (Some(waiting), Some(wait_task)) => wait_connection::run(context, live, waiting, wait_task).await,
        _ => std::future::pending().await,
    }
}

/// Polls the sentinels for another primary. Never returns.
async fn follow_sentinels(
    context: &Arc<LinkContext>,
    live: &Arc<LiveConnection>,
    found: Option<&NamedPrimary>,
) -> String {
    match (context.address.servers(), found) {
        (Servers::Sentinels(sentinels), Some(found)) => sentinel::follow(context, sentinels, live, found).await,
        _ => std::future::pending().await,
    }
}

/// Pings an idle connection. Never returns; the end shows in [`LiveConnection::until_ended`].
async fn ping_when_idle(context: &Arc<LinkContext>, live: &Arc<LiveConnection>) -> String {
    let interval = context.options.ping_interval;
    loop {
        context.clock.sleep(interval).await;
        if live.heard_within(interval, context) {
            continue;
        }
        let bound = context.options.request_timeout;
        match within(&*context.clock, bound, live.ask_time(context)).await {
            Some(Ok(())) => live.answered(),
            Some(Err(Failure::Broken(why))) => live.end(&why),
            Some(Err(failure)) => tracing::debug!(?failure, "the store refused TIME"),
            None => drop(live.timed_out(bound)),
        }
    }
}

fn go_down(context: &LinkContext, reason: &Error, retry_after: Duration) {
    if context.is_closed() {
        return;
    }
    let (kind, text) = (reason.kind(), reason.chain());
    let news = match &*context.read_state() {
        LinkState::Up(_) => true,
        LinkState::Down { reason, .. } => *reason != text,
    };
    if news {
        tracing::warn!(
            place = context.address.place(),
            reason = text,
            "the store is out of reach"
        );
    }
    context.set_state(LinkState::Down {
        kind,
        reason: text,
        retry_after,
    });
}

/// The upper bound of the wait after this many failures in a row: 25 ms, doubled each time, up to 1 s.
pub(super) fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.min(10)).min(LAST_BACKOFF)
}

/// A random wait up to the bound, so clients that lost one server together do not reconnect together.
pub(super) fn full_jitter(clock: &dyn Clock, bound: Duration) -> Duration {
    let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(clock.entropy() % nanos)
}

/// Resolves the name, connects, authenticates, reads the time, and checks permissions.
async fn connect(context: &Arc<LinkContext>, number: u64) -> Result<Established, Error> {
    let bound = context.options.connect_timeout;
    let done = within(&*context.clock, bound, establish(context, number)).await;
    done.unwrap_or_else(|| {
        let bound = tenure_core::time::show_duration(bound);
        // A server without TLS takes the client hello for an unfinished command and waits for the rest.
        let hint = match context.address.tls() {
            Some(_) => " (does the server speak TLS at this port?)",
            None => "",
        };
        let message = format!("no connection within {bound}{hint}");
        Err(Error::unavailable(message, Outcome::Unchanged))
    })
}

/// A connection, the primary that sentinels named, and the task of the connection for `WAIT`.
type Established = (Arc<LiveConnection>, Option<NamedPrimary>, Option<WaitTask>);

async fn establish(context: &Arc<LinkContext>, number: u64) -> Result<Established, Error> {
    let (at, found) = resolve(context).await?;
    let (handshake, tls) = (context.address.handshake(), context.address.tls());
    let (mut wire, driver) = wire::open(&context.runtime, &at, handshake, tls).await?;
    let asked = context.clock.mono();
    let value = live::send(&mut wire, redis::cmd("TIME")).await.map_err(unsent)?;
    let arrived = context.clock.mono();
    let now = live::read_time(value).map_err(|malformed| unsent(Failure::Broken(malformed.to_string())))?;
    let store_clock = RemoteClock::default();
    store_clock.learn(now, asked, arrived);
    if found.is_some() || context.address.wants_primary() {
        check_role(&mut wire, &at, found.is_some()).await?;
    }
    probe(&mut wire, &context.needs.commands).await?;
    if let Some(mark) = &context.needs.mark {
        check_mark(&mut wire, mark).await?;
    }
    let (mut confirming, mut wait_task) = (None, None);
    if let Some(wait) = context.address.wait() {
        let wire = wire::open(&context.runtime, &at, handshake, tls).await?;
        let (waiting, task) = wait_connection::start(wire, at.clone(), wait);
        (confirming, wait_task) = (Some(waiting), Some(task));
    }
    let live = LiveConnection::new(number, (wire, driver), confirming, store_clock, at);
    Ok((live, found, wait_task))
}

/// The server to connect to.
async fn resolve(context: &LinkContext) -> Result<(Endpoint, Option<NamedPrimary>), Error> {
    match context.address.servers() {
        Servers::One(at) => Ok((at.clone(), None)),
        Servers::Sentinels(sentinels) => {
            let found = sentinel::find(context, sentinels).await?;
            Ok((found.at.clone(), Some(found)))
        }
        Servers::Cluster(_) => Err(Error::new(ErrorKind::Internal, "a cluster needs a link to each node")),
    }
}

/// Checks that the server is a primary. A replica answers reads like a primary and does not say how far it lags, and a
/// server that the sentinels name may not know yet, or no longer, that it is the primary. A single server that denies
/// `ROLE` is accepted: if it is a replica, it refuses writes.
async fn check_role(wire: &mut MultiplexedConnection, at: &Endpoint, by_sentinels: bool) -> Result<(), Error> {
    let role = match live::send(wire, redis::cmd("ROLE")).await {
        Ok(value) => Reader::new(value).and_then(|mut reader| reader.text()),
        Err(Failure::Refused(RefusalClass::Denied, words)) if by_sentinels => {
            let message = "the user may not ask a server that the sentinels name whether it is the primary; give it the \
                           rule +role";
            return Err(Error::new(ErrorKind::Denied, message).because(words));
        }
        Err(Failure::Refused(verdict, _))
            if !by_sentinels && !matches!(verdict, RefusalClass::Reconnect | RefusalClass::RetryLater) =>
        {
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
    // It may become the primary soon.
    Err(Error::unavailable(message, Outcome::Unchanged))
}

/// Asks the server which of the needed commands this user may not run. A server that cannot say is accepted.
async fn probe(wire: &mut MultiplexedConnection, needs: &[Need]) -> Result<(), Error> {
    if needs.is_empty() {
        return Ok(());
    }
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(PROBE).arg(0);
    for need in needs {
        cmd.arg(need.command).arg(need.key);
    }
    let value = live::send(wire, cmd).await.map_err(unsent)?;
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

/// Reads the mark of the data. A node of a cluster that has other slots, and a server that is not ready, say nothing of it.
async fn check_mark(wire: &mut MultiplexedConnection, mark: &Mark) -> Result<(), Error> {
    let mut cmd = redis::cmd("HGET");
    cmd.arg(mark.key).arg(mark.field);
    let value = match live::send(wire, cmd).await {
        Ok(value) => value,
        Err(Failure::Refused(..)) => return Ok(()),
        Err(failure) => return Err(unsent(failure)),
    };
    let found = Reader::of(value).maybe_lossy_text();
    let found = found.map_err(|malformed: Malformed| unsent(Failure::Broken(malformed.to_string())))?;
    mark.check(found.as_deref())
}

#[cfg(test)]
mod tests {
    use tenure_core::clock::ManualClock;

    use super::*;

    #[test]
    fn backoff_grows_to_one_second_with_full_jitter() {
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
