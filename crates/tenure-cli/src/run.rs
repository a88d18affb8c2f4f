//! `tenure run`: runs a command only where this node is the primary, and registers it only while it serves.

mod catalog;
mod ready;
mod service;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tempfile::TempDir;
use tenure::membership::JoinOptions;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::Error;
use tenure_core::id::{LeaseName, MemberId};
use tenure_core::supervise::{OnUncertain, Restart, Settings};
use tenure_core::time::{parse_duration, show_duration};
use tenure_core::timing::Timing;
use tenure_supervise::child::{Helpers, Program};
use tenure_supervise::json_file;
use tenure_supervise::leadership::litefs::{DEFAULT_EVENTS, EventStream, LiteFsSettings};
use tenure_supervise::leadership::{Leader, LeadershipSettings, MountRule, RELEASE_BUDGET};
use tenure_supervise::node::{Connect, JoinSettings, Node, StartError};

use self::catalog::CatalogArgs;
use self::ready::Ready;
use self::service::ServiceArgs;
use crate::cli::{DEFAULT_STORE, GroupArgs, StoreArgs};
use crate::connect;
use crate::exit::Usage;
use crate::secrets;
use crate::settings::LONGEST_TTL;

/// The first and the longest pause before a failed command is started again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Runs a command only where this node is the primary.
///
/// The command starts only when this node is known to be the primary, and is registered in the catalog when it is ready. When
/// this node is no longer the primary, the command is stopped with all processes that it started. It reads TENURE_ROLE,
/// TENURE_TERM and TENURE_FENCING_TOKEN, and from the JSON file TENURE_DEADLINE_FILE until when it may work. It does not
/// receive the supervisor's secrets: TENURE_TOKEN, CONSUL_HTTP_TOKEN, and the password in TENURE_STORE. TERM, INT and QUIT
/// deregister the command, then stop it; HUP, USR1, USR2 and WINCH are passed on. Its exit code is passed on (128 + n for a
/// signal).
#[derive(Debug, Clone, Args)]
pub(crate) struct Run {
    /// What makes this node the primary: litefs:DIR, lease:NAME or always.
    #[arg(long, value_name = "SOURCE", env = "TENURE_LEADER", help_heading = "Leadership")]
    leader: Leader,
    /// A lease of the store as a second guard: of several primaries by --leader, one runs the command.
    #[arg(long, value_name = "LEASE", help_heading = "Leadership")]
    guard: Option<LeaseName>,
    #[command(flatten)]
    group: GroupArgs,
    /// The member's name in the group, for a lease. Default: a new name at every start, HOST-START-RANDOM.
    #[arg(long, value_name = "MEMBER", help_heading = "Leadership")]
    member: Option<MemberId>,
    /// After this time without a heartbeat other nodes can acquire the lease, and the service is critical.
    #[arg(long, value_name = "DURATION", env = "TENURE_TTL", default_value = "15s", value_parser = parse_duration, help_heading = "Leadership")]
    ttl: Duration,
    /// The longest ttl of a store that is used without a daemon; the same for all its users.
    #[arg(long, value_name = "DURATION", env = "TENURE_MAX_TTL", default_value = "2m", value_parser = parse_duration, help_heading = "Leadership")]
    max_ttl: Duration,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The readiness probe of the command: none, delay:3s, tcp, tcp:PORT, http:/PATH, http://HOST/PATH or exec:SCRIPT.
    #[arg(long, value_name = "PROBE", default_value = "none", help_heading = "Command")]
    ready: Ready,
    /// What to do with a running command while the primary is unknown: keep it, or stop it after a while (stop-after:10s).
    /// With a lease it is always stopped before the lease expires.
    #[arg(long, value_name = "WHAT", default_value = "keep", help_heading = "Command")]
    on_uncertain: UncertainPolicy,
    /// What to do when the command exits.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = RestartPolicy::Never, help_heading = "Command")]
    restart: RestartPolicy,
    /// The time for the whole shutdown after a signal.
    #[arg(long, value_name = "DURATION", default_value = "4500ms", value_parser = parse_duration, help_heading = "Command")]
    stop_budget: Duration,
    /// The time between deregistering the command and stopping it.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = parse_duration, help_heading = "Command")]
    drain: Duration,
    /// The time between TERM and KILL.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration, help_heading = "Command")]
    grace: Duration,
    /// Write the status to this file.
    #[arg(long, value_name = "PATH", help_heading = "Status")]
    status_file: Option<PathBuf>,
    /// Serve the status over HTTP: 200 while the command runs and is ready, else 503.
    #[arg(long, value_name = "ADDRESS", help_heading = "Status")]
    status_listen: Option<String>,
    /// LiteFS: the URL of its event stream, or `off`.
    #[arg(long, value_name = "URL", default_value = DEFAULT_EVENTS, help_heading = "LiteFS")]
    litefs_events: String,
    /// LiteFS: treat the primary as unknown without the event stream.
    #[arg(long, help_heading = "LiteFS")]
    litefs_events_required: bool,
    /// LiteFS: the mounts to accept: litefs, unsafe-any-fuse or unsafe-none.
    #[arg(long, value_name = "RULE", default_value_t = MountRule::LiteFs, help_heading = "LiteFS")]
    litefs_mount: MountRule,
    /// LiteFS: `.primary` must have been absent for this time.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration, help_heading = "LiteFS")]
    stable_window: Duration,
    // There only when it was said: with a store that was named, a registration in Consul is cleared away by others of the
    // group when this node is killed. A lease and `--catalog tenure` look for a daemon on this machine without it.
    #[command(flatten)]
    store: Option<StoreArgs>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RestartPolicy {
    Never,
    OnFailure,
}

#[derive(Debug, Clone, Copy)]
struct UncertainPolicy(OnUncertain);

impl FromStr for UncertainPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "keep" => Ok(Self(OnUncertain::Keep)),
            Some(("stop-after", time)) => {
                let time = parse_duration(time).map_err(|error| error.to_string())?;
                Ok(Self(OnUncertain::StopAfter(time)))
            }
            _ => Err("write keep, or stop-after:DURATION".to_owned()),
        }
    }
}

/// `KEY=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn cannot_listen(address: &str, error: std::io::Error) -> anyhow::Error {
    if error.kind() == std::io::ErrorKind::InvalidInput {
        return Usage::new(format!(
            "--status-listen: \"{address}\" is not an address; write HOST:PORT"
        ))
        .into();
    }
    anyhow::Error::new(error).context(format!("--status-listen: cannot listen on {address}"))
}

/// An error of connecting as a supervisor takes it. Wrong usage can never be anything else.
fn never_or_not_yet(error: anyhow::Error) -> Error {
    error
        .downcast()
        .unwrap_or_else(|error| Error::invalid(format!("{error:#}")))
}

/// An empty variable counts as not set.
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let settings = self.settings()?;
        crate::logging::start_supervisor("info")?;
        connect::block_on(self.supervise(settings))
    }

    fn has_lease(&self) -> bool {
        self.guard.is_some() || matches!(self.leader, Leader::Lease(_))
    }

    /// Without the store there is nothing to be done.
    fn needs_store(&self) -> bool {
        self.has_lease() || self.catalog.is_tenure()
    }

    /// Registrations in Consul are holdings of the group.
    fn holds_registrations(&self) -> bool {
        self.service.is_wanted() && self.catalog.is_consul() && (self.needs_store() || self.store_url().is_some())
    }

    /// The URL of the store if it was given; an empty one counts as not given.
    fn store_url(&self) -> Option<&str> {
        let url = self.store.as_ref().map(|store| store.url.as_str());
        url.filter(|url| !url.is_empty())
    }

    fn uses_store(&self) -> bool {
        self.needs_store() || self.holds_registrations()
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        // Holdings in the store are released after the child has ended.
        let giving_up = if self.uses_store() {
            RELEASE_BUDGET
        } else {
            Duration::ZERO
        };
        let settings = Settings {
            on_uncertain: self.on_uncertain.0,
            restart: match self.restart {
                RestartPolicy::Never => Restart::Never,
                RestartPolicy::OnFailure => Restart::OnFailure {
                    first: PAUSES.0,
                    most: PAUSES.1,
                },
            },
            stop_budget: self.stop_budget.saturating_sub(giving_up),
            drain: self.drain,
            grace: self.grace,
            grace_at_deadline: self.grace,
            ..Settings::default()
        };
        settings.check()?;
        if self.guard.is_some() && matches!(self.leader, Leader::Lease(_)) {
            return Err(Usage::new("--guard: the leader is a lease already").into());
        }
        if self.uses_store() {
            Timing::for_ttl(self.ttl)
                .check(LONGEST_TTL)
                .map_err(|error| Usage::new(format!("--ttl: {error}")))?;
        }
        if self.has_lease() {
            self.check_lease(&settings)?;
        }
        Ok(settings)
    }

    /// The ttl must leave room for one late heartbeat before the command has to be stopped.
    fn check_lease(&self, settings: &Settings) -> anyhow::Result<()> {
        let timing = Timing::for_ttl(self.ttl);
        let taken = timing.margin + settings.head_start() + timing.interval + timing.request_timeout;
        if taken >= self.ttl {
            let message = format!(
                "--ttl {}: a command that must end before its lease does is stopped {} earlier (--grace and a reserve), and \
                 heartbeats come every {}: write a longer --ttl or a shorter --grace",
                show_duration(self.ttl),
                show_duration(timing.margin + settings.head_start()),
                show_duration(timing.interval)
            );
            return Err(Usage::new(message).into());
        }
        Ok(())
    }

    fn leadership(&self) -> LeadershipSettings {
        let dir = match &self.leader {
            Leader::LiteFs(dir) => dir.clone(),
            Leader::Always | Leader::Lease(_) => PathBuf::new(),
        };
        let events = match self.litefs_events.as_str() {
            "off" | "" => EventStream::Off,
            url if self.litefs_events_required => EventStream::Required(url.to_owned()),
            url => EventStream::WhenReachable(url.to_owned()),
        };
        LeadershipSettings {
            leader: self.leader.clone(),
            guard: self.guard.clone(),
            litefs: LiteFsSettings {
                mount: self.litefs_mount,
                events,
                window: self.stable_window,
                ..LiteFsSettings::new(dir)
            },
        }
    }

    fn joining(&self) -> Option<JoinSettings> {
        if !self.uses_store() {
            return None;
        }
        let (store, max_ttl) = (self.store_url().unwrap_or(DEFAULT_STORE).to_owned(), self.max_ttl);
        let connect: Connect = Box::new(move || {
            let store = store.clone();
            Box::pin(async move {
                let connected = connect::for_membership(&store, max_ttl).await;
                connected.map(|to| to.tenure).map_err(never_or_not_yet)
            })
        });
        Some(JoinSettings {
            connect,
            group: self.group.name.clone(),
            options: JoinOptions {
                member: self.member.clone(),
                ttl: self.ttl,
                ..JoinOptions::default()
            },
        })
    }

    async fn supervise(self, settings: Settings) -> anyhow::Result<u8> {
        let clock: Arc<dyn Clock> = SystemClock::shared();
        let hostname = rustix::system::uname();
        let service = self.service.service(env, &hostname.nodename().to_string_lossy())?;
        let (host, port) = (self.service.host(env), self.service.port(env)?);
        let (file, _dir) = self.status_file()?;
        let agents = self.holds_registrations().then(|| self.catalog.agents(env, &clock));
        let node = Node {
            leadership: self.leadership(),
            joining: self.joining(),
            needs_store: self.needs_store(),
            has_lease: self.has_lease(),
            registration: self.catalog.registration(service, self.ttl, env)?,
            agents: agents.transpose()?,
            program: Program {
                command: self.command.clone(),
                helpers: Helpers {
                    environment: secrets::withheld(&[secrets::CONSUL]),
                    ..Helpers::of_this_program("launch", "keep")
                },
            },
            variables: self.variables(file.as_ref()),
            probe: self.ready.probe(&host, port).map_err(Usage::new)?,
            settings,
            status_file: file,
            status_listen: self.status_listen.clone(),
            clock,
        };
        node.run().await.map_err(|error| self.not_started(error))
    }

    /// Says why a node did not start, in the words of the flags.
    fn not_started(&self, error: StartError) -> anyhow::Error {
        match error {
            StartError::Refused(error) => error.into(),
            StartError::Catalog(error) => Usage::new(format!("--catalog: {}", error.chain())).into(),
            StartError::StatusListen(error) => cannot_listen(self.status_listen.as_deref().unwrap_or_default(), error),
            StartError::System(error) => error.into(),
        }
    }

    /// The status file; by default in a private directory. Without `--status-file` the command also runs if there is no
    /// place for it.
    fn status_file(&self) -> anyhow::Result<(Option<PathBuf>, Option<TempDir>)> {
        if let Some(path) = &self.status_file {
            return Ok((Some(std::path::absolute(path)?), None));
        }
        match json_file::directory("tenure-run-") {
            Ok(dir) => Ok((Some(dir.path().join("status.json")), Some(dir))),
            Err(error) => {
                tracing::warn!(%error, "no place for a temporary file, so TENURE_DEADLINE_FILE is not set; name a path with --status-file");
                Ok((None, None))
            }
        }
    }

    fn variables(&self, file: Option<&PathBuf>) -> Vec<(OsString, OsString)> {
        let file = file.map(|file| ("TENURE_DEADLINE_FILE".into(), file.clone().into_os_string()));
        let mut variables: Vec<_> = file.into_iter().collect();
        if self.uses_store() {
            let store = self.store_url().unwrap_or(DEFAULT_STORE);
            variables.push(("TENURE_GROUP".into(), self.group.name.as_str().into()));
            variables.extend(secrets::without_password(store).map(|url| ("TENURE_STORE".into(), url.into())));
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct CommandLine {
        #[command(flatten)]
        run: Run,
    }

    fn settings(args: &[&str]) -> Result<Settings, String> {
        let line = ["x"].iter().chain(args).chain(&["--", "true"]);
        let line = CommandLine::try_parse_from(line).map_err(|error| error.to_string())?;
        line.run.settings().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn unusable_token_entries_are_refused() {
        assert!(settings(&["--leader", "always"]).is_ok());
        assert!(settings(&["--leader", "lease:a"]).is_ok());
        for (args, part) in [
            (&["--leader", "always", "--drain", "4s"][..], "4s"),
            (&["--leader", "lease:a", "--ttl", "5s"], "--grace"),
            (&["--leader", "lease:a", "--guard", "b"], "--guard"),
            (&["--leader", "raft"], "litefs:DIR"),
            (&["--leader", "always", "--on-uncertain", "panic"], "stop-after"),
            (&[], "--leader"),
        ] {
            let error = settings(args).unwrap_err();
            assert!(error.contains(part), "{args:?}: {error}");
        }
    }

    #[test]
    fn unnamed_store_is_used_only_if_required() {
        let uses = |args: &[&str]| {
            let line = ["x", "--service", "web", "--port", "80"].iter().chain(args);
            CommandLine::parse_from(line.chain(&["--", "true"])).run.uses_store()
        };
        assert!(!uses(&["--leader", "always"]));
        assert!(uses(&["--leader", "always", "--store", "http://127.0.0.1:7717"]));
        assert!(!uses(&[
            "--leader",
            "always",
            "--store",
            "http://h:1",
            "--catalog",
            "none"
        ]));
        assert!(uses(&["--leader", "always", "--catalog", "tenure"]));
        assert!(uses(&["--leader", "lease:a", "--catalog", "none"]));
    }

    #[test]
    fn giving_the_lease_up_comes_out_of_the_stop_budget() {
        let alone = settings(&["--leader", "always"]).unwrap().stop_budget;
        let leased = settings(&["--leader", "always", "--guard", "a"]).unwrap().stop_budget;
        assert_eq!(alone - leased, RELEASE_BUDGET);
    }
}
