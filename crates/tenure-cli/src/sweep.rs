//! `tenure sweep`: one pass of the janitor and the reaper, now.

use clap::Args;
use tenure::wire::SweepAnswer;
use tenure_core::Store;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::store::Call;
use tenure_core::sweep::{BURST, GroupStatus, SweepReport, SweepRequest};

use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, say};
use crate::groups;
use crate::output::{json, line, pairs, table, yes_no};
use crate::progress::Progress;

/// At most this often a pass is repeated for what was ended by it and may be released a moment later.
const ROUNDS: u32 = 4;

/// Runs a pass of the janitor and the reaper now.
///
/// It ends lapsed tenures, releases what ended tenures held, and deletes orphaned sessions. Daemons do this continuously, so
/// it is needed only with --force, or on a store without a daemon.
#[derive(Debug, Clone, Args)]
pub(crate) struct Sweep {
    /// Only list what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Lift the brake first. A grace period is never shortened.
    #[arg(long, conflicts_with = "dry_run")]
    force: bool,
    /// Also compare all sessions with their index and repair every difference.
    #[arg(long, conflicts_with = "dry_run")]
    reconcile: bool,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Sweep {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        groups::must_exist(store, &self.group.name).await?;
        let clock = SystemClock::new();
        let pass = format!("cli-{:016x}", clock.entropy());
        let what = format!("sweeping group {}", self.group.name);
        let report = Progress::of(&what, self.passes(store, &clock, &pass)).await?;
        if let Some(brake) = report.braked {
            say(format_args!(
                "the brake holds back the holdings of {} lapsed members ({} are present), until {} at the latest; --force lifts it",
                brake.lapsed, brake.present, brake.until
            ));
        }
        if self.format.json {
            json(&SweepAnswer::new(pass, self.dry_run, report))?;
        } else {
            self.show(&report)?;
            if self.reconcile {
                show_reconciled(&report, &store.status(&self.group.name).await?);
            }
        }
        Ok(DONE)
    }

    /// A pass, and another when what it ended may be released a moment later.
    async fn passes(&self, store: &dyn Store, clock: &SystemClock, pass: &str) -> anyhow::Result<SweepReport> {
        let mut all = SweepReport::default();
        for round in 0..ROUNDS {
            let request = SweepRequest {
                dry_run: self.dry_run,
                force: self.force && round == 0,
                reconcile: self.reconcile && round == 0,
            };
            let report = store
                .sweep(&self.group.name, &request, &format!("{pass}.{round}"), Call::default())
                .await?;
            all.ended += report.ended;
            all.evicted.extend(report.evicted);
            all.doomed.extend(report.doomed);
            all.reaped += report.reaped;
            all.skipped += report.skipped;
            all.orphans.extend(report.orphans);
            for (kind, count) in report.repaired {
                *all.repaired.entry(kind).or_default() += count;
            }
            all.braked = report.braked;
            all.next_release_in = report.next_release_in;
            match report.next_release_in.filter(|wait| *wait <= BURST) {
                Some(wait) if !self.dry_run => clock.sleep(wait).await,
                _ => break,
            }
        }
        Ok(all)
    }

    fn show(&self, report: &SweepReport) -> anyhow::Result<()> {
        if self.dry_run {
            return show_doomed(report);
        }
        show_evicted(report)?;
        say(format_args!(
            "{} tenures lapsed, {} claims evicted, {} leases and {} connections released, {} sessions reaped",
            report.ended,
            report.evicted_total(),
            report.leases_total(),
            report.connections_total(),
            report.reaped
        ));
        Ok(())
    }
}

/// What a reconcile repaired, and why it may have left something.
fn show_reconciled(report: &SweepReport, status: &GroupStatus) {
    if !report.repaired.is_empty() {
        say(format_args!("repaired: {}", pairs(&report.repaired)));
    }
    match (status.unsettled, status.brake) {
        (Some(grace), _) => say(format_args!(
            "nothing that a reconcile removes was looked at, since the group is unsettled until {}; run it again then",
            grace.until
        )),
        (None, Some(brake)) => say(format_args!(
            "nothing that a reconcile removes was looked at, since the brake is engaged until {}; run it again then",
            brake.until
        )),
        (None, None) if report.repaired.is_empty() => say("sessions and their index agree"),
        (None, None) => {}
    }
}

fn show_doomed(report: &SweepReport) -> anyhow::Result<()> {
    let rows = report.doomed.iter().map(|doomed| {
        [
            doomed.tenure.to_string(),
            doomed.reason.as_str().to_owned(),
            doomed.holdings.claims.to_string(),
            doomed.holdings.leases.to_string(),
            doomed.holdings.connections.to_string(),
            yes_no(doomed.braked),
        ]
    });
    table(
        ["tenure", "reason", "claims", "leases", "connections", "braked"],
        rows.collect(),
    )?;
    if !report.orphans.is_empty() {
        line("")?;
        let rows = report.orphans.iter().map(|orphan| [orphan.to_string()]);
        table(["orphan"], rows.collect())?;
    }
    Ok(())
}

fn show_evicted(report: &SweepReport) -> anyhow::Result<()> {
    let rows = report.evicted.iter().map(|eviction| {
        [
            eviction.tenure.to_string(),
            eviction.claims.values().sum::<u64>().to_string(),
            eviction.leases.to_string(),
            eviction.connections.to_string(),
            pairs(&eviction.claims),
        ]
    });
    table(
        ["tenure", "evicted", "leases", "connections", "by registry"],
        rows.collect(),
    )
}
