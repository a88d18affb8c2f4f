//! `tenure lock`: runs a command only while a lease is certainly held.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tenure::lease::{Acquire, AcquireOptions, LeaseGuard};
use tenure::member_id;
use tenure::membership::{JoinOptions, Membership};
use tenure_core::clock::{Clock, Mono, SystemClock, jitter};
use tenure_core::error::Error;
use tenure_core::id::{LeaseName, MemberId};
use tenure_core::lease::Holders;
use tenure_core::settling::GapCause;
use tenure_core::supervise::{Evidence, Primacy};
use tenure_core::time::{parse_duration, show_duration};
use tenure_core::timing::{Timing, check_ttl};
use tenure_core::verdict::Verdict;
use tenure_supervise::run::Ended;
use tenure_supervise::signals::Signals;
use tokio::sync::watch;

use crate::acquire::holders;
use crate::cli::{GroupArgs, StoreArgs};
use crate::connect::{self, Connected};
use crate::exit::{FAILED, NOT_ACQUIRED, Usage, say};
use crate::joining::{Joined, Joining};
use crate::settings::LONGEST_TTL;
use crate::wrapped::{self, Wrapped};

/// Runs a command while it holds a lock, like flock(1), across machines.
///
/// It joins, acquires the lease, and runs the command only while the lease is certainly held. If the lease cannot be confirmed
/// any longer, everything that the command started gets TERM, and KILL before another process can acquire the lease; this also
/// holds while this process is stopped (SIGSTOP). The exit code is then 1. The command's own exit code is passed on
/// (128 + n for a signal); 75 means that the lease was not acquired.
///
/// The command reads its fencing token from TENURE_FENCING_TOKEN, its place of N from TENURE_PLACE, and TENURE_LEASE,
/// TENURE_ID, TENURE_MEMBER, TENURE_GROUP and TENURE_STORE. Signals are passed on: TERM stops it, with KILL after the grace. At a
/// terminal it is in the foreground. Secrets are not passed on: neither TENURE_TOKEN nor the password in TENURE_STORE.
#[derive(Debug, Clone, Args)]
pub(crate) struct Lock {
    /// The name of the lock.
    lease: LeaseName,
    /// How long to wait if it is held, or the store cannot be reached: first come, first served. A wait of more than a
    /// minute joins the queue again each minute. By default it is tried once.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    wait: Duration,
    /// The number of processes that may hold it at a time (a semaphore); the same for all.
    #[arg(long, value_name = "N", default_value = "1", value_parser = holders)]
    holders: Holders,
    #[command(flatten)]
    group: GroupArgs,
    /// The member's name. Default: a new name at every start, NAME-HOST-START-RANDOM.
    #[arg(long, value_name = "MEMBER")]
    member: Option<MemberId>,
    /// After this time without a heartbeat others can acquire the lock.
    #[arg(long, value_name = "DURATION", env = "TENURE_TTL", default_value = "15s", value_parser = parse_duration, help_heading = "Heartbeat")]
    ttl: Duration,
    /// The longest ttl of a store that is used without a daemon; the same for all its users.
    #[arg(long, value_name = "DURATION", env = "TENURE_MAX_TTL", default_value = "2m", value_parser = parse_duration, help_heading = "Heartbeat")]
    max_ttl: Duration,
    /// The time between TERM and KILL when the command is stopped; at most, and by default, a sixth of the ttl when the lock
    /// is lost.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration, help_heading = "Command")]
    grace: Duration,
    #[command(flatten)]
    store: StoreArgs,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The pause before asking again after a wait that ended early.
const AGAIN: Duration = Duration::from_millis(200);

/// The result of the wait.
enum Acquired {
    Guard(LeaseGuard),
    /// Not in time, for this reason.
    Not(String),
    /// A signal ended the wait.
    Signal(u8),
}

impl Lock {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        check_ttl(self.ttl, LONGEST_TTL).map_err(|error| Usage::new(format!("--ttl: {error}")))?;
        crate::logging::start_supervisor("warn")?;
        connect::block_on(self.live())
    }

    async fn live(self) -> anyhow::Result<u8> {
        let mut signals = Signals::listen().context("cannot listen to signals")?;
        let clock = SystemClock::shared();
        let member = match &self.member {
            Some(member) => member.clone(),
            None => member_id::generated_for(self.lease.as_str(), &*clock)?,
        };
        let options = JoinOptions {
            member: Some(member),
            ttl: self.ttl,
            // The command may claim and acquire under this tenure.
            others_act: true,
            ..JoinOptions::default()
        };
        let joining = Joining {
            url: &self.store.url,
            max_ttl: self.max_ttl,
            group: &self.group.name,
            options,
            patience: Some(self.wait),
        };
        let began = clock.mono();
        let (connected, membership) = match joining.run(&mut signals).await? {
            Joined::Member(connected, membership) => (connected, membership),
            Joined::Signal(code) => return Ok(code),
        };
        let wait = self.wait.saturating_sub(clock.mono().since(began));
        let ended = self.hold(&connected, &membership, wait, signals).await;
        if ended.as_ref().is_ok_and(|ended| !ended.is_gone) {
            say(format_args!(
                "a process of {} does not end: lock \"{}\" comes free with the ttl",
                self.wrapped().name(),
                self.lease
            ));
            // Dropped, it would leave.
            std::mem::forget(membership);
        } else if let Err(error) = membership.leave().await {
            let (lease, error) = (&self.lease, error.chain());
            say(format_args!(
                "could not leave, lock \"{lease}\" comes free with the ttl: {error}"
            ));
        }
        connected.tenure.close().await;
        ended.map(|ended| ended.code)
    }

    /// Acquires the lock, runs the command, and releases the lock when no process of the command is left.
    async fn hold(
        &self,
        connected: &Connected,
        membership: &Membership,
        wait: Duration,
        mut signals: Signals,
    ) -> anyhow::Result<Ended> {
        let clock = connected.tenure.clock();
        let not = |code| Ended { code, is_gone: true };
        let guard = match self.acquire(membership, wait, &**clock, &mut signals).await? {
            Acquired::Guard(guard) => guard,
            Acquired::Signal(code) => return Ok(not(code)),
            Acquired::Not(why) => {
                say(format_args!("not acquired: {why}"));
                return Ok(not(NOT_ACQUIRED));
            }
        };
        if guard.decided().await != Verdict::Held {
            say(format_args!(
                "not acquired: lock \"{}\" was lost before the command began",
                self.lease
            ));
            return Ok(not(NOT_ACQUIRED));
        }
        let (ended, is_lost) = self.run_under(&guard, connected, membership, signals).await?;
        if ended.is_gone && !is_lost {
            // An error: the tenure is over, or `leave` reports that the store is away.
            let _ = guard.release().await;
        } else {
            // Lost, or kept by a process that is left. Dropped, it would release the lease.
            std::mem::forget(guard);
        }
        Ok(ended)
    }

    async fn acquire(
        &self,
        membership: &Membership,
        wait: Duration,
        clock: &dyn Clock,
        signals: &mut Signals,
    ) -> Result<Acquired, Error> {
        let until = clock.mono() + wait;
        let asking = async {
            loop {
                let options = AcquireOptions {
                    holders: self.holders,
                    wait: until.since(clock.mono()),
                };
                let why = match membership.leases().acquire_with(self.lease.as_str(), options).await? {
                    Acquire::Granted(guard) => return Ok(Acquired::Guard(guard)),
                    other => self.describe(&other),
                };
                if until.since(clock.mono()).is_zero() {
                    return Ok(Acquired::Not(why));
                }
                clock.sleep(jitter(clock, AGAIN, 50)).await;
            }
        };
        tokio::select! {
            biased;
            code = signals.asked_to_end() => Ok(Acquired::Signal(code)),
            acquired = asking => acquired,
        }
    }

    fn describe(&self, outcome: &Acquire) -> String {
        let lease = &self.lease;
        match outcome {
            Acquire::Held { by, .. } => format!("lock \"{lease}\" is held by {by}"),
            Acquire::Reserved { to, .. } => format!("lock \"{lease}\" is reserved for {to}"),
            Acquire::Unsettled { retry_in, cause } => {
                let (left, after) = (
                    show_duration(*retry_in),
                    match cause {
                        GapCause::New => "the store is new",
                        _ => "the store may have forgotten a holder",
                    },
                );
                format!("lock \"{lease}\" is granted in {left} at the earliest: {after}")
            }
            Acquire::HoldersDiffer { holders } => {
                let (has, asked) = (holders.get(), self.holders.get());
                format!("lock \"{lease}\" has {has} holders, not {asked}: use the same --holders everywhere")
            }
            Acquire::QueueFull { waiting } => format!("{waiting} requests wait for lock \"{lease}\" already"),
            Acquire::Granted(_) => String::new(),
        }
    }

    fn wrapped(&self) -> Wrapped<'_> {
        Wrapped {
            command: &self.command,
            grace: self.grace,
            grace_at_deadline: self.grace.min(self.ttl / 6),
            reserve: self.ttl / 12,
        }
    }

    /// Runs the command until it exits or the lock may be lost. Returns whether it was.
    async fn run_under(
        &self,
        guard: &LeaseGuard,
        connected: &Connected,
        membership: &Membership,
        signals: Signals,
    ) -> anyhow::Result<(Ended, bool)> {
        let mut variables = wrapped::variables(membership, connected);
        variables.extend([
            ("TENURE_LEASE".into(), guard.lease().as_str().into()),
            ("TENURE_FENCING_TOKEN".into(), guard.token().to_string().into()),
            ("TENURE_PLACE".into(), guard.place().get().to_string().into()),
        ]);
        let (clock, wrapped) = (connected.tenure.clock(), self.wrapped());
        let (tell, evidence) = watch::channel(held(guard, guard.valid_until()));
        let lead = wrapped.settings().head_start();
        // A lock that an operator released is free when this wrapper has left, so its command ends in order.
        let lost = follow(guard, &tell, lead, membership.timing(), &**clock);
        match wrapped.run(variables, evidence, signals, clock, lost).await? {
            (ended, None) => Ok((ended, false)),
            (ended, Some(())) => {
                let (lease, command) = (&self.lease, wrapped.name());
                say(format_args!(
                    "stopped {command}: lock \"{lease}\" was lost, or could not be confirmed in time"
                ));
                Ok((Ended { code: FAILED, ..ended }, true))
            }
        }
    }
}

/// The evidence of a lock that is held until then.
fn held(guard: &LeaseGuard, until: Mono) -> Evidence {
    Evidence::Primary(Primacy {
        until: Some(until),
        term: Some(guard.tenure().term()),
        token: Some(guard.token()),
    })
}

/// Reports until when the lock is held. Completes when it is lost, or when only `lead` is left of that time: also if a late
/// heartbeat extends it after a pause of this process, in which the watchdog has killed the command.
async fn follow(guard: &LeaseGuard, tell: &watch::Sender<Evidence>, lead: Duration, timing: Timing, clock: &dyn Clock) {
    let (lost, mut deadline) = (guard.lost(), guard.valid_until());
    loop {
        let left = deadline.since(clock.mono());
        if left <= lead || lost.is_cancelled() {
            return;
        }
        if guard.verdict() == Verdict::Held {
            deadline = deadline.max(guard.valid_until());
            tell.send_if_modified(|last| {
                let now = held(guard, deadline);
                let is_news = *last != now;
                *last = now;
                is_news
            });
        }
        tokio::select! {
            () = lost.cancelled() => {}
            () = clock.sleep((left - lead).min(timing.interval / 4)) => {}
        }
    }
}
