//! `tenure join`: keeps a tenure alive for as long as a command runs.

mod progress_file;
mod tenure_file;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use tenure::membership::{JoinOptions, Membership, Phase};
use tenure_core::clock::Clock;
use tenure_core::id::MemberId;
use tenure_core::membership::EndReason;
use tenure_core::supervise::Evidence;
use tenure_core::time::{parse_duration, show_duration};
use tenure_core::timing::Timing;
use tenure_core::verdict::Verdict;
use tenure_supervise::run::Ended;
use tenure_supervise::signals::Signals;
use tokio::sync::watch;

use self::progress_file::ProgressArgs;
use self::tenure_file::{Content, TenureFile};
use crate::cli::{GroupArgs, StoreArgs};
use crate::connect::{self, Connected};
use crate::exit::{FAILED, Usage, say};
use crate::joining::{Joined, Joining};
use crate::labels::{label, labels};
use crate::settings::LONGEST_TTL;
use crate::wrapped::{self, Wrapped};

/// Runs a command as a living member of a group.
///
/// It joins as soon as the store can be reached, sends the heartbeats while the command runs, and leaves when the command
/// ends. The command reads its tenure from TENURE_ID (with TENURE_MEMBER, TENURE_GROUP and TENURE_STORE), so that
/// `tenure claim` and `tenure acquire` in it act for the member. The JSON file TENURE_FILE names the current tenure, also after a lapse and a rejoin.
///
/// Signals are passed on: TERM stops the command, with KILL after the grace. At a terminal it is in the foreground. Everything
/// that it started ends before the member leaves. Its exit code is passed on (128 + n for a signal). If the member is superseded or expelled, the command is stopped and the exit code is 1. Secrets
/// are not passed on: neither TENURE_TOKEN nor the password in TENURE_STORE. A command that calls the daemon reads a token
/// from the file that TENURE_TOKEN_FILE names.
#[derive(Debug, Clone, Args)]
pub(crate) struct Join {
    #[command(flatten)]
    group: GroupArgs,
    /// The member's name. A fixed name supersedes its previous tenure immediately. Default: a new name at every start,
    /// HOST-START-RANDOM.
    #[arg(long, value_name = "MEMBER")]
    member: Option<MemberId>,
    /// The tenure lapses after this time without a heartbeat.
    #[arg(long, value_name = "DURATION", env = "TENURE_TTL", default_value = "30s", value_parser = parse_duration, help_heading = "Heartbeat")]
    ttl: Duration,
    /// The time between two heartbeats; default: a third of the ttl.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Heartbeat")]
    interval: Option<Duration>,
    /// The longest ttl of a store that is used without a daemon; the same for all its users.
    #[arg(long, value_name = "DURATION", env = "TENURE_MAX_TTL", default_value = "2m", value_parser = parse_duration, help_heading = "Heartbeat")]
    max_ttl: Duration,
    /// A label of the member; may be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// What to do when the tenure lapses (the store was unreachable for too long): keep the command running and rejoin, or
    /// stop it.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLapse::Keep, help_heading = "Command")]
    on_lapse: OnLapse,
    #[command(flatten)]
    progress: ProgressArgs,
    /// The time between TERM and KILL when the command is stopped.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration, help_heading = "Command")]
    grace: Duration,
    /// The path of the tenure file; default: a temporary file.
    #[arg(long, value_name = "PATH", help_heading = "Command")]
    file: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// How long to try to join while the store cannot be reached; default: for as long as it takes.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    patience: Option<Duration>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The reaction to a lapse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnLapse {
    Keep,
    Stop,
}

/// Why the command must be stopped.
enum MustStop {
    /// For this reason.
    Because(String),
    /// It makes no progress.
    Stalled,
}

impl Join {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let options = self.options()?;
        crate::logging::start_supervisor("warn")?;
        connect::block_on(self.live(options))
    }

    fn options(&self) -> anyhow::Result<JoinOptions> {
        let default = Timing::for_ttl(self.ttl);
        let timing = Timing {
            interval: self.interval.unwrap_or(default.interval),
            ..default
        };
        timing
            .check(LONGEST_TTL)
            .map_err(|error| Usage::new(format!("--ttl, --interval: {error}")))?;
        let mut options = JoinOptions {
            member: self.member.clone(),
            ttl: self.ttl,
            labels: labels(&self.labels)?,
            interval: self.interval,
            // The command claims and acquires under this tenure.
            others_act: true,
            ..JoinOptions::default()
        };
        self.progress.apply(&mut options)?;
        Ok(options)
    }

    async fn live(self, options: JoinOptions) -> anyhow::Result<u8> {
        let mut signals = Signals::listen().context("cannot listen to signals")?;
        let joining = Joining {
            url: &self.store.url,
            max_ttl: self.max_ttl,
            group: &self.group.name,
            options,
            patience: self.patience,
        };
        let (connected, membership) = match joining.run(&mut signals).await? {
            Joined::Member(connected, membership) => (connected, membership),
            Joined::Signal(code) => return Ok(code),
        };
        // A signal may have arrived during the join.
        let ended = match wrapped::ended_before(&mut signals).await {
            Some(ended) => Ok(ended),
            None => self.accompany(&connected, &membership, signals).await,
        };
        if ended.as_ref().is_ok_and(|ended| !ended.is_gone) {
            let (tenure, command) = (membership.tenure(), self.wrapped().name());
            say(format_args!("a process of {command} does not end: {tenure} will lapse"));
            // Dropped, it would leave.
            std::mem::forget(membership);
        } else if let Err(error) = membership.leave().await {
            say(format_args!(
                "could not leave, {} will lapse: {}",
                membership.tenure(),
                error.chain()
            ));
        }
        connected.tenure.close().await;
        ended.map(|ended| ended.code)
    }

    fn wrapped(&self) -> Wrapped<'_> {
        Wrapped {
            command: &self.command,
            grace: self.grace,
            grace_at_deadline: self.grace,
            reserve: Duration::MAX,
        }
    }

    /// Runs the command until it exits or must be stopped.
    async fn accompany(
        &self,
        connected: &Connected,
        membership: &Membership,
        signals: Signals,
    ) -> anyhow::Result<Ended> {
        let file = self.write_file(membership, &**connected.tenure.clock()).await?;
        let mut variables = wrapped::variables(membership, connected);
        let path = file.as_ref().map(|file| file.path().as_os_str().to_owned());
        variables.extend(path.map(|path| ("TENURE_FILE".into(), path)));
        let progress = self.progress.file().map(|path| path.clone().into_os_string());
        variables.extend(progress.map(|path| ("TENURE_PROGRESS_FILE".into(), path)));
        let (clock, wrapped) = (connected.tenure.clock(), self.wrapped());
        let must_stop = async {
            tokio::select! {
                biased;
                why = self.watch(membership, file.as_ref()) => MustStop::Because(why),
                () = self.progress.stalled(membership, &**clock) => {
                    let within = show_duration(self.progress.within());
                    say(format_args!("stopping {}: no progress within {within}", wrapped.name()));
                    MustStop::Stalled
                }
            }
        };
        // It stops for what `must_stop` says, not for a deadline: nothing expires that it holds.
        let (_tell, evidence) = watch::channel(Evidence::primary());
        let (ended, why) = wrapped.run(variables, evidence, signals, clock, must_stop).await?;
        match why {
            None => return Ok(ended),
            Some(MustStop::Because(why)) => say(format_args!("stopped {}: {why}", wrapped.name())),
            // Its leases are free immediately only if no process is left. `live` leaves again, and reports an error.
            Some(MustStop::Stalled) => _ = membership.leave_without_progress(ended.is_gone).await,
        }
        Ok(Ended { code: FAILED, ..ended })
    }

    /// Keeps the tenure file up to date. Completes with the reason when the command must not go on.
    async fn watch(&self, membership: &Membership, file: Option<&TenureFile>) -> String {
        let mut changes = membership.watch();
        let mut told = membership.tenure();
        loop {
            tokio::select! {
                biased;
                end = membership.ended() => {
                    let tenure = membership.tenure();
                    return match end {
                        Ok(EndReason::Superseded) => format!("{tenure} was superseded by a newer join of the same member"),
                        Ok(EndReason::Expelled) => format!("{tenure} was expelled by an operator"),
                        Ok(reason) => format!("{tenure} ended: {}", reason.as_str()),
                        Err(error) => format!("{tenure} can no longer be kept alive: {}", error.chain()),
                    };
                }
                Ok(()) = changes.changed() => {
                    let status = changes.borrow_and_update().clone();
                    let lapsed = status.verdict == Verdict::Lost || matches!(status.phase, Phase::Rejoining { .. });
                    if self.on_lapse == OnLapse::Stop && (lapsed || status.tenure != told) {
                        return format!("{told} has ended (--on-lapse stop)");
                    }
                    if status.tenure != told {
                        say(format_args!("{told} has ended; joined again as {}", status.tenure));
                        told = status.tenure;
                        if let Some(file) = file {
                            file.set(content(membership));
                        }
                    }
                }
            }
        }
    }

    /// Without `--file`, a file that cannot be created does not stop the command.
    async fn write_file(&self, membership: &Membership, clock: &dyn Clock) -> anyhow::Result<Option<TenureFile>> {
        match TenureFile::create(self.file.as_deref(), content(membership), clock).await {
            Ok(file) => Ok(Some(file)),
            Err(error) if self.file.is_none() => {
                say(format_args!("TENURE_FILE not written: {error:#}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The content of the tenure file.
fn content(membership: &Membership) -> Content {
    let tenure = membership.tenure();
    Content {
        group: membership.group().clone(),
        member: membership.member().clone(),
        term: tenure.term(),
        tenure,
        ttl_ms: tenure::wire::ms(membership.timing().ttl),
    }
}
