//! `tenure join`: keeps a tenure alive for as long as a command runs.

pub(crate) mod child;
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
use tenure_core::time::{parse_duration, show_duration};
use tenure_core::timing::Timing;
use tenure_core::verdict::Verdict;
use tenure_supervise::child::Child;
use tenure_supervise::signals::Signals;

use self::progress_file::ProgressArgs;
use self::tenure_file::{Content, TenureFile};
use crate::cli::{GroupArgs, StoreArgs};
use crate::connect::{self, Connected};
use crate::exit::{FAILED, Usage, say};
use crate::labels::{label, labels};
use crate::launch::CANNOT_EXECUTE;
use crate::secrets;
use crate::settings::LONGEST_TTL;

/// Runs a command as a living member of a group.
///
/// It joins, sends the heartbeats while the command runs, and leaves when the command ends. The command reads its tenure from
/// TENURE_ID (with TENURE_MEMBER, TENURE_GROUP and TENURE_STORE), so that `tenure claim` and `tenure acquire` in it act for
/// the member. The JSON file TENURE_FILE names the current tenure, also after a lapse and a rejoin.
///
/// The command runs in its own process group and receives TERM, INT, HUP, QUIT, USR1, USR2 and WINCH. Its exit code is passed
/// on (128 + n for a signal). If the member is superseded or expelled, the command is stopped and the exit code is 1. Secrets
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

/// The end of the wrapped command.
enum CommandEnd {
    /// It exited.
    Ended(u8),
    /// It must be stopped, for this reason.
    Stop(String),
    /// It must be stopped because it makes no progress.
    Stalled,
}

impl Join {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let options = self.options()?;
        crate::logging::start_unhindered("warn")?;
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
        let connected = connect::for_membership(&self.store.url, self.max_ttl).await?;
        let membership = connected.tenure.group(self.group.name.as_str())?.join(options).await?;
        // A signal may have arrived during the join.
        let code = match child::asked_to_end(&mut signals).await {
            Some(code) => Ok(code),
            None => self.accompany(&connected, &membership, &mut signals).await,
        };
        // The command has ended, so others may take over now.
        if let Err(error) = membership.leave().await {
            say(format_args!(
                "could not leave, {} will lapse: {}",
                membership.tenure(),
                error.chain()
            ));
        }
        connected.tenure.close().await;
        code
    }

    /// Runs the command until it exits or must be stopped. No process of it is left afterwards.
    async fn accompany(
        &self,
        connected: &Connected,
        membership: &Membership,
        signals: &mut Signals,
    ) -> anyhow::Result<u8> {
        let file = self.write_file(membership)?;
        let tenure = membership.tenure();
        let mut variables: Vec<(OsString, OsString)> = vec![
            ("TENURE_ID".into(), tenure.to_string().into()),
            ("TENURE_MEMBER".into(), membership.member().as_str().into()),
            ("TENURE_GROUP".into(), membership.group().as_str().into()),
        ];
        let store = secrets::without_password(&connected.url);
        variables.extend(store.map(|url| ("TENURE_STORE".into(), url.into())));
        let path = file.as_ref().map(|file| file.path().as_os_str().to_owned());
        variables.extend(path.map(|path| ("TENURE_FILE".into(), path)));
        let progress = self.progress.file().map(|path| path.clone().into_os_string());
        variables.extend(progress.map(|path| ("TENURE_PROGRESS_FILE".into(), path)));
        let clock = connected.tenure.clock();
        let mut child = match child::start(&self.command, variables, clock).await {
            Ok(child) => child,
            Err(error) => {
                say(format_args!("error: cannot start the command: {error}"));
                return Ok(CANNOT_EXECUTE);
            }
        };
        let over = tokio::select! {
            biased;
            over = self.watch(membership, &mut child, signals, file.as_ref()) => over,
            () = self.progress.stalled(membership, &**clock) => CommandEnd::Stalled,
        };
        if !matches!(over, CommandEnd::Stalled) {
            child::stop(&mut child, &**clock, self.grace, signals).await;
        }
        match over {
            CommandEnd::Ended(code) => Ok(code),
            CommandEnd::Stalled => {
                self.end_stalled(membership, &mut child, &**clock, signals).await;
                Ok(FAILED)
            }
            CommandEnd::Stop(why) => {
                say(format_args!("stopped {}: {why}", self.command[0].to_string_lossy()));
                Ok(FAILED)
            }
        }
    }

    /// Stops the command and ends the tenure. Its leases are free immediately only if no process of it is left.
    async fn end_stalled(&self, membership: &Membership, child: &mut Child, clock: &dyn Clock, signals: &mut Signals) {
        let (within, command) = (show_duration(self.progress.within()), self.command[0].to_string_lossy());
        say(format_args!("stopping {command}: no progress within {within}"));
        let stopped = tokio::select! {
            biased;
            () = child::stop(child, clock, self.grace, signals) => true,
            () = clock.sleep(self.grace + UNKILLABLE) => false,
        };
        // `live` leaves again, and reports an error.
        let _ = membership.leave_without_progress(stopped).await;
        if !stopped {
            say(format_args!("a process of {command} does not end"));
            child.kill();
            child.gone(clock).await;
        }
    }

    async fn watch(
        &self,
        membership: &Membership,
        child: &mut Child,
        signals: &mut Signals,
        file: Option<&TenureFile>,
    ) -> CommandEnd {
        let mut changes = membership.watch();
        let mut told = membership.tenure();
        loop {
            tokio::select! {
                biased;
                code = child.ended() => return CommandEnd::Ended(code),
                end = membership.ended() => {
                    let tenure = membership.tenure();
                    return CommandEnd::Stop(match end {
                        Ok(EndReason::Superseded) => format!("{tenure} was superseded by a newer join of the same member"),
                        Ok(EndReason::Expelled) => format!("{tenure} was expelled by an operator"),
                        Ok(reason) => format!("{tenure} ended: {}", reason.as_str()),
                        Err(error) => format!("{tenure} can no longer be kept alive: {}", error.chain()),
                    });
                }
                signal = signals.next() => child.pass(signal),
                Ok(()) = changes.changed() => {
                    let status = changes.borrow_and_update().clone();
                    let lapsed = status.verdict == Verdict::Lost || matches!(status.phase, Phase::Rejoining { .. });
                    if self.on_lapse == OnLapse::Stop && (lapsed || status.tenure != told) {
                        return CommandEnd::Stop(format!("{told} has ended (--on-lapse stop)"));
                    }
                    if status.tenure != told {
                        say(format_args!("{told} has ended; joined again as {}", status.tenure));
                        told = status.tenure;
                        self.rewrite(file, membership);
                    }
                }
            }
        }
    }

    /// Without `--file`, a file that cannot be created does not stop the command.
    fn write_file(&self, membership: &Membership) -> anyhow::Result<Option<TenureFile>> {
        let made = with_content(membership, |content| TenureFile::create(self.file.as_deref(), content));
        match made {
            Ok(file) => Ok(Some(file)),
            Err(error) if self.file.is_none() => {
                say(format_args!("TENURE_FILE not written: {error:#}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn rewrite(&self, file: Option<&TenureFile>, membership: &Membership) {
        let Some(file) = file else { return };
        if let Err(error) = with_content(membership, |content| file.write(content)) {
            say(format_args!("{error:#}"));
        }
    }
}

/// How long after KILL a process that is still there counts as one that cannot be ended.
const UNKILLABLE: Duration = Duration::from_secs(2);

fn with_content<T>(membership: &Membership, write: impl FnOnce(&Content<'_>) -> T) -> T {
    let tenure = membership.tenure();
    write(&Content {
        group: membership.group(),
        member: membership.member(),
        tenure: &tenure,
        term: tenure.term(),
        ttl_ms: tenure::wire::ms(membership.timing().ttl),
    })
}
