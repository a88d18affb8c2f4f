//! The command line: the subcommands, and the options that they share.

pub(crate) mod examples;
mod foreign;
pub(crate) mod help;

use std::path::PathBuf;

use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use tenure_core::id::Group;

use self::help::{CONNECTION, OUTPUT};
use crate::connect::show_token_of;
use crate::exit::Usage;

use crate::{
    acquire, adopt, bench, claim, claims, completions, config, demo, doctor, events, expel, groups, join, labels,
    launch, leases, lock, man, members, release, restore, roster, run, serve, sessions, settle, status, style, sweep,
    targets, token, why,
};

/// Where a daemon listens by default.
pub(crate) const DEFAULT_STORE: &str = "http://127.0.0.1:7717";

/// Who is alive, who owns what, and what must be cleaned up because its owner died.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version = version(),
    propagate_version = true,
    styles = style::HELP,
    after_help = examples::TENURE
)]
pub(crate) struct Cli {
    /// A file with the access token for the daemon, or with a provider's own token [env: TENURE_TOKEN_FILE, or TENURE_TOKEN
    /// with the token itself].
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, display_order = 900)]
    token_file: Option<PathBuf>,
    /// When to use colours: auto, always or never. With auto: on a terminal, unless NO_COLOR is set; CLICOLOR_FORCE=1 uses them everywhere.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        hide_possible_values = true,
        default_value_t = ColorChoice::Auto,
        help_heading = OUTPUT,
        display_order = 901
    )]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(after_help = examples::SERVE)]
    Serve(serve::Serve),
    #[command(after_help = examples::JOIN)]
    Join(join::Join),
    #[command(after_help = examples::LOCK)]
    Lock(lock::Lock),
    #[command(after_help = examples::RUN)]
    Run(Box<run::Run>),
    #[command(after_help = examples::CLAIM)]
    Claim(claim::Claim),
    #[command(after_help = examples::ACQUIRE)]
    Acquire(acquire::Acquire),
    #[command(after_help = examples::RELEASE)]
    Release(release::Release),
    #[command(after_help = examples::LABELS)]
    Labels(labels::SetLabels),
    #[command(after_help = examples::EXPEL)]
    Expel(expel::Expel),
    #[command(after_help = examples::GROUPS)]
    Groups(groups::Groups),
    #[command(after_help = examples::MEMBERS)]
    Members(members::Members),
    #[command(after_help = examples::CLAIMS)]
    Claims(claims::Claims),
    #[command(after_help = examples::LEASES)]
    Leases(leases::Leases),
    #[command(after_help = examples::TARGETS)]
    Targets(targets::Targets),
    #[command(after_help = examples::SESSIONS)]
    Sessions(sessions::Sessions),
    #[command(after_help = examples::ROSTER)]
    Roster(roster::Roster),
    #[command(after_help = examples::EVENTS)]
    Events(events::Events),
    #[command(after_help = examples::WHY)]
    Why(why::Why),
    #[command(after_help = examples::STATUS)]
    Status(status::Status),
    #[command(after_help = examples::SWEEP)]
    Sweep(sweep::Sweep),
    #[command(after_help = examples::SETTLE)]
    Settle(settle::Settle),
    #[command(after_help = examples::ADOPT)]
    Adopt(adopt::Adopt),
    Restore(restore::Restore),
    Doctor(doctor::Doctor),
    #[command(after_help = examples::BENCH)]
    Bench(bench::Bench),
    Token(token::Token),
    Demo(demo::Demo),
    Config(config::Config),
    Completions(completions::Completions),
    Man(man::Man),
    #[command(hide = true)]
    DemoPart(demo::Part),
    #[command(hide = true)]
    Launch(launch::Launch),
    #[command(hide = true)]
    Keep(launch::Keep),
}

impl Cli {
    /// The command line with its help laid out.
    pub(crate) fn whole() -> clap::Command {
        help::arrange(Self::command())
    }

    /// Reads the command line of this process; wrong usage and help end it.
    pub(crate) fn read() -> Self {
        let matches = foreign::hide_values(Self::whole()).try_get_matches();
        let read = matches.and_then(|matches| Self::from_arg_matches(&matches));
        read.unwrap_or_else(|error| foreign::end(error))
    }

    /// Runs the command and returns the exit code.
    ///
    /// # Errors
    /// Those of the command; wrong usage is a [`crate::exit::Usage`].
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        style::choose(self.color);
        if let Some(file) = self.token_file {
            if matches!(self.command, Command::Serve(_)) {
                let message = "--token-file is what a client shows; the file of a daemon is --tokens";
                return Err(Usage::new(message).into());
            }
            show_token_of(file);
        }
        match self.command {
            Command::Serve(serve) => serve.run(),
            Command::Join(join) => join.run(),
            Command::Lock(lock) => lock.run(),
            Command::Run(run) => run.run(),
            Command::Launch(launch) => launch.run(),
            Command::Keep(keep) => keep.run(),
            Command::Claim(claim) => claim.store.with(async |store| claim.run(store).await),
            Command::Acquire(acquire) => acquire.store.with_client(async |client| acquire.run(client).await),
            Command::Release(release) => release.run(),
            Command::Labels(labels) => labels.store.with(async |store| labels.run(store).await),
            Command::Expel(expel) => expel.store.with(async |store| expel.run(store).await),
            Command::Groups(groups) => groups.store.with(async |store| groups.run(store).await),
            Command::Members(members) => members.store.with(async |store| members.run(store).await),
            Command::Claims(claims) => claims.store.with(async |store| claims.run(store).await),
            Command::Leases(leases) => leases.run(),
            Command::Targets(targets) => targets.run(),
            Command::Sessions(sessions) => sessions.run(),
            Command::Roster(roster) => roster.run(),
            Command::Events(events) => events.store.with(async |store| events.run(store).await),
            Command::Why(why) => why.store.with(async |store| why.run(store).await),
            Command::Status(status) => status.store.with(async |store| status.run(store).await),
            Command::Sweep(sweep) => sweep.store.with(async |store| sweep.run(store).await),
            Command::Settle(settle) => settle.store.with(async |store| settle.run(store).await),
            Command::Adopt(adopt) => adopt.run(),
            Command::Restore(restore) => restore.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Bench(bench) => bench.run(),
            Command::Token(token) => token.run(),
            Command::Demo(demo) => demo.run(),
            Command::DemoPart(part) => part.run(),
            Command::Config(config) => config.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
        }
    }
}

/// The version, with the commit if the build set `TENURE_COMMIT`.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("TENURE_COMMIT").filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

/// The store to connect to.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    /// A daemon (http://HOST:PORT, https://HOST) or a store: sqlite:PATH, valkey://HOST or redis://HOST (with TLS
    /// valkeys://, rediss://), valkey-sentinel://HOST,…/NAME, valkey-cluster://HOST,….
    #[arg(
        long = "store",
        value_name = "URL",
        env = "TENURE_STORE",
        hide_env_values = true,
        default_value = DEFAULT_STORE,
        help_heading = CONNECTION
    )]
    pub(crate) url: String,
}

/// The group to use.
#[derive(Debug, Clone, Args)]
pub(crate) struct GroupArgs {
    /// The group to use.
    #[arg(
        long = "group",
        value_name = "GROUP",
        env = "TENURE_GROUP",
        default_value = "default"
    )]
    pub(crate) name: Group,
}

/// The output format.
#[derive(Debug, Clone, Args)]
pub(crate) struct FormatArgs {
    /// Print JSON instead of a table.
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
}

/// The part of a listing to show.
#[derive(Debug, Clone, Args)]
pub(crate) struct PageArgs {
    /// Show at most this many rows.
    #[arg(long, value_name = "ROWS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Continue an earlier listing after its `next`.
    #[arg(long, value_name = "NEXT")]
    pub(crate) after: Option<String>,
}
