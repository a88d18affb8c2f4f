//! `tenure groups`: the groups of a store, each with its state.

use clap::Args;
use serde::Serialize;
use tenure::wire::GroupState;
use tenure_core::Store;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::event::EventId;
use tenure_core::id::Group;

use crate::cli::{FormatArgs, PageArgs, StoreArgs};
use crate::exit::DONE;
use crate::listing::tell_of_more;
use crate::nearest::unknown;
use crate::output::{json, or_dash, table};
use crate::progress::Progress;

/// Lists the groups of a store with their members, state and brake, or looks one up.
#[derive(Debug, Clone, Args)]
pub(crate) struct Groups {
    /// Show only this group (exit 1 if it does not exist).
    group: Option<Group>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Serialize)]
struct GroupsPage {
    groups: Vec<GroupState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Groups {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        if let Some(group) = &self.group {
            must_exist(store, group).await?;
            let state = GroupState::new(group.clone(), store.status(group).await?);
            if self.format.json {
                json(&state)?;
            } else {
                show(&[state])?;
            }
            return Ok(DONE);
        }
        let page = Progress::of("reading groups", self.read(store)).await?;
        if self.format.json {
            json(&page)?;
        } else {
            show(&page.groups)?;
            tell_of_more(page.groups.len(), page.next.as_deref());
        }
        Ok(DONE)
    }

    async fn read(&self, store: &dyn Store) -> anyhow::Result<GroupsPage> {
        let mut names = store.groups().await?;
        names.sort_unstable();
        let after = self.page.after.as_deref();
        let mut rest = names
            .into_iter()
            .filter(|name| after.is_none_or(|after| name.as_str() > after));
        let mut groups = Vec::new();
        for name in rest.by_ref().take(self.page.limit as usize) {
            let status = store.status(&name).await?;
            groups.push(GroupState::new(name, status));
        }
        let next = rest.next().and(groups.last()).map(|last| last.group.to_string());
        Ok(GroupsPage { groups, next })
    }
}

fn show(groups: &[GroupState]) -> anyhow::Result<()> {
    let rows = groups.iter().map(|GroupState { group, status, .. }| {
        let state = status.unsettled.as_ref().map_or_else(
            || "settled".to_owned(),
            |unsettled| format!("unsettled until {}: {}", unsettled.until, unsettled.cause.as_str()),
        );
        let brake = status
            .brake
            .as_ref()
            .map(|brake| format!("{} lapsed of {}", brake.lapsed, brake.lapsed + brake.present));
        [
            group.to_string(),
            status.members.to_string(),
            status.leases.to_string(),
            status.sessions.to_string(),
            state,
            or_dash(brake),
        ]
    });
    table(
        ["group", "members", "leases", "sessions", "state", "brake"],
        rows.collect(),
    )
}

/// Refuses a group of which the store knows nothing, and names the nearest one. A caller that may not ask for that is let
/// through.
///
/// # Errors
/// `NotFound`, and those of reading.
pub(crate) async fn must_exist(store: &dyn Store, group: &Group) -> anyhow::Result<()> {
    let Some(status) = if_allowed(store.status(group).await)? else {
        return Ok(());
    };
    if status.is_occupied() || status.last_event != EventId::default() {
        return Ok(());
    }
    let Some(mut names) = if_allowed(store.groups().await)? else {
        return Ok(());
    };
    if names.contains(group) {
        return Ok(());
    }
    names.sort_unstable();
    let names: Vec<&str> = names.iter().map(Group::as_str).collect();
    let message = unknown(
        "group",
        group.as_str(),
        &names,
        "--group or TENURE_GROUP",
        "a group begins with its first member (`tenure join`)",
    );
    Err(Error::new(ErrorKind::NotFound, message).into())
}

fn if_allowed<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Denied => Ok(None),
        other => other.map(Some),
    }
}
