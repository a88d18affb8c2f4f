//! What the ledger says in the end, read from its tables, past all daemons.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tenure_testkit::postgres::Server;

use super::ROSTER;
use crate::history::{Micros, RunClock};

/// A row of the log.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The provider.
    pub provider: String,
    /// What changed.
    pub change: String,
    /// Why.
    pub reason: String,
    /// When, on the clock of the run.
    pub at: Micros,
    /// The version of the row.
    pub version: u64,
}

/// A provider's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Whether it may work.
    pub is_active: bool,
    /// Whether it is online.
    pub is_online: bool,
    /// How many engagements it has.
    pub occupancy: usize,
    /// How many of them the table of engagements has.
    pub open: usize,
    /// The version of the row.
    pub version: u64,
}

/// The tables.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// The providers.
    pub providers: BTreeMap<String, Row>,
    /// Each engagement with its provider and status.
    pub engagements: BTreeMap<String, (String, String)>,
    /// The log, oldest first.
    pub log: Vec<Entry>,
}

impl Ledger {
    /// Reads all of them.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn read(server: &Server, clock: &RunClock) -> Result<Self> {
        let rows = |statement: &str| -> Result<Vec<Vec<String>>> {
            let said = server.sql(statement)?;
            let lines = said.lines().filter(|line| !line.is_empty());
            Ok(lines.map(|line| line.split('|').map(str::to_owned).collect()).collect())
        };
        let providers = rows(&format!(
            "SELECT p.provider, p.active, p.online, p.occupancy, p.version, (SELECT count(*) FROM tenure.engagements e \
             WHERE e.roster = p.roster AND e.provider = p.provider AND e.status IN ('pending', 'active')) \
             FROM tenure.providers p WHERE p.roster = '{ROSTER}'"
        ))?;
        let engagements = rows(&format!(
            "SELECT engagement, coalesce(provider, ''), status FROM tenure.engagements WHERE roster = '{ROSTER}'"
        ))?;
        let log = rows(&format!(
            "SELECT provider, change, reason, tenure.micros(logged_at), version FROM tenure.provider_log \
             WHERE roster = '{ROSTER}' ORDER BY id"
        ))?;
        let mut ledger = Self {
            providers: BTreeMap::new(),
            engagements: BTreeMap::new(),
            log: Vec::new(),
        };
        for row in providers {
            let [provider, active, online, occupancy, version, open] = &row[..] else {
                anyhow::bail!("a row of a provider is {row:?}");
            };
            let row = Row {
                is_active: active == "t",
                is_online: online == "t",
                occupancy: occupancy.parse().context("the occupancy")?,
                open: open.parse().context("the count of engagements")?,
                version: version.parse().context("the version")?,
            };
            ledger.providers.insert(provider.clone(), row);
        }
        for row in engagements {
            let [engagement, provider, status] = &row[..] else {
                anyhow::bail!("a row of an engagement is {row:?}");
            };
            let (provider, status) = (provider.clone(), status.clone());
            ledger.engagements.insert(engagement.clone(), (provider, status));
        }
        for row in log {
            let [provider, change, reason, at, version] = &row[..] else {
                anyhow::bail!("a row of the log is {row:?}");
            };
            ledger.log.push(Entry {
                provider: provider.clone(),
                change: change.clone(),
                reason: reason.clone(),
                at: clock.of_wall(at.parse().context("the time")?),
                version: version.parse().context("the version")?,
            });
        }
        Ok(ledger)
    }
}
