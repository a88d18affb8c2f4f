//! A contender for the lease, as a separate process that can be killed and frozen. It reports what it does on stdout.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use tenure::{Acquire, JoinOptions, LeaseGuard, Membership, Verdict};
use tenure_core::clock::Clock;
use tenure_core::id::{Group, LeaseName, MemberId};
use tenure_core::lease::MAX_WAIT;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::StoreArgs;
use crate::connect;
use crate::exit::DONE;
use crate::output::line;

/// The pause between two pieces of work.
const EVERY: Duration = Duration::from_millis(5);
/// The pause before it asks again for a lease that it did not get.
const AGAIN: Duration = Duration::from_millis(200);

/// One contender (used by `bench failover`).
#[derive(Debug, Clone, Args)]
pub(crate) struct Contender {
    #[arg(long)]
    group: Group,
    #[arg(long)]
    lease: LeaseName,
    #[arg(long)]
    member: MemberId,
    #[arg(long, value_parser = tenure_core::time::parse_duration)]
    ttl: Duration,
    #[arg(long, value_parser = tenure_core::time::parse_duration)]
    max_ttl: Duration,
    #[command(flatten)]
    store: StoreArgs,
}

/// A line of a contender. Times are those of [`now`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Ready,
    /// The group grants no lease for this long.
    Unsettled(Duration),
    Granted {
        at: Duration,
        token: u64,
    },
    /// It was sure to hold the lease at this time.
    Worked(Duration),
    /// It no longer trusts the grant.
    Stopped(Duration),
}

/// Time since the machine started: one clock for all processes, which counts sleep.
pub(super) fn now() -> Duration {
    let at = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(at.tv_sec), u32::try_from(at.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

impl Said {
    fn print(self) -> anyhow::Result<()> {
        match self {
            Self::Ready => line("ready"),
            Self::Unsettled(wait) => line(format_args!("unsettled {}", wait.as_micros())),
            Self::Granted { at, token } => line(format_args!("granted {} {token}", at.as_micros())),
            Self::Worked(at) => line(format_args!("worked {}", at.as_micros())),
            Self::Stopped(at) => line(format_args!("stopped {}", at.as_micros())),
        }
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let word = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(match word {
            "ready" => Self::Ready,
            "unsettled" => Self::Unsettled(Duration::from_micros(number()?)),
            "granted" => Self::Granted {
                at: Duration::from_micros(number()?),
                token: number()?,
            },
            "worked" => Self::Worked(Duration::from_micros(number()?)),
            "stopped" => Self::Stopped(Duration::from_micros(number()?)),
            _ => return None,
        })
    }
}

impl Contender {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        crate::logging::start_quiet("warn")?;
        connect::block_on(self.contend())
    }

    async fn contend(self) -> anyhow::Result<u8> {
        let mut term = signal(SignalKind::terminate()).context("cannot listen to signals")?;
        let connected = connect::for_membership(&self.store.url, self.max_ttl).await?;
        let options = JoinOptions {
            ttl: self.ttl,
            ..JoinOptions::named(self.member.as_str())?
        };
        let membership = connected.tenure.group(self.group.as_str())?.join(options).await?;
        Said::Ready.print()?;
        let clock = &**connected.tenure.clock();
        tokio::select! {
            _ = term.recv() => {}
            done = self.repeat(&membership, clock) => done?,
        }
        // A guard that was dropped is released with the tenure.
        membership.leave().await?;
        connected.tenure.close().await;
        Ok(DONE)
    }

    /// Acquires the lease and works under it, again and again.
    async fn repeat(&self, membership: &Membership, clock: &dyn Clock) -> anyhow::Result<()> {
        let leases = membership.leases();
        loop {
            match leases.acquire_within(self.lease.as_str(), MAX_WAIT).await {
                Ok(Acquire::Granted(guard)) => work(&guard, clock).await?,
                Ok(Acquire::Unsettled { retry_in, .. }) => {
                    Said::Unsettled(retry_in).print()?;
                    clock.sleep(retry_in.clamp(EVERY, AGAIN)).await;
                }
                // The membership joins again by itself, and a store that is away returns.
                Ok(_) | Err(_) => clock.sleep(AGAIN).await,
            }
        }
    }
}

/// Works until the guard is lost. The time of each piece of work is taken before the guard is asked.
async fn work(guard: &LeaseGuard, clock: &dyn Clock) -> anyhow::Result<()> {
    Said::Granted {
        at: now(),
        token: guard.token().get(),
    }
    .print()?;
    let mut is_working = false;
    loop {
        let at = now();
        match guard.verdict() {
            Verdict::Held => {
                Said::Worked(at).print()?;
                is_working = true;
            }
            verdict => {
                if std::mem::take(&mut is_working) {
                    Said::Stopped(at).print()?;
                }
                if verdict == Verdict::Lost {
                    return Ok(());
                }
            }
        }
        clock.sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_others_are_not() {
        let granted = Said::Granted {
            at: Duration::from_micros(17),
            token: 4,
        };
        assert_eq!(Said::read("granted 17 4"), Some(granted));
        assert_eq!(Said::read("worked 9"), Some(Said::Worked(Duration::from_micros(9))));
        for wrong in ["", "granted 17", "worked x", "hello"] {
            assert_eq!(Said::read(wrong), None, "{wrong:?}");
        }
    }
}
