//! `tenure events`: the events of a group.

use std::time::Duration;

use clap::Args;
use tenure::wire::{EventAnswer, EventsPage, Gap};
use tenure_core::Store;
use tenure_core::clock::{Clock, SystemClock, jitter};
use tenure_core::event::{Event, EventId, EventKind, EventPage, EventQuery};
use tenure_core::store::MAX_PAGE;

use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, say};
use crate::groups;
use crate::output::{coloured, json, json_line, line, or_dash, pairs, table};
use crate::style::{Line, tone_of};

/// The longest wait for events. A hung daemon is noticed after it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before an unavailable store is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of keys of an eviction that a line shows.
const KEYS_SHOWN: usize = 3;

/// Shows the events of a group, oldest first.
///
/// With --follow it goes on with new events until Ctrl-C.
#[derive(Debug, Clone, Args)]
pub(crate) struct Events {
    /// Print new events as they happen; with --json one document per line.
    #[arg(long, short)]
    follow: bool,
    /// Start with this many of the newest events.
    #[arg(long, value_name = "EVENTS", default_value_t = 100, conflicts_with = "after")]
    last: u32,
    /// Show all events after this id.
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// Show only these types, separated by commas: lapsed,evicted.
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = EventKind::parse)]
    kinds: Vec<EventKind>,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Events {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let begin = match self.after {
            Some(after) => self.all_after(store, EventId(after)).await?,
            None => self.newest(store).await?,
        };
        if begin.events.is_empty() && !self.follow {
            groups::must_exist(store, &self.group.name).await?;
        }
        if self.follow {
            let mut last = begin.last;
            self.print_lines(self.after.map(EventId), &begin)?;
            loop {
                last = self.next_lines(store, last).await?;
            }
        }
        if self.format.json {
            json(&EventsPage::from(begin))?;
        } else {
            if begin.missed {
                say("events are missing here: they were trimmed or lost with the store's data");
            }
            let rows = begin.events.iter().map(|event| {
                let [at, kind, tenure, details] = columns(event);
                [at, event.id.to_string(), kind, tenure, details]
            });
            table(["at", "id", "type", "tenure", "details"], rows.collect())?;
        }
        Ok(DONE)
    }

    async fn page(&self, store: &dyn Store, query: EventQuery) -> tenure_core::Result<EventPage> {
        let kinds = self.kinds.clone();
        store.events(&self.group.name, &EventQuery { kinds, ..query }).await
    }

    async fn page_after(&self, store: &dyn Store, after: EventId) -> tenure_core::Result<EventPage> {
        let query = EventQuery {
            after: Some(after),
            limit: MAX_PAGE,
            ..EventQuery::default()
        };
        self.page(store, query).await
    }

    async fn all_after(&self, store: &dyn Store, after: EventId) -> anyhow::Result<EventPage> {
        let mut all = EventPage {
            events: Vec::new(),
            last: after,
            missed: false,
        };
        loop {
            let page = self.page_after(store, all.last).await?;
            let done = page.last == all.last;
            all.missed |= page.missed;
            all.events.extend(page.events);
            all.last = page.last;
            if done {
                return Ok(all);
            }
        }
    }

    /// Reads backwards from the newest event until there are as many as asked for, or no older ones.
    async fn newest(&self, store: &dyn Store) -> anyhow::Result<EventPage> {
        let wanted = usize::try_from(self.last).unwrap_or(usize::MAX);
        let newest = store.status(&self.group.name).await?.last_event;
        let mut found: Vec<Event> = Vec::new();
        let mut before = EventId(newest.0 + 1);
        while found.len() < wanted {
            let query = EventQuery {
                before: Some(before),
                limit: match self.kinds.is_empty() {
                    true => self.last.min(MAX_PAGE),
                    false => MAX_PAGE,
                },
                ..EventQuery::default()
            };
            let page = self.page(store, query).await?;
            found.splice(0..0, page.events);
            if page.last == before {
                break;
            }
            before = page.last;
        }
        found.drain(..found.len().saturating_sub(wanted));
        Ok(EventPage {
            events: found,
            last: newest,
            missed: false,
        })
    }

    /// Waits for what comes after `last`, prints it, and answers where to go on. A store that is away is waited for.
    async fn next_lines(&self, store: &dyn Store, last: EventId) -> anyhow::Result<EventId> {
        let clock = SystemClock::new();
        let mut told = false;
        loop {
            let read = async {
                store.wait_for_events(&self.group.name, last, PATIENCE).await?;
                self.page_after(store, last).await
            };
            match read.await {
                Ok(page) => {
                    self.print_lines(Some(last), &page)?;
                    return Ok(page.last);
                }
                Err(error) if error.is_unavailable() => {
                    if !told {
                        say(format_args!("{}; waiting for it", error.chain()));
                        told = true;
                    }
                    clock.sleep(jitter(&clock, PAUSE, 20)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn print_lines(&self, after: Option<EventId>, page: &EventPage) -> anyhow::Result<()> {
        if page.missed {
            let first = page
                .events
                .first()
                .map_or(page.last.0, |event| event.id.0.saturating_sub(1));
            let gap = Gap {
                after: after.unwrap_or_default().0,
                resumes_after: first,
            };
            if self.format.json {
                json_line(&serde_json::json!({ "missed": gap }))?;
            } else {
                line(format_args!(
                    "-- events after {} up to {} are missing: trimmed or lost with the store's data",
                    gap.after, gap.resumes_after
                ))?;
            }
        }
        for event in &page.events {
            if self.format.json {
                json_line(&EventAnswer::from(event.clone()))?;
            } else {
                let [at, kind, tenure, details] = columns(event);
                let shown = Line::on_stdout().text(format_args!("{at}  "));
                let shown = shown.toned(tone_of("type", &kind), format_args!("{kind:<20}"));
                coloured(&shown.text(format_args!("  {tenure}  {details}")))?;
            }
        }
        Ok(())
    }
}

/// An event for people: when, what, whose, and the rest.
pub(crate) fn columns(event: &Event) -> [String; 4] {
    let mut details = Vec::new();
    details.extend(event.lease.as_ref().map(ToString::to_string));
    details.extend(event.session.as_ref().map(ToString::to_string));
    details.extend(event.reason.clone());
    details.extend(event.token.map(|token| format!("token={token}")));
    details.extend(event.from.as_ref().map(|from| format!("from={from}")));
    details.extend(event.to.as_ref().map(|to| format!("to={to}")));
    details.extend(
        event
            .connection
            .as_ref()
            .map(|connection| format!("connection={connection}")),
    );
    details.extend(event.alias.as_ref().map(|alias| format!("alias={alias}")));
    details.extend(event.epoch.map(|epoch| format!("epoch={epoch}")));
    if !event.counts.is_empty() {
        details.push(pairs(&event.counts));
    }
    if event.connections > 0 {
        details.push(format!("connections={}", event.connections));
    }
    if !event.keys.is_empty() {
        let shown = event
            .keys
            .iter()
            .take(KEYS_SHOWN)
            .cloned()
            .collect::<Vec<_>>()
            .join(",");
        let more = event.keys.len().saturating_sub(KEYS_SHOWN);
        details.push(if more == 0 {
            shown
        } else {
            format!("{shown} and {more} more")
        });
    }
    details.extend(event.pass.as_ref().map(|pass| format!("pass={pass}")));
    [
        event.at.to_string(),
        event.kind.as_str().to_owned(),
        or_dash(event.tenure.as_ref()),
        details.join(" "),
    ]
}
