//! `tenure roster`: providers, their availability and engagements.

mod engagement;
mod hot_store;
mod provider;
mod reach;
mod reading;
mod settings;
mod views;

use clap::{Args, Subcommand};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::RosterName;

use self::reach::{RosterAccess, RosterClient};
use crate::cli::help::CONNECTION;
use crate::cli::{FormatArgs, StoreArgs};
use crate::connect;
use crate::exit::{FAILED, say};
use crate::nearest::unknown;

/// Shows and changes rosters: providers, their availability, and their engagements.
///
/// With a daemon as the store, the daemon does the work. With a store itself this command also needs the ledger (--ledger).
#[derive(Debug, Clone, Args)]
pub(crate) struct Roster {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Lists the rosters by name.
    #[command(after_help = "Examples:\n  tenure roster names")]
    Names(reading::Names),
    /// Lists providers.
    #[command(visible_alias = "ls")]
    #[command(after_help = "Examples:\n  tenure roster list --roster desk --state online")]
    List(reading::List),
    /// Shows one provider (exit 1 if it does not exist).
    #[command(after_help = "Examples:\n  tenure roster show ann --roster desk")]
    Show(reading::Show),
    /// Creates or changes a provider.
    #[command(after_help = "Examples:\n  tenure roster put ann --roster desk --capacity 2 --display-name Ann")]
    Put(provider::Put),
    /// Removes providers that are offline and have no open engagement.
    #[command(visible_alias = "rm")]
    #[command(after_help = "Examples:\n  tenure roster remove ann --roster desk")]
    Remove(provider::Remove),
    /// Takes providers online.
    #[command(after_help = "Examples:\n  tenure roster online ann --roster desk")]
    Online(provider::Act),
    /// Takes providers offline.
    #[command(after_help = "Examples:\n  tenure roster offline ann --roster desk")]
    Offline(provider::Act),
    /// Activates providers, so that they can go online.
    #[command(after_help = "Examples:\n  tenure roster activate ann --roster desk")]
    Activate(provider::Act),
    /// Deactivates providers: takes them offline and revokes their tokens.
    #[command(after_help = "Examples:\n  tenure roster deactivate ann --roster desk")]
    Deactivate(provider::Act),
    /// Sends a heartbeat for providers.
    #[command(after_help = "Examples:\n  tenure roster heartbeat ann --roster desk")]
    Heartbeat(provider::Act),
    /// Lists available providers, the least occupied first.
    #[command(after_help = "Examples:\n  tenure roster available --roster desk --limit 5")]
    Available(reading::Available),
    /// Shows whether any provider is available.
    #[command(after_help = "Examples:\n  tenure roster availability --roster desk --json")]
    Availability(reading::Plain),
    /// Reserves the least occupied provider (exit 1 if none is available).
    #[command(after_help = "Examples:\n  tenure roster reserve call-1 --roster desk")]
    Reserve(engagement::Reserve),
    /// Creates an engagement of a provider, also above its capacity.
    #[command(after_help = "Examples:\n  tenure roster engage ann --id call-1 --roster desk")]
    Engage(engagement::Engage),
    /// Ends an engagement.
    #[command(after_help = "Examples:\n  tenure roster end call-1 --roster desk")]
    End(engagement::End),
    /// Moves an engagement to another provider or status.
    #[command(after_help = "Examples:\n  tenure roster move call-1 --to ben --roster desk")]
    Move(engagement::Change),
    /// Shows an engagement (exit 1 if it does not exist).
    #[command(after_help = "Examples:\n  tenure roster engagement call-1 --roster desk")]
    Engagement(engagement::Show),
    /// Counts providers by state.
    #[command(after_help = "Examples:\n  tenure roster stats --roster desk")]
    Stats(reading::Plain),
    /// Shows the settings.
    #[command(after_help = "Examples:\n  tenure roster settings --roster desk")]
    Settings(reading::Plain),
    /// Changes the settings, for every daemon within a second.
    #[command(after_help = "Examples:\n  tenure roster set --roster desk --stale-after 90s")]
    Set(settings::Set),
    /// Shows the hot store of the ledger, or replaces it (exit 1 if the daemon has another one).
    #[command(after_help = "Examples:\n  tenure roster hot-store\n  tenure roster hot-store --replace")]
    HotStore(hot_store::HotStore),
    /// Shows the log of changes, oldest first.
    #[command(after_help = "Examples:\n  tenure roster log ann --roster desk --follow")]
    Log(reading::Log),
    /// Prints the SQL that puts views of the ledger in place of an application's tables; changes nothing.
    ///
    /// Reads the tables in the database of --ledger, and guesses which column means what; the guesses are comments of the SQL.
    #[command(
        after_help = "Examples:\n  tenure roster views --from drivers --engagements rides --app-role rides_app --ledger postgres://db/app"
    )]
    Views(Box<views::Views>),
}

/// The roster, its connection and the output format.
#[derive(Debug, Clone, Args)]
struct RosterArgs {
    /// The roster.
    #[arg(
        long = "roster",
        value_name = "ROSTER",
        env = "TENURE_ROSTER",
        default_value = "default"
    )]
    roster: RosterName,
    #[command(flatten)]
    way: AccessArgs,
}

impl RosterArgs {
    /// Reads from the roster. One that does not exist is a failure that names those that do.
    ///
    /// # Errors
    /// Those of connecting and of reading.
    fn look(&self, read: impl AsyncFnOnce(&RosterClient) -> anyhow::Result<u8>) -> anyhow::Result<u8> {
        self.way.with(async |reach| {
            let roster = reach.roster(&self.roster)?;
            match read(&roster).await {
                Err(error) if is_not_found(&error) => {
                    say(self.absent(&reach.names().await?));
                    Ok(FAILED)
                }
                done => done,
            }
        })
    }

    fn absent(&self, names: &[RosterName]) -> String {
        let names: Vec<&str> = names.iter().map(RosterName::as_str).collect();
        let first = "a roster begins with its first provider: tenure roster put PROVIDER";
        unknown(
            "roster",
            self.roster.as_str(),
            &names,
            "--roster or TENURE_ROSTER",
            first,
        )
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Store, ledger and output format.
#[derive(Debug, Clone, Args)]
struct AccessArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The ledger, if the store is not a daemon: postgres://…, sqlite:PATH. Default: the file beside a sqlite: store.
    #[arg(long, value_name = "URL", env = "TENURE_LEDGER", hide_env_values = true, help_heading = CONNECTION)]
    ledger: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

impl AccessArgs {
    /// Connects, does the work, and closes the connection.
    ///
    /// # Errors
    /// Those of connecting and of the work.
    fn with(&self, work: impl AsyncFnOnce(&RosterAccess) -> anyhow::Result<u8>) -> anyhow::Result<u8> {
        crate::logging::start_quiet("error")?;
        connect::block_on(async {
            let reach = RosterAccess::open(&self.store, self.ledger.as_deref()).await?;
            let done = work(&reach).await;
            reach.close().await;
            done
        })
    }
}

impl Roster {
    pub(crate) fn run(&self) -> anyhow::Result<u8> {
        use provider::ProviderAct;
        match &self.action {
            Action::Names(names) => names.run(),
            Action::List(list) => list.run(),
            Action::Show(show) => show.run(),
            Action::Put(put) => put.run(),
            Action::Remove(remove) => remove.run(),
            Action::Online(act) => act.run(ProviderAct::Online),
            Action::Offline(act) => act.run(ProviderAct::Offline),
            Action::Activate(act) => act.run(ProviderAct::Activate),
            Action::Deactivate(act) => act.run(ProviderAct::Deactivate),
            Action::Heartbeat(act) => act.run(ProviderAct::Heartbeat),
            Action::Available(available) => available.run(),
            Action::Availability(plain) => plain.availability(),
            Action::Reserve(reserve) => reserve.run(),
            Action::Engage(engage) => engage.run(),
            Action::End(end) => end.run(),
            Action::Move(change) => change.run(),
            Action::Engagement(show) => show.run(),
            Action::Stats(plain) => plain.stats(),
            Action::Settings(plain) => plain.settings(),
            Action::Set(set) => set.run(),
            Action::HotStore(hot_store) => hot_store.run(),
            Action::Log(log) => log.run(),
            Action::Views(views) => views.run(),
        }
    }
}
