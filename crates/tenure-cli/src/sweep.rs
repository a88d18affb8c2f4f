//! `tenure sweep`: one pass of the janitor, now.

use clap::Args;
use tenure::wire::SweepAnswer;
use tenure_core::Store;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::store::Call;
use tenure_core::sweep::{BURST, SweepReport, SweepRequest};

use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, say};
use crate::output::{json, pairs, table, yes_no};

/// At most this often a pass is repeated for what was ended by it and may be released a moment later.
const ROUNDS: u32 = 4;

/// Ends what lapsed and releases what the ended held, now. Nobody has to call it: daemons do it by themselves.
#[derive(Debug, Clone, Args)]
pub(crate) struct Sweep {
    /// Only tell what would go.
    #[arg(long)]
    dry_run: bool,
    /// Lift the brake first. Never overrides a grace period.
    #[arg(long, conflicts_with = "dry_run")]
    force: bool,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Sweep {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let clock = SystemClock::new();
        let pass = format!("cli-{:016x}", clock.entropy());
        let report = self.passes(store, &clock, &pass).await?;
        if let Some(brake) = report.braked {
            say(format_args!(
                "the brake holds back what {} lapsed members held ({} are present), until {} at the latest; --force lifts it",
                brake.lapsed, brake.present, brake.until
            ));
        }
        if self.format.json {
            json(&SweepAnswer::new(pass, self.dry_run, report))?;
        } else {
            show(self.dry_run, &report)?;
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
                reconcile: false,
            };
            let report = store
                .sweep(&self.group.name, &request, &format!("{pass}.{round}"), Call::default())
                .await?;
            all.ended += report.ended;
            all.evicted.extend(report.evicted);
            all.doomed.extend(report.doomed);
            all.braked = report.braked;
            all.next_release_in = report.next_release_in;
            match report.next_release_in.filter(|wait| *wait <= BURST) {
                Some(wait) if !self.dry_run => clock.sleep(wait).await,
                _ => break,
            }
        }
        Ok(all)
    }
}

fn show(dry_run: bool, report: &SweepReport) -> anyhow::Result<()> {
    if dry_run {
        let rows = report.doomed.iter().map(|doomed| {
            [
                doomed.tenure.to_string(),
                doomed.reason.as_str().to_owned(),
                doomed.holdings.claims.to_string(),
                doomed.holdings.leases.to_string(),
                yes_no(doomed.braked),
            ]
        });
        return table(["tenure", "reason", "claims", "leases", "braked"], rows.collect());
    }
    let rows = report.evicted.iter().map(|eviction| {
        [
            eviction.tenure.to_string(),
            eviction.claims.values().sum::<u64>().to_string(),
            eviction.leases.to_string(),
            pairs(&eviction.claims),
        ]
    });
    table(["tenure", "evicted", "leases", "by registry"], rows.collect())?;
    say(format_args!(
        "{} tenures lapsed, {} claims evicted, {} leases released",
        report.ended,
        report.evicted_total(),
        report.leases_total()
    ));
    Ok(())
}
