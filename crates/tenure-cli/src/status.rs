//! `tenure status`: the state of the daemon, its store and its groups.

use clap::Args;
use serde::Serialize;
use std::time::Duration;
use tenure::wire::roster::RostersState;
use tenure::wire::{GroupState, LoopState, ServerStatus, StoreState, Watched};
use tenure_core::Store;
use tenure_core::clock::SystemClock;
use tenure_core::id::Group;
use tenure_core::store::Health;

use crate::cli::{FormatArgs, StoreArgs};
use crate::connect::is_daemon;
use crate::daemon;
use crate::exit::DONE;
use crate::groups;
use crate::output::{brief, coloured, json, line, or_dash, table, yes_no};
use crate::style::{Line, Tone};

/// The most groups that are shown of a store without a daemon; a daemon has the same limit.
const MAX_GROUPS: usize = 1_000;

/// Shows the state of the daemon, its store, its groups and its loops.
#[derive(Debug, Clone, Args)]
pub(crate) struct Status {
    /// Show only this group.
    #[arg(long, value_name = "GROUP")]
    group: Option<Group>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// The status of a store without a daemon: the part of [`ServerStatus`] that does not need one.
#[derive(Debug, Serialize)]
struct StoreStatus {
    store: StoreState,
    groups: Vec<Watched>,
    groups_total: u64,
}

impl Status {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let place = store.place();
        if is_daemon(&place) {
            // The URL as it was given names files for TLS, which the place does not.
            let given = self.store.url.as_str();
            let base = if is_daemon(given) { given } else { &place };
            let mut status: ServerStatus = daemon::ask(&SystemClock::new(), base, "/v1/status").await?;
            status.groups.retain(|group| self.wants(&group.state.group));
            self.check_group(store, &status.groups).await?;
            self.print_daemon(&place, &status)?;
        } else {
            let status = self.look(store).await?;
            self.check_group(store, &status.groups).await?;
            self.print_store(&status)?;
        }
        Ok(DONE)
    }

    fn wants(&self, group: &Group) -> bool {
        self.group.as_ref().is_none_or(|wanted| wanted == group)
    }

    /// Refuses a group that does not exist. One that is new may not be among those that a daemon has looked at.
    async fn check_group(&self, store: &dyn Store, shown: &[Watched]) -> anyhow::Result<()> {
        match &self.group {
            Some(group) if shown.is_empty() => groups::must_exist(store, group).await,
            _ => Ok(()),
        }
    }

    async fn look(&self, store: &dyn Store) -> anyhow::Result<StoreStatus> {
        let names = store.groups().await?;
        let groups_total = names.len() as u64;
        let mut groups = Vec::new();
        for name in names.into_iter().filter(|name| self.wants(name)).take(MAX_GROUPS) {
            let status = store.status(&name).await?;
            groups.push(Watched {
                state: GroupState::new(name, status),
                age_ms: 0,
                registries: Vec::new(),
            });
        }
        let (up, reason) = match store.health() {
            Health::Up => (true, None),
            Health::Down { reason } => (false, Some(reason)),
        };
        Ok(StoreStatus {
            store: StoreState {
                place: store.place(),
                up,
                reason,
                warnings: Vec::new(),
            },
            groups,
            groups_total,
        })
    }

    fn print_daemon(&self, place: &str, status: &ServerStatus) -> anyhow::Result<()> {
        if self.format.json {
            return json(status);
        }
        let uptime = brief(Duration::from_millis(status.uptime_ms));
        line(format_args!(
            "daemon  {place}  version {}, up {uptime}, {} requests, {} streams",
            status.version, status.requests, status.streams
        ))?;
        show_store("store ", &status.store)?;
        if let Some(rosters) = &status.rosters {
            show_store("ledger", &rosters.ledger)?;
        }
        line("")?;
        show_groups(&status.groups, status.groups_total)?;
        if let Some(rosters) = status.rosters.as_ref().filter(|rosters| !rosters.rosters.is_empty()) {
            line("")?;
            show_rosters(rosters)?;
        }
        line("")?;
        show_loops(&status.loops)
    }

    fn print_store(&self, status: &StoreStatus) -> anyhow::Result<()> {
        if self.format.json {
            return json(status);
        }
        show_store("store ", &status.store)?;
        line("")?;
        show_groups(&status.groups, status.groups_total)
    }
}

fn show_rosters(rosters: &RostersState) -> anyhow::Result<()> {
    let rows = rosters.rosters.iter().map(|one| {
        [
            one.roster.to_string(),
            one.answers_from.clone(),
            or_dash(one.untrusted_for_ms.map(|ms| brief(Duration::from_millis(ms)))),
            one.dirty.to_string(),
            or_dash(one.divergence),
            brief(one.settings.stale_after),
        ]
    });
    let header = ["roster", "answers from", "for", "dirty", "divergence", "stale after"];
    table(header, rows.collect())?;
    let more = rosters.rosters_total.saturating_sub(rosters.rosters.len() as u64);
    if more > 0 {
        line(format_args!("… and {more} rosters more"))?;
    }
    Ok(())
}

fn show_store(what: &str, store: &StoreState) -> anyhow::Result<()> {
    let shown = Line::on_stdout().text(format_args!("{what}  {}  ", store.place));
    coloured(&match &store.reason {
        None if store.up => shown.toned(Some(Tone::Good), "up"),
        reason => shown.toned(Some(Tone::Bad), format_args!("DOWN: {}", or_dash(reason.as_ref()))),
    })?;
    for warning in &store.warnings {
        let shown = Line::on_stdout().text(format_args!("{what}  "));
        coloured(&shown.toned(Some(Tone::Bad), warning))?;
    }
    Ok(())
}

fn show_groups(groups: &[Watched], total: u64) -> anyhow::Result<()> {
    let rows = groups.iter().map(|Watched { state, age_ms, .. }| {
        let GroupState { group, status, .. } = state;
        let settled = match &status.unsettled {
            None => yes_no(true),
            Some(unsettled) => format!("no: {} until {}", unsettled.cause.as_str(), unsettled.until),
        };
        let brake = status.brake.as_ref().map(|brake| {
            format!(
                "since {}, {} lapsed of {}",
                brake.since,
                brake.lapsed,
                brake.lapsed + brake.present
            )
        });
        [
            group.to_string(),
            status.members.to_string(),
            settled,
            or_dash(brake),
            status.leases.to_string(),
            status.sessions.to_string(),
            status.disconnected.to_string(),
            status.releasing.to_string(),
            status.last_event.to_string(),
            brief(Duration::from_millis(*age_ms)),
        ]
    });
    table(
        [
            "group",
            "members",
            "settled",
            "brake",
            "leases",
            "sessions",
            "disconnected",
            "releasing",
            "last event",
            "seen before",
        ],
        rows.collect(),
    )?;
    let shown = groups.len() as u64;
    if shown < total && groups.len() >= MAX_GROUPS {
        line(format_args!("… and {} groups more", total - shown))?;
    }
    Ok(())
}

fn show_loops(loops: &[LoopState]) -> anyhow::Result<()> {
    let rows = loops.iter().map(|state| {
        [
            state.name.clone(),
            state.runs.to_string(),
            state.failures.to_string(),
            state.panics.to_string(),
            state.last_success_age_ms.map_or_else(
                || "never".to_owned(),
                |ms| format!("{} ago", brief(Duration::from_millis(ms))),
            ),
            or_dash(state.last_error.as_ref()),
        ]
    });
    table(
        ["loop", "runs", "failures", "panics", "last success", "last error"],
        rows.collect(),
    )
}
