//! The SQL that puts views of the ledger in place of an application's tables.

mod mapping;
mod rules;
mod script;
mod sql;
mod words;

use clap::Args;
use tenure_core::clock::SystemClock;
use tenure_core::id::RosterName;
use tenure_postgres::{Application, PostgresOptions, Table, TableKind};

use self::mapping::{Engagements, Providers};
use self::script::Script;
use crate::cli::help::CONNECTION;
use crate::connect::{block_on, refused_ledger};
use crate::exit::{DONE, Usage, say};
use crate::nearest::unknown;
use crate::output::verbatim;

/// The columns of the table of providers that the names and types of columns do not tell. An empty value leaves one out.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Columns of providers (guessed if absent; '' leaves one out)")]
struct ProviderColumns {
    /// Names the provider. Default: the primary key.
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    /// Its name for people.
    #[arg(long, value_name = "COLUMN")]
    name: Option<String>,
    /// True if it may work.
    #[arg(long, value_name = "COLUMN", conflicts_with = "blocked")]
    active: Option<String>,
    /// True if it may not work.
    #[arg(long, value_name = "COLUMN")]
    blocked: Option<String>,
    /// True while it takes work.
    #[arg(long, value_name = "COLUMN")]
    online: Option<String>,
    /// How much work it takes at once.
    #[arg(long, value_name = "COLUMN")]
    capacity: Option<String>,
    /// The time of its last heartbeat.
    #[arg(long, value_name = "COLUMN")]
    last_seen: Option<String>,
}

/// The same for the table of engagements.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Columns of engagements (guessed if absent; '' leaves one out)")]
struct EngagementColumns {
    /// Names the engagement. Default: the primary key.
    #[arg(long, value_name = "COLUMN", requires = "engagements")]
    engagement_id: Option<String>,
    /// The provider that has it.
    #[arg(long, value_name = "COLUMN", requires = "engagements")]
    provider: Option<String>,
    /// Its status.
    #[arg(long, value_name = "COLUMN", requires = "engagements")]
    status: Option<String>,
    /// What the words of the status mean, as in accepted=active,delivered=ended.
    #[arg(long, value_name = "WORD=STATUS", value_delimiter = ',', requires = "engagements")]
    words: Vec<String>,
    /// Its beginning.
    #[arg(long, value_name = "COLUMN", requires = "engagements")]
    created_at: Option<String>,
    /// The deadline of an offer.
    #[arg(long, value_name = "COLUMN", requires = "engagements")]
    expires_at: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(super) struct Views {
    /// The application's table of providers.
    #[arg(long, value_name = "TABLE")]
    from: String,
    /// The application's table of engagements.
    #[arg(long, value_name = "TABLE")]
    engagements: Option<String>,
    /// The role of the application, which may use the views.
    #[arg(long, value_name = "ROLE")]
    app_role: String,
    /// The roster.
    #[arg(
        long = "roster",
        value_name = "ROSTER",
        env = "TENURE_ROSTER",
        default_value = "default"
    )]
    roster: RosterName,
    /// The database with both tables, where the ledger is or will be: postgres://…
    #[arg(long, value_name = "URL", env = "TENURE_LEDGER", hide_env_values = true, help_heading = CONNECTION)]
    ledger: String,
    #[command(flatten)]
    columns: ProviderColumns,
    #[command(flatten)]
    of_engagements: EngagementColumns,
}

impl Views {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        crate::logging::start_quiet("error")?;
        let options =
            PostgresOptions::new(&self.ledger).map_err(|error| Usage::new(format!("--ledger: {}", error.chain())))?;
        block_on(async {
            let application = Application::new(&options, SystemClock::shared());
            let providers = self.table(&application, &self.from, "--from").await?;
            let mapped = Providers::of(&providers, &self.columns)?;
            let work = match &self.engagements {
                Some(name) => Some(self.table(&application, name, "--engagements").await?),
                None => None,
            };
            let work = work
                .as_ref()
                .map(|table| Engagements::of(table, &mapped, &self.of_engagements))
                .transpose()?;
            for gap in mapped.gaps.iter().chain(work.iter().flat_map(|work| &work.gaps)) {
                say(gap);
            }
            let script = Script {
                roster: &self.roster,
                app_role: &self.app_role,
                providers: &mapped,
                engagements: work.as_ref(),
            };
            verbatim(&script.text())?;
            Ok(DONE)
        })
    }

    async fn table(&self, application: &Application, name: &str, flag: &str) -> anyhow::Result<Table> {
        let found = application.table(name).await;
        let Some(table) = found.map_err(|error| refused_ledger(&self.ledger, error))? else {
            let names = application.tables().await?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let given = if name.contains('.') {
                name.to_owned()
            } else {
                format!("public.{name}")
            };
            let first = "the database of --ledger must be that of the application";
            return Err(Usage::new(unknown("table", &given, &names, flag, first)).into());
        };
        match table.kind {
            TableKind::Table => Ok(table),
            TableKind::View => {
                let message = format!(
                    "{flag} {name}: this is a view; name a table. If it was made by `tenure roster views`, the move is done \
                     already"
                );
                Err(Usage::new(message).into())
            }
            TableKind::Other => Err(Usage::new(format!("{flag} {name}: this is no table; name a table")).into()),
        }
    }
}
