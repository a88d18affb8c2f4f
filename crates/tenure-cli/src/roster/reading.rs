//! Looking at a roster.

use std::time::Duration;

use clap::Args;
use tenure::roster::{ProviderView, Source, Sourced};
use tenure::wire::roster::{self as wire, parse_state};
use tenure_core::clock::{Clock, SystemClock, jitter};
use tenure_core::id::ProviderId;
use tenure_core::ledger::{Candidate, LogEntry, ProviderState};
use tenure_core::store::{MAX_PAGE, Page, PageRequest};

use super::reach::RosterClient;
use super::{AccessArgs, RosterArgs};
use crate::cli::PageArgs;
use crate::exit::{DONE, FAILED, say};
use crate::listing;
use crate::output::{json, json_line, line, or_dash, table, yes_no};

/// The pause between two reads of a followed log.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Args)]
pub(super) struct Names {
    #[command(flatten)]
    way: AccessArgs,
}

impl Names {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.way.with(async |reach| {
            let names = reach.names().await?;
            if self.way.format.json {
                json(&serde_json::json!({ "rosters": names }))?;
            } else {
                table(["roster"], names.iter().map(|name| [name.to_string()]).collect())?;
            }
            Ok(DONE)
        })
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct List {
    /// Only providers in this state: online, available, busy, offline or deactivated.
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    state: Option<ProviderState>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    place: RosterArgs,
}

impl List {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.look(async |roster| {
            let mut source = Source::Mirror;
            let read = async |request| {
                let page = roster.providers(self.state, &request).await?;
                source = page.source;
                Ok(page.value)
            };
            let page = listing::read(&self.page, read).await?;
            let format = &self.place.way.format;
            if format.json {
                let shown = |view: ProviderView| Sourced {
                    value: view.into(),
                    source,
                };
                json(&wire::ProvidersPage {
                    providers: page.items.into_iter().map(shown).collect(),
                    next: page.next,
                    source,
                })?;
                return Ok(DONE);
            }
            tell_source(source);
            listing::print_page::<Rows, _>(format, page, show)
        })
    }
}

/// Never printed: the JSON of a listing has its source, too.
#[derive(Debug, serde::Serialize)]
struct Rows {}

impl<T> From<Page<T>> for Rows {
    fn from(_: Page<T>) -> Self {
        Self {}
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct Show {
    /// The provider.
    provider: ProviderId,
    #[command(flatten)]
    place: RosterArgs,
}

impl Show {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.look(async |roster| {
            let found = roster.provider(&self.provider).await?;
            let Some(view) = found.value else {
                // A daemon answers the same for a roster that does not exist.
                roster.settings().await?;
                say(missing(&self.provider, &self.place));
                return Ok(FAILED);
            };
            if self.place.way.format.json {
                let (value, source) = (wire::Provider::from(view), found.source);
                json(&Sourced { value, source })?;
            } else {
                tell_source(found.source);
                show(&[view])?;
            }
            Ok(DONE)
        })
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct Available {
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    place: RosterArgs,
}

impl Available {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.look(async |roster| {
            let mut source = Source::Mirror;
            let read = async |request| {
                let page = roster.available_page(&request).await?;
                source = page.source;
                Ok(page.value)
            };
            let page = listing::read(&self.page, read).await?;
            let format = &self.place.way.format;
            if format.json {
                json(&wire::AvailableAnswer::from(Sourced { value: page, source }))?;
                return Ok(DONE);
            }
            tell_source(source);
            listing::print_page::<Rows, _>(format, page, show_free)
        })
    }
}

fn show_free(free: &[Candidate]) -> anyhow::Result<()> {
    let rows = free.iter().map(|one| {
        [
            one.provider.to_string(),
            one.occupancy.to_string(),
            one.capacity.to_string(),
        ]
    });
    table(["provider", "occupancy", "capacity"], rows.collect())
}

#[derive(Debug, Clone, Args)]
pub(super) struct Plain {
    #[command(flatten)]
    place: RosterArgs,
}

impl Plain {
    pub(super) fn availability(&self) -> anyhow::Result<u8> {
        self.place.look(async |roster| {
            let found = roster.availability().await?;
            let (count, as_of) = (found.value.count, found.value.as_of);
            if self.place.way.format.json {
                json(&wire::AvailabilityAnswer::from(found))?;
            } else {
                tell_source(found.source);
                let row = [yes_no(found.value.is_any()), count.to_string(), as_of.to_string()];
                table(["available", "count", "as of"], vec![row])?;
            }
            Ok(DONE)
        })
    }

    pub(super) fn stats(&self) -> anyhow::Result<u8> {
        self.place.look(async |roster| {
            let found = roster.stats().await?;
            if self.place.way.format.json {
                json(&found)?;
                return Ok(DONE);
            }
            let stats = found.value;
            tell_source(found.source);
            let row = [
                stats.online,
                stats.available,
                stats.busy,
                stats.offline,
                stats.deactivated,
            ];
            let header = ["online", "available", "busy", "offline", "deactivated"];
            table(header, vec![row.map(|count| count.to_string())])?;
            Ok(DONE)
        })
    }

    pub(super) fn settings(&self) -> anyhow::Result<u8> {
        self.place.look(async |roster| {
            let settings = roster.settings().await?.value;
            super::settings::tell(&self.place.way.format, settings)?;
            Ok(DONE)
        })
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct Log {
    /// Only changes of this provider.
    provider: Option<ProviderId>,
    /// Go on printing changes as they happen, until Ctrl-C; with --json one document per line.
    #[arg(long, short, conflicts_with = "limit")]
    follow: bool,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    place: RosterArgs,
}

impl Log {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.look(async |roster| {
            if self.follow {
                return self.follow(roster).await;
            }
            let read = async |request| roster.log(self.provider.as_ref(), &request).await;
            let page = listing::read(&self.page, read).await?;
            listing::print_page::<wire::LogPage, _>(&self.place.way.format, page, show_log)
        })
    }
}

impl Log {
    /// Prints what is there and what comes. A ledger that is away is waited for.
    async fn follow(&self, roster: &RosterClient) -> anyhow::Result<u8> {
        let clock = SystemClock::new();
        let mut page = PageRequest::new(self.page.after.clone(), MAX_PAGE)?;
        let mut told = false;
        loop {
            let more = match roster.log(self.provider.as_ref(), &page).await {
                Ok(read) => {
                    told = false;
                    for entry in &read.items {
                        self.print(entry)?;
                        page.after = Some(entry.id.to_string());
                    }
                    read.next.is_some()
                }
                Err(error) if error.is_unavailable() => {
                    if !told {
                        say(format_args!("{}; waiting for it", error.chain()));
                        told = true;
                    }
                    false
                }
                Err(error) => return Err(error.into()),
            };
            if !more {
                clock.sleep(jitter(&clock, PAUSE, 20)).await;
            }
        }
    }

    fn print(&self, entry: &LogEntry) -> anyhow::Result<()> {
        if self.place.way.format.json {
            return json_line(entry);
        }
        let (change, reason) = (entry.change.as_str(), entry.reason.as_str());
        line(format_args!("{}  {change:<11}  {}  {reason}", entry.at, entry.provider))
    }
}

pub(super) fn missing(provider: &ProviderId, place: &RosterArgs) -> String {
    format!("the roster {} has no provider {provider}", place.roster)
}

/// Says that an answer may be old.
fn tell_source(source: Source) {
    if source == Source::Ledger {
        say("from the ledger: the mirror is unavailable or seeding, so liveness may be up to a minute old");
    }
}

fn show(views: &[ProviderView]) -> anyhow::Result<()> {
    let rows = views.iter().map(|view| {
        let row = &view.row;
        [
            row.provider.to_string(),
            or_dash(row.display_name.as_ref()),
            yes_no(row.active),
            yes_no(row.online.is_some()),
            yes_no(view.reachable),
            format!("{}/{}", row.occupancy, row.capacity),
            or_dash(row.last_heartbeat_at),
        ]
    });
    let header = [
        "provider",
        "name",
        "active",
        "online",
        "reachable",
        "occupancy",
        "last heartbeat at",
    ];
    table(header, rows.collect())
}

fn show_log(entries: &[LogEntry]) -> anyhow::Result<()> {
    if entries.is_empty() {
        return line("nothing has changed yet");
    }
    let rows = entries.iter().map(|entry| {
        [
            entry.at.to_string(),
            entry.provider.to_string(),
            entry.change.as_str().to_owned(),
            entry.reason.as_str().to_owned(),
        ]
    });
    table(["at", "provider", "change", "reason"], rows.collect())
}
