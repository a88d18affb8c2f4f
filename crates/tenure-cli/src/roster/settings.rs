//! The settings of a roster.

use std::time::Duration;

use clap::Args;
use tenure_core::ledger::{RosterSettings, SettingsPatch};
use tenure_core::time::{parse_duration, show_duration};

use super::RosterArgs;
use crate::cli::FormatArgs;
use crate::exit::{DONE, Usage};
use crate::output::{json, table, yes_no};

#[derive(Debug, Clone, Args)]
pub(super) struct Set {
    /// The capacity of every provider that has none of its own.
    #[arg(long, value_name = "ENGAGEMENTS")]
    default_capacity: Option<u32>,
    /// After how long without a heartbeat a provider goes offline; 1s to 24h.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    stale_after: Option<Duration>,
    /// Whether providers without heartbeats go offline.
    #[arg(long, value_name = "BOOL")]
    require_heartbeat: Option<bool>,
    /// The validity of the shared availability answer; at most 10s.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    snapshot: Option<Duration>,
    #[command(flatten)]
    place: RosterArgs,
}

impl Set {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let patch = SettingsPatch {
            default_capacity: self.default_capacity,
            stale_after: self.stale_after,
            require_heartbeat: self.require_heartbeat,
            snapshot: self.snapshot,
        };
        if patch == SettingsPatch::default() {
            let message =
                "nothing to change: give --default-capacity, --stale-after, --require-heartbeat or --snapshot";
            return Err(Usage::new(message).into());
        }
        patch.check()?;
        self.place.way.with(async |reach| {
            let roster = reach.roster(&self.place.roster)?;
            let written = roster.set_settings(&patch).await?;
            tell(&self.place.way.format, written.value)?;
            Ok(DONE)
        })
    }
}

pub(super) fn tell(format: &FormatArgs, settings: RosterSettings) -> anyhow::Result<()> {
    if format.json {
        return json(&settings);
    }
    let row = [
        settings.default_capacity.to_string(),
        show_duration(settings.stale_after),
        yes_no(settings.require_heartbeat),
        show_duration(settings.snapshot),
        settings.version.to_string(),
    ];
    let header = [
        "default capacity",
        "stale after",
        "require heartbeat",
        "snapshot",
        "version",
    ];
    table(header, vec![row])
}
