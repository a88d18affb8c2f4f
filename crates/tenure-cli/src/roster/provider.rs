//! Changing providers.

use clap::Args;
use serde::Serialize;
use tenure::roster::{Heard, Online, Removal, Written};
use tenure_core::error::{ErrorKind, Result};
use tenure_core::id::ProviderId;
use tenure_core::ledger::{Capacity, Provider, ProviderSpec};

use super::Place;
use super::reach::Either;
use super::reading::missing;
use crate::exit::{DONE, FAILED, say};
use crate::output::{json, or_dash, table, yes_no};

#[derive(Debug, Clone, Args)]
pub(super) struct Put {
    /// The provider.
    provider: ProviderId,
    /// Its name for people.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How many engagements it can take: a number, or `default` for the roster's (as for a new one without it).
    #[arg(long, value_name = "ENGAGEMENTS", value_parser = parse_capacity)]
    capacity: Option<Capacity>,
    #[command(flatten)]
    place: Place,
}

fn parse_capacity(text: &str) -> std::result::Result<Capacity, String> {
    match text {
        "default" => Ok(Capacity::Default),
        number => number
            .parse()
            .map(Capacity::Own)
            .map_err(|_| "expected a whole number, or `default`".to_owned()),
    }
}

impl Put {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let spec = ProviderSpec {
            display_name: self.name.clone(),
            capacity: self.capacity.unwrap_or_default(),
        };
        spec.check()?;
        self.place.way.with(async |reach| {
            let roster = reach.roster(&self.place.roster)?;
            let written = roster.put_provider(&self.provider, &spec).await?;
            tell(&self.place, vec![Done::wrote(written)])?;
            Ok(DONE)
        })
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct Remove {
    /// The providers.
    #[arg(required = true, value_name = "PROVIDER")]
    providers: Vec<ProviderId>,
    #[command(flatten)]
    place: Place,
}

impl Remove {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.way.with(async |reach| {
            let roster = reach.roster(&self.place.roster)?;
            let mut done = Vec::new();
            let code = self.remove_all(&roster, &mut done).await;
            // What was done before a failure stays done.
            tell(&self.place, done)?;
            code
        })
    }

    async fn remove_all(&self, roster: &Either, done: &mut Vec<Done>) -> anyhow::Result<u8> {
        let mut code = DONE;
        for provider in &self.providers {
            let refusal = match roster.remove_provider(provider).await? {
                Removal::Removed { mirrored } => {
                    done.push(Done::said(provider, "removed", Some(mirrored)));
                    continue;
                }
                Removal::Absent => missing(provider, &self.place),
                Removal::Busy(row) => {
                    let state = if row.online.is_some() { "online" } else { "engaged" };
                    format!("{provider} is {state}; it stays")
                }
            };
            say(refusal);
            code = FAILED;
        }
        Ok(code)
    }
}

/// What to do with a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Online,
    Offline,
    Activate,
    Deactivate,
    Heartbeat,
}

#[derive(Debug, Clone, Args)]
pub(super) struct Act {
    /// The providers.
    #[arg(required = true, value_name = "PROVIDER")]
    providers: Vec<ProviderId>,
    #[command(flatten)]
    place: Place,
}

impl Act {
    pub(super) fn run(&self, what: What) -> anyhow::Result<u8> {
        self.place.way.with(async |reach| {
            let roster = reach.roster(&self.place.roster)?;
            let mut done = Vec::new();
            let code = self.act_all(what, &roster, &mut done).await;
            tell(&self.place, done)?;
            code
        })
    }

    async fn act_all(&self, what: What, roster: &Either, done: &mut Vec<Done>) -> anyhow::Result<u8> {
        let mut code = DONE;
        for provider in &self.providers {
            match act(what, roster, provider).await {
                Ok(Ok(one)) => done.push(one),
                Ok(Err(refusal)) => {
                    say(refusal);
                    code = FAILED;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    say(missing(provider, &self.place));
                    code = FAILED;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(code)
    }
}

/// Does it, or says why not.
async fn act(what: What, roster: &Either, provider: &ProviderId) -> Result<std::result::Result<Done, String>> {
    Ok(match what {
        What::Online => match roster.online(provider).await? {
            Online::Done(written) => Ok(Done::wrote(written)),
            Online::Deactivated(_) => Err(deactivated(provider)),
        },
        What::Offline => Ok(Done::wrote(roster.offline(provider).await?)),
        What::Activate => Ok(Done::wrote(roster.activate(provider).await?)),
        What::Deactivate => Ok(Done::wrote(roster.deactivate(provider).await?)),
        What::Heartbeat => match roster.heartbeat(provider).await? {
            Heard::Recorded(source) => {
                let outcome = format!("recorded in the {}", source.as_str());
                Ok(Done::said(provider, &outcome, None))
            }
            Heard::Offline => Err(format!("{provider} is offline; take it online first")),
            Heard::Deactivated => Err(deactivated(provider)),
            Heard::Revoked => Err(format!("the token was issued before {provider} was deactivated")),
            Heard::Unknown => Err(format!("there is no provider {provider}")),
        },
    })
}

fn deactivated(provider: &ProviderId) -> String {
    format!("an operator has deactivated {provider}")
}

/// What became of a provider.
#[derive(Debug, Serialize)]
struct Done {
    provider: ProviderId,
    outcome: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    row: Option<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mirrored: Option<bool>,
}

/// What a write left in the ledger.
#[derive(Debug, Serialize)]
struct Row {
    display_name: Option<String>,
    active: bool,
    online: bool,
    occupancy: u32,
    capacity: u32,
    version: tenure_core::ledger::Version,
}

impl Done {
    fn wrote(written: Written<Provider>) -> Self {
        let row = written.value;
        Self {
            provider: row.provider,
            outcome: if written.changed { "changed" } else { "unchanged" }.to_owned(),
            row: Some(Row {
                display_name: row.display_name,
                active: row.active,
                online: row.online.is_some(),
                occupancy: row.occupancy,
                capacity: row.capacity,
                version: row.version,
            }),
            mirrored: Some(written.mirrored),
        }
    }

    fn said(provider: &ProviderId, outcome: &str, mirrored: Option<bool>) -> Self {
        Self {
            provider: provider.clone(),
            outcome: outcome.to_owned(),
            row: None,
            mirrored,
        }
    }
}

fn tell(place: &Place, done: Vec<Done>) -> anyhow::Result<()> {
    if place.way.format.json {
        return json(&serde_json::json!({ "providers": done }));
    }
    if done.is_empty() {
        return Ok(());
    }
    let rows = done.into_iter().map(|one| {
        let row = one.row.as_ref();
        [
            one.provider.to_string(),
            one.outcome,
            or_dash(row.map(|row| yes_no(row.active))),
            or_dash(row.map(|row| yes_no(row.online))),
            or_dash(row.map(|row| format!("{}/{}", row.occupancy, row.capacity))),
            or_dash(one.mirrored.map(yes_no)),
        ]
    });
    let header = ["provider", "outcome", "active", "online", "occupancy", "mirrored"];
    table(header, rows.collect())
}
