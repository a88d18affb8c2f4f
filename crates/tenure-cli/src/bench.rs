//! `tenure bench`: throughput and latency of one client against a given store, in a group of its own.
//!
//! `cargo xtask bench` compares Tenure with other systems; this command measures the user's own store. It uses the same
//! interface as every client ([`Store`]) and leaves no member behind, also when it is interrupted.

mod failover;
mod load;
mod measured;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use tenure_core::id::Group;
use tenure_core::store::{MAX_PAGE, PageRequest, Store};
use tenure_core::time::{parse_duration, show_duration};
use tenure_core::timing::Timing;
use tenure_supervise::signals::Signals;

use crate::cli::{FormatArgs, StoreArgs, examples};
use crate::connect;
use crate::exit::{DONE, FAILED, Usage, say};
use crate::output::json;
use crate::settings::LONGEST_TTL;
use failover::{Contender, Failover};
use load::{Halt, Load, OPERATIONS};
use measured::Report;

/// Measures throughput and latency of heartbeats, claims, leases and lookups.
///
/// Members join a group of their own, each operation is repeated for a while, and the members leave, also after Ctrl-C. A
/// group that has members is refused. The load affects other users of the store, and its events stay in the group. A daemon
/// with tokens needs one with the scopes `read` and `beat`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// The number of members.
    #[arg(long, value_name = "MEMBERS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    members: u32,
    /// The time for each operation, from 100ms to 1h.
    #[arg(long = "for", value_name = "DURATION", default_value = "5s", value_parser = span)]
    time: Duration,
    /// The group for the benchmark.
    #[arg(long, value_name = "GROUP", default_value = "bench")]
    group: Group,
    /// The number of concurrent calls.
    #[arg(long, value_name = "CALLS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: u32,
    /// The ttl of the members, after which they lapse if the benchmark is killed.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    ttl: Duration,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Another measurement.
#[derive(Debug, Clone, Subcommand)]
enum Instead {
    #[command(after_help = examples::BENCH_FAILOVER)]
    Failover(Failover),
    #[command(hide = true)]
    Contender(Contender),
}

fn span(text: &str) -> Result<Duration, String> {
    let span = parse_duration(text).map_err(|error| error.to_string())?;
    if span < Duration::from_millis(100) || span > Duration::from_secs(3600) {
        return Err(format!("{} is not from 100ms to 1h", show_duration(span)));
    }
    Ok(span)
}

/// The end of a measurement.
enum Ended {
    Complete,
    Interrupted,
    Failed(tenure_core::error::Error),
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        match self.instead {
            Some(Instead::Failover(failover)) => return failover.run(),
            Some(Instead::Contender(contender)) => return contender.run(),
            None => {}
        }
        let timing = Timing::for_ttl(self.ttl).check(LONGEST_TTL);
        timing.map_err(|error| Usage::new(format!("--ttl: {error}")))?;
        crate::logging::start_quiet("error")?;
        connect::block_on(self.perform())
    }

    async fn perform(self) -> anyhow::Result<u8> {
        let connected = self.store.connect().await?;
        let mut signals = Signals::listen().context("cannot listen to signals")?;
        let load = Arc::new(Load::new(&connected.tenure, &self.group, self.ttl));
        let done = match refuse_occupied(&*load.store, &self.group).await {
            Ok(()) => self.measure(&load, &mut signals).await,
            Err(error) => Err(error),
        };
        connected.tenure.close().await;
        done
    }

    async fn measure(&self, load: &Arc<Load>, signals: &mut Signals) -> anyhow::Result<u8> {
        let place = load.store.place();
        let kinds = u32::try_from(OPERATIONS.len()).unwrap_or(u32::MAX);
        say(format_args!(
            "measuring {place} for about {}; Ctrl-C ends it sooner and cleans up",
            show_duration(self.time * kinds)
        ));
        let mut report = Report::new(
            place,
            self.group.clone(),
            self.members,
            self.concurrency,
            self.time,
            self.ttl,
        );
        let ended = tokio::select! {
            ended = self.load(load, &mut report, signals) => ended,
            never = load.keep_alive() => match never {},
        };
        let has_failed = matches!(ended, Ended::Failed(_));
        let left = tokio::select! {
            left = load.clean_up(self.concurrency, has_failed) => left,
            _ = signals.asked_to_end() => Err(anyhow::anyhow!("interrupted while cleaning up")),
            never = load.keep_alive() => match never {},
        };
        report.end(&ended);
        if self.format.json {
            json(&report)?;
        } else {
            report.show()?;
        }
        let is_left = left.is_ok();
        let gone = match left {
            Ok(()) => "its members have left".to_owned(),
            Err(error) => {
                let ttl = show_duration(self.ttl);
                format!("not all of its members could leave, they lapse within {ttl} ({error:#})")
            }
        };
        match ended {
            Ended::Failed(error) => {
                return Err(anyhow::Error::from(error).context(format!("the measurement has ended, and {gone}")));
            }
            Ended::Interrupted => say(format_args!("interrupted; {gone}")),
            Ended::Complete if is_left => return Ok(DONE),
            Ended::Complete => say(gone),
        }
        Ok(FAILED)
    }

    /// One kind of operation after the other.
    async fn load(&self, load: &Arc<Load>, report: &mut Report, signals: &mut Signals) -> Ended {
        for (operation, bound) in OPERATIONS.map(|operation| (operation, operation.bound(self.members, self.time))) {
            let run = load.run(operation, bound, self.concurrency);
            let (measured, halt) = tokio::select! {
                done = run => done,
                never = stop_when_asked(signals, load) => match never {},
            };
            match halt {
                None => report.add(operation, measured),
                Some(Halt::Unsettled(retry_in)) => report.leave_out(operation, retry_in),
                Some(Halt::Failed(error)) => {
                    report.add(operation, measured);
                    return Ended::Failed(error);
                }
            }
            if load.stop.is_cancelled() {
                return Ended::Interrupted;
            }
        }
        Ended::Complete
    }
}

/// A benchmark in a group in use would disturb its members and be disturbed by them.
async fn refuse_occupied(store: &dyn Store, group: &Group) -> anyhow::Result<()> {
    let mut page = PageRequest::new(None, MAX_PAGE)?;
    loop {
        let found = store.members(group, &page).await?;
        if let Some(one) = found.items.first() {
            anyhow::bail!(
                "the group {group} has members already, like {}; nothing was done. Name another one with --group, or \
                 wait until they have lapsed and `tenure sweep --group {group}`, if they are what a bench left that \
                 was killed",
                one.member
            );
        }
        match found.next {
            Some(next) => page.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Lets running operations finish, because a cancelled one leaves members behind.
async fn stop_when_asked(signals: &mut Signals, load: &Load) -> Infallible {
    loop {
        signals.asked_to_end().await;
        load.stop.cancel();
    }
}
