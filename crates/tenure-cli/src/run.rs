//! `tenure run`: runs a command only where this node is the primary, and registers it only while it serves.

mod catalog;
mod leader;
mod member;
mod ready;
mod service;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tempfile::TempDir;
use tenure::loops::Loops;
use tenure::membership::JoinOptions;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::id::{LeaseName, MemberId};
use tenure_core::supervise::{Evidence, OnUncertain, Restart, Settings};
use tenure_core::time::parse_duration;
use tenure_core::timing::Timing;
use tenure_supervise::catalog::consul::Janitor;
use tenure_supervise::child::{Helpers, Program};
use tenure_supervise::leadership::MountRule;
use tenure_supervise::leadership::litefs::{DEFAULT_EVENTS, Events, LiteFsSettings};
use tenure_supervise::probe::Readiness;
use tenure_supervise::process::Processes;
use tenure_supervise::run::{Seat, Supervision};
use tenure_supervise::signals::{Signals, Wish};
use tenure_supervise::status::{keep_file, listen};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use self::catalog::{Around, CatalogArgs};
use self::leader::{Following, GIVING_UP, Leader};
use self::member::{Joining, Member};
use self::ready::Ready;
use self::service::ServiceArgs;
use crate::cli::{DEFAULT_STORE, GroupArgs, StoreArgs};
use crate::connect;
use crate::exit::{FAILED, Usage};
use crate::secrets;
use crate::settings::LONGEST_TTL;

/// The first and the longest pause before a failed command is started again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Runs a command only where this node is the primary.
///
/// The command starts on positive evidence alone, is registered in the catalog when it is ready, and is stopped with all
/// that it has started when this node is not the primary any more. It is told its TENURE_ROLE, TENURE_TERM and
/// TENURE_FENCING_TOKEN, and in the JSON file TENURE_DEADLINE_FILE until when it may work. It does not get the secrets of its
/// supervisor: TENURE_TOKEN, CONSUL_HTTP_TOKEN, and the password in TENURE_STORE. TERM, INT and QUIT take it out
/// of the catalog, then stop it; HUP, USR1, USR2 and WINCH are passed on. Its exit code is passed on (128 + n for a
/// signal).
#[derive(Debug, Clone, Args)]
pub(crate) struct Run {
    /// What makes this node the primary: litefs:DIR, lease:NAME or always.
    #[arg(long, value_name = "SOURCE", env = "TENURE_LEADER")]
    leader: Leader,
    /// A lease of the store as a second guard: only one of those who are primary by --leader runs the command.
    #[arg(long, value_name = "LEASE")]
    guard: Option<LeaseName>,
    #[command(flatten)]
    group: GroupArgs,
    /// The name to join the group under, for a lease. When left out, a new one at every start: HOST-START-RANDOM.
    #[arg(long, value_name = "MEMBER")]
    member: Option<MemberId>,
    /// After this long without a sign of life others may take the lease, and the service is critical.
    #[arg(long, value_name = "DURATION", env = "TENURE_TTL", default_value = "15s", value_parser = parse_duration)]
    ttl: Duration,
    /// The longest ttl of the store, when it is used without a daemon; the same for all that use it.
    #[arg(long, value_name = "DURATION", env = "TENURE_MAX_TTL", default_value = "2m", value_parser = parse_duration)]
    max_ttl: Duration,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    catalog: CatalogArgs,
    /// How to tell that the command serves: none, delay:3s, tcp, tcp:PORT, http:/PATH, http://HOST/PATH or exec:SCRIPT.
    #[arg(long, value_name = "PROBE", default_value = "none")]
    ready: Ready,
    /// What to do with a running command when it is unclear who is the primary: keep it, or stop it after a while
    /// (stop-after:10s). A lease ends it in time by itself.
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    on_uncertain: Unclear,
    /// What to do when the command ends by itself.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Again::Never)]
    restart: Again,
    /// Everything that has to be done after a signal to end is done in this time.
    #[arg(long, value_name = "DURATION", default_value = "4500ms", value_parser = parse_duration)]
    stop_budget: Duration,
    /// How long the command goes on after it has left the catalog, before it is stopped.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = parse_duration)]
    drain: Duration,
    /// How long the command has between TERM and KILL.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    grace: Duration,
    /// Keep the status in this file.
    #[arg(long, value_name = "PATH")]
    status_file: Option<PathBuf>,
    /// Answer the status over HTTP: 200 while the command runs and is ready, else 503.
    #[arg(long, value_name = "ADDRESS")]
    status_listen: Option<String>,
    /// LiteFS: its event stream; `off` when there is none to ask.
    #[arg(long, value_name = "URL", default_value = DEFAULT_EVENTS)]
    litefs_events: String,
    /// LiteFS: nothing is certain without the event stream.
    #[arg(long)]
    litefs_events_required: bool,
    /// LiteFS: which mounts count: litefs, unsafe-any-fuse or unsafe-none.
    #[arg(long, value_name = "RULE", default_value_t = MountRule::LiteFs)]
    litefs_mount: MountRule,
    /// LiteFS: for how long `.primary` must have been absent.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
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
enum Again {
    Never,
    OnFailure,
}

#[derive(Debug, Clone, Copy)]
struct Unclear(OnUncertain);

impl FromStr for Unclear {
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
        return Usage::new(format!("--status-listen: {address:?} is no HOST:PORT")).into();
    }
    anyhow::Error::new(error).context(format!("--status-listen: cannot listen on {address}"))
}

/// What is set to nothing is not set.
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let settings = self.settings()?;
        crate::logging::start_unhindered("info")?;
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

    /// What was said about the store; what is set to nothing is not set.
    fn store_url(&self) -> Option<&str> {
        let url = self.store.as_ref().map(|store| store.url.as_str());
        url.filter(|url| !url.is_empty())
    }

    fn uses_store(&self) -> bool {
        self.needs_store() || self.holds_registrations()
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        // What is held in the store is given up after the child is gone.
        let giving_up = if self.uses_store() { GIVING_UP } else { Duration::ZERO };
        let settings = Settings {
            on_uncertain: self.on_uncertain.0,
            restart: match self.restart {
                Again::Never => Restart::Never,
                Again::OnFailure => Restart::OnFailure {
                    first: PAUSES.0,
                    most: PAUSES.1,
                },
            },
            stop_budget: self.stop_budget.saturating_sub(giving_up),
            drain: self.drain,
            grace: self.grace,
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

    /// A command that has to be stopped before a lost lease is another's must not be stopped for one beat that is late.
    fn check_lease(&self, settings: &Settings) -> anyhow::Result<()> {
        let timing = Timing::for_ttl(self.ttl);
        let taken = timing.margin + settings.head_start() + timing.interval + timing.request_timeout;
        if taken >= self.ttl {
            let message = format!(
                "--ttl {:?}: a command that is to be gone before its lease ends is told so {:?} earlier (--grace and a \
                 reserve), and beats come every {:?}: write a longer --ttl or a shorter --grace",
                self.ttl,
                timing.margin + settings.head_start(),
                timing.interval
            );
            return Err(Usage::new(message).into());
        }
        Ok(())
    }

    fn following(&self) -> Following {
        let dir = match &self.leader {
            Leader::LiteFs(dir) => dir.clone(),
            Leader::Always | Leader::Lease(_) => PathBuf::new(),
        };
        let events = match self.litefs_events.as_str() {
            "off" | "" => Events::Off,
            url if self.litefs_events_required => Events::Required(url.to_owned()),
            url => Events::WhenReachable(url.to_owned()),
        };
        Following {
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

    fn joining(&self) -> Joining {
        Joining {
            store: self.store_url().unwrap_or(DEFAULT_STORE).to_owned(),
            group: self.group.name.clone(),
            options: JoinOptions {
                member: self.member.clone(),
                ttl: self.ttl,
                ..JoinOptions::default()
            },
            max_ttl: self.max_ttl,
        }
    }

    async fn supervise(self, settings: Settings) -> anyhow::Result<u8> {
        let (wish, wishes) = mpsc::channel(8);
        Signals::listen()?.forward(wish.clone());
        let clock: Arc<dyn Clock> = SystemClock::shared();
        let node = rustix::system::uname();
        let service = self.service.service(env, &node.nodename().to_string_lossy())?;
        let (host, port) = (self.service.host(env), self.service.port(env)?);
        let probe = self.ready.probe(&host, port).map_err(Usage::new)?;
        let (tell, evidence) = watch::channel(Evidence::Uncertain("nothing was heard yet".to_owned()));
        let member = self.join(&clock, &tell, wish).await?;
        let joined = member.as_ref().map(Member::joined);
        let around = Around {
            ttl: self.ttl,
            joined: joined.clone(),
            env,
            clock: &clock,
        };
        let catalog = self.catalog.open(service, around)?;
        let _janitor = self.janitor(member.as_ref(), &clock)?;
        let (file, _dir) = self.status_file()?;
        let standing = self.following().start(&clock, joined, tell)?;
        let seat: Arc<dyn Seat> = Arc::<leader::Standing>::clone(&standing);
        let supervision = Supervision {
            processes: Processes::adopting(&clock)?,
            program: Program {
                command: self.command.clone(),
                helpers: Helpers {
                    environment: secrets::withheld(&[secrets::CONSUL]),
                    ..Helpers::of_this_program("launch", "keep")
                },
            },
            variables: self.variables(&file),
            readiness: Readiness::by(probe),
            settings,
            evidence,
            registration: catalog,
            seat: Some(seat),
            wishes,
            clock: Arc::clone(&clock),
        };
        let status = supervision.status();
        let _server = match &self.status_listen {
            Some(address) => {
                let listening = listen(address, status.subscribe(), Arc::clone(&clock)).await;
                Some(listening.map_err(|error| cannot_listen(address, error))?)
            }
            None => None,
        };
        let keeper = tokio::spawn(keep_file(file, status.subscribe()));
        let ended = supervision.run(&status).await;
        standing.end(ended.is_gone).await;
        if let Some(member) = &member {
            member.end(ended.is_gone, &*clock).await;
        }
        // The last word is written before we go.
        drop(status);
        drop(_server);
        let _ = tenure_core::clock::within(&*clock, Duration::from_millis(100), keeper).await;
        Ok(ended.code)
    }

    /// Joins, where the store is used. A membership that cannot be had, or is over for good, ends a supervisor that is
    /// nothing without it; where it only makes the end of a killed one known sooner, the command goes on.
    ///
    /// # Errors
    /// `Usage` for what names no store.
    async fn join(
        &self,
        clock: &Arc<dyn Clock>,
        tell: &watch::Sender<Evidence>,
        wish: mpsc::Sender<Wish>,
    ) -> anyhow::Result<Option<Member>> {
        if !self.uses_store() {
            return Ok(None);
        }
        // Only a lease makes who leads depend on the store.
        let doubts = self.has_lease().then(|| tell.clone());
        let doubt = move |why| {
            if let Some(tell) = &doubts {
                tell.send_replace(Evidence::Uncertain(why));
            }
        };
        let member = self.joining().start(clock, doubt).await?;
        if self.needs_store() {
            let over = member.over();
            tokio::spawn(async move {
                over.await;
                // It was said why; the same would be said for ever.
                let _ = wish.send(Wish::End(FAILED)).await;
            });
        }
        Ok(Some(member))
    }

    /// Clears away what killed supervisors of the group have left in Consul, for as long as the answer is held.
    fn janitor(&self, member: Option<&Member>, clock: &Arc<dyn Clock>) -> anyhow::Result<Option<Loops>> {
        let Some(member) = member.filter(|_| self.holds_registrations()) else {
            return Ok(None);
        };
        let (agents, loops) = (
            self.catalog.agents(env, clock)?,
            Loops::new(Arc::clone(clock), Handle::current()),
        );
        let (store, groups) = (member.store(), vec![self.group.name.clone()]);
        let (its, clock) = (loops.clone(), Arc::clone(clock));
        tokio::spawn(async move {
            let Some(store) = store.await else { return };
            let make = move || Janitor::new(Arc::clone(&store), groups.clone(), agents.clone(), Arc::clone(&clock));
            if let Err(error) = its.start(Janitor::settings(), make) {
                tracing::error!(error = error.chain(), "nobody here clears registrations away");
            }
        });
        Ok(Some(loops))
    }

    /// Where the status goes; in a directory of our own when nobody has said.
    fn status_file(&self) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
        if let Some(path) = &self.status_file {
            return Ok((std::path::absolute(path)?, None));
        }
        let dir = tempfile::Builder::new().prefix("tenure-run-").tempdir()?;
        Ok((dir.path().join("status.json"), Some(dir)))
    }

    fn variables(&self, file: &std::path::Path) -> Vec<(OsString, OsString)> {
        let mut variables = vec![("TENURE_DEADLINE_FILE".into(), file.as_os_str().to_owned())];
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
    struct Line {
        #[command(flatten)]
        run: Run,
    }

    fn settings(args: &[&str]) -> Result<Settings, String> {
        let line = ["x"].iter().chain(args).chain(&["--", "true"]);
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        line.run.settings().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
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
    fn a_store_that_was_not_named_is_used_only_where_nothing_goes_without_it() {
        let uses = |args: &[&str]| {
            let line = ["x", "--service", "web", "--port", "80"].iter().chain(args);
            Line::parse_from(line.chain(&["--", "true"])).run.uses_store()
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
        assert_eq!(alone - leased, GIVING_UP);
    }
}
