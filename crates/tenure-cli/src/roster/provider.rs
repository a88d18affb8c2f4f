//! Changing providers.

use clap::Args;
use serde::Serialize;
use tenure::roster::{HeartbeatOutcome, Online, Removal, Written};
use tenure_core::error::{ErrorKind, Result};
use tenure_core::id::ProviderId;
use tenure_core::ledger::{Capacity, Provider, ProviderSpec};

use super::RosterArgs;
use super::reach::RosterClient;
use super::reading::missing;
use crate::exit::{DONE, FAILED, say};
use crate::output::{json, or_dash, table, yes_no};

#[derive(Debug, Clone, Args)]
pub(super) struct Put {
    /// The provider.
    provider: ProviderId,
    /// Its name for people.
    #[arg(long, alias = "name", value_name = "NAME")]
    display_name: Option<String>,
    /// The capacity in engagements: a number, or `default` for that of the roster (as for a new provider without it).
    #[arg(long, value_name = "ENGAGEMENTS", value_parser = parse_capacity)]
    capacity: Option<Capacity>,
    #[command(flatten)]
    place: RosterArgs,
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
            display_name: self.display_name.clone(),
            capacity: self.capacity.unwrap_or_default(),
        };
        spec.check()?;
        self.place.way.with(async |reach| {
            let roster = reach.roster(&self.place.roster)?;
            let written = roster.put_provider(&self.provider, &spec).await?;
            tell(&self.place, vec![ChangedProvider::wrote(written)])?;
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
    place: RosterArgs,
}

impl Remove {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.way.with(async |reach| {
            let roster = reach.roster(&self.place.roster)?;
            let mut done = Vec::new();
            let code = self.remove_all(&roster, &mut done).await;
            // Changes before a failure stay.
            tell(&self.place, done)?;
            code
        })
    }

    async fn remove_all(&self, roster: &RosterClient, done: &mut Vec<ChangedProvider>) -> anyhow::Result<u8> {
        let mut code = DONE;
        for provider in &self.providers {
            let refusal = match roster.remove_provider(provider).await? {
                Removal::Removed { mirrored } => {
                    done.push(ChangedProvider::said(provider, "removed", Some(mirrored)));
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

/// A change of a provider's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProviderAct {
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
    place: RosterArgs,
}

impl Act {
    pub(super) fn run(&self, what: ProviderAct) -> anyhow::Result<u8> {
        self.place.way.with(async |reach| {
            let roster = reach.roster(&self.place.roster)?;
            let mut done = Vec::new();
            let code = self.act_all(what, &roster, &mut done).await;
            tell(&self.place, done)?;
            code
        })
    }

    async fn act_all(
        &self,
        what: ProviderAct,
        roster: &RosterClient,
        done: &mut Vec<ChangedProvider>,
    ) -> anyhow::Result<u8> {
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
async fn act(
    what: ProviderAct,
    roster: &RosterClient,
    provider: &ProviderId,
) -> Result<std::result::Result<ChangedProvider, String>> {
    Ok(match what {
        ProviderAct::Online => match roster.online(provider).await? {
            Online::Done(written) => Ok(ChangedProvider::wrote(written)),
            Online::Deactivated(_) => Err(deactivated(provider)),
        },
        ProviderAct::Offline => Ok(ChangedProvider::wrote(roster.offline(provider).await?)),
        ProviderAct::Activate => Ok(ChangedProvider::wrote(roster.activate(provider).await?)),
        ProviderAct::Deactivate => Ok(ChangedProvider::wrote(roster.deactivate(provider).await?)),
        ProviderAct::Heartbeat => match roster.heartbeat(provider).await? {
            HeartbeatOutcome::Recorded(source) => {
                let outcome = format!("recorded in the {}", source.as_str());
                Ok(ChangedProvider::said(provider, &outcome, None))
            }
            HeartbeatOutcome::Offline => Err(format!("{provider} is offline; take it online first")),
            HeartbeatOutcome::Deactivated => Err(deactivated(provider)),
            HeartbeatOutcome::Revoked => Err(format!("the token was issued before {provider} was deactivated")),
            HeartbeatOutcome::Unknown => Err(format!("there is no provider {provider}")),
        },
    })
}

fn deactivated(provider: &ProviderId) -> String {
    format!("an operator has deactivated {provider}")
}

/// The result of a change of a provider.
#[derive(Debug, Serialize)]
struct ChangedProvider {
    provider: ProviderId,
    outcome: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    row: Option<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mirrored: Option<bool>,
}

/// A provider's row after a write to the ledger.
#[derive(Debug, Serialize)]
struct Row {
    display_name: Option<String>,
    active: bool,
    online: bool,
    occupancy: u32,
    capacity: u32,
    version: tenure_core::ledger::Version,
}

impl ChangedProvider {
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

fn tell(place: &RosterArgs, done: Vec<ChangedProvider>) -> anyhow::Result<()> {
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
