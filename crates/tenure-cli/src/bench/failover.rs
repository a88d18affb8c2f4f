//! `tenure bench failover`: how a store's clients fare when the holder of a lease is killed, frozen or stopped.
//!
//! The contenders are processes of their own, so the faults are real. They say on their stdout when they are granted the
//! lease, when they work under it and when they stop; this process strikes the holder, looks the lease up all the time, and
//! compares.

mod contender;
mod report;
mod round;

use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use rustix::process::Signal;
use tenure_core::id::Group;
use tenure_core::time::parse_duration;
use tenure_core::timing::check_ttl;
use tenure_supervise::signals::Signals;

use crate::cli::{FormatArgs, StoreArgs};
use crate::connect::{self, Connected};
use crate::exit::{DONE, FAILED, Usage, say};
use crate::output::json;
use crate::settings::LONGEST_TTL;

pub(crate) use contender::Contender;
use report::Report;
use round::{Rounds, Sample};

/// Kills, freezes and stops the holder of a lease, and measures detection, takeover and overlap.
///
/// It starts contenders for one lease of a group of its own, as processes that wait for it in line. In each round the holder is
/// killed (SIGKILL), frozen (SIGSTOP, until another contender has the lease) or stopped (SIGTERM), at a random moment between
/// two heartbeats. The store and its other users notice next to nothing: a few heartbeats, and about a hundred look-ups a
/// second. A frozen contender must stop before the next one starts: the exit code is 1 if two of them ever worked together.
#[derive(Debug, Clone, Args)]
pub(crate) struct Failover {
    /// The rounds for each fault.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// What happens to the holder, in turns.
    #[arg(long, value_name = "FAULT", value_enum, value_delimiter = ',', default_values_t = Fault::ALL)]
    faults: Vec<Fault>,
    /// The processes that contend for the lease.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=20))]
    contenders: u32,
    /// The group for the measurement.
    #[arg(long, value_name = "GROUP", default_value = "bench-failover")]
    group: Group,
    /// The ttl of the contenders.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    ttl: Duration,
    /// The longest ttl of a store that is used without a daemon; the same for all its users.
    #[arg(long, value_name = "DURATION", env = "TENURE_MAX_TTL", default_value = "2m", value_parser = parse_duration)]
    max_ttl: Duration,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// What happens to the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Fault {
    Kill,
    Freeze,
    Stop,
}

impl Fault {
    const ALL: [Self; 3] = [Self::Kill, Self::Freeze, Self::Stop];

    fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
            Self::Freeze => Signal::STOP,
            Self::Stop => Signal::TERM,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Stop => "stop",
        }
    }
}

impl Failover {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        check_ttl(self.ttl, LONGEST_TTL).map_err(|error| Usage::new(format!("--ttl: {error}")))?;
        crate::logging::start_quiet("error")?;
        connect::block_on(self.measure())
    }

    async fn measure(self) -> anyhow::Result<u8> {
        let mut signals = Signals::listen().context("cannot listen to signals")?;
        let connected = connect::for_membership(&self.store.url, self.max_ttl).await?;
        let done = self.measure_on(&connected, &mut signals).await;
        connected.tenure.close().await;
        done
    }

    async fn measure_on(&self, connected: &Connected, signals: &mut Signals) -> anyhow::Result<u8> {
        if connected.url.starts_with("sqlite:") {
            let message = "--store: a file has one process, and the contenders are several; start `tenure serve` on it and name \
                           the daemon";
            return Err(Usage::new(message).into());
        }
        super::refuse_occupied(&**connected.tenure.store(), &self.group).await?;
        let place = connected.tenure.store().place();
        let mut report = Report::new(place, self);
        let mut rounds = Rounds::start(self, connected).await?;
        let ended = tokio::select! {
            ended = self.strike(&mut rounds, &mut report) => ended.map(|()| false),
            _ = signals.asked_to_end() => Ok(true),
        };
        rounds.stop().await;
        if self.format.json {
            json(&report)?;
        } else {
            report.show()?;
        }
        if ended.context("the measurement has ended")? {
            say("interrupted; the contenders have left");
            return Ok(FAILED);
        }
        match report.overlaps() {
            0 => Ok(DONE),
            overlaps => bail!("in {overlaps} rounds a contender worked after the next one had been granted the lease"),
        }
    }

    async fn strike(&self, rounds: &mut Rounds<'_>, report: &mut Report) -> anyhow::Result<()> {
        for number in 0..self.rounds {
            for &fault in &self.faults {
                let sample: Sample = rounds
                    .round(fault)
                    .await
                    .with_context(|| format!("round {}, {}", number + 1, fault.as_str()))?;
                report.add(fault, sample);
            }
        }
        Ok(())
    }
}
