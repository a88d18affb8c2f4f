//! `tenure sessions`: sessions, their state and their grace.

mod delete;

use std::time::Duration;

use clap::{Args, Subcommand};
use tenure::wire::SessionsPage;
use tenure_core::Store;
use tenure_core::id::{Alias, Group, SessionId};
use tenure_core::session::{Orphans, Session, SessionState};
use tenure_core::store::MAX_PAGE;
use tenure_core::time::parse_duration;

use crate::cli::{FormatArgs, GroupArgs, PageArgs, StoreArgs};
use crate::exit::{DONE, say};
use crate::groups;
use crate::listing;
use crate::output::{brief, json, or_dash, table};
use delete::Delete;

/// Lists the sessions of a group, looks one up, or deletes them.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    change: Option<Change>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Clone, Subcommand)]
enum Change {
    /// Deletes sessions that have no connections, with their data and aliases.
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  tenure sessions delete alice-1 --group chat"
    )]
    Delete(Delete),
}

#[derive(Debug, Clone, Args)]
struct List {
    /// Show only this session (exit 1 if it does not exist).
    session: Option<SessionId>,
    /// Show only the session with this alias (exit 1 if it does not exist).
    #[arg(long, value_name = "ALIAS", conflicts_with = "session")]
    alias: Option<Alias>,
    /// Show only sessions in this state: active, disconnected or orphan.
    #[arg(long, value_name = "STATE", value_parser = SessionState::parse, conflicts_with_all = ["session", "alias"])]
    state: Option<SessionState>,
    /// Show only sessions without connections for at least this time.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration, conflicts_with_all = ["session", "alias"])]
    older_than: Duration,
    /// Show only orphans and how long they are overdue, the oldest first (at most 1,000).
    #[arg(long, conflicts_with_all = ["session", "alias", "state", "older_than", "after"])]
    orphans: bool,
    /// Show only orphans that are overdue for at least this time.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration, requires = "orphans")]
    overdue: Duration,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    place: AccessArgs,
}

/// Group, store and output format.
#[derive(Debug, Clone, Args)]
struct AccessArgs {
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Sessions {
    pub(crate) fn run(&self) -> anyhow::Result<u8> {
        match &self.change {
            Some(Change::Delete(delete)) => delete.run(),
            None => self.list.place.store.with(async |store| self.list.run(store).await),
        }
    }
}

impl List {
    async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let (group, format) = (&self.place.group.name, &self.place.format);
        if let Some(session) = &self.session {
            let found = listing::found_in_group((store, group), store.session(group, session).await?).await?;
            return listing::print_one::<Session, _>(format, found, show, missing(session, group));
        }
        if let Some(alias) = &self.alias {
            let found = store.session_by_alias(group, alias).await?;
            let found = listing::found_in_group((store, group), found).await?;
            let missing = format_args!("alias \"{alias}\" not found in group \"{group}\"");
            return listing::print_one::<Session, _>(format, found, show, missing);
        }
        if self.orphans {
            let limit = self.page.limit.min(MAX_PAGE);
            let orphans = store.orphans(group, self.overdue, limit).await?;
            if orphans.orphans.is_empty() {
                groups::must_exist(store, group).await?;
            }
            return self.print_orphans(orphans);
        }
        let read = async |request| {
            store
                .sessions_older_than(group, self.state, self.older_than, &request)
                .await
        };
        let page = listing::read_group((store, group), &self.page, read).await?;
        listing::print_page::<SessionsPage, _>(format, page, show)
    }

    fn print_orphans(&self, found: Orphans) -> anyhow::Result<u8> {
        if self.place.format.json {
            json(&found)?;
            return Ok(DONE);
        }
        let rows = found.orphans.iter().map(|orphan| {
            [
                orphan.session.to_string(),
                brief(orphan.overdue),
                orphan.disconnected_at.to_string(),
                orphan.epoch.to_string(),
            ]
        });
        table(["session", "overdue", "disconnected at", "epoch"], rows.collect())?;
        if found.skipped > 0 {
            say(format_args!(
                "{} entries of the index belong to no disconnected session; `tenure sweep --reconcile` repairs them",
                found.skipped
            ));
        }
        Ok(DONE)
    }
}

fn missing(session: &SessionId, group: &Group) -> String {
    format!("session \"{session}\" not found in group \"{group}\"")
}

fn show(sessions: &[Session]) -> anyhow::Result<()> {
    let rows = sessions.iter().map(|session| {
        [
            session.session.to_string(),
            session.state.as_str().to_owned(),
            session.connections.to_string(),
            or_dash(session.alias.as_ref()),
            or_dash(session.reap_in.map(brief)),
            session.data.len().to_string(),
            session.updated_at.to_string(),
            session.epoch.to_string(),
        ]
    });
    table(
        [
            "session",
            "state",
            "connections",
            "alias",
            "reap in",
            "fields",
            "updated at",
            "epoch",
        ],
        rows.collect(),
    )
}
