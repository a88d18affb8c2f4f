//! `tenure doctor`: what could hurt, and what to do about it.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tenure::ledger;
use tenure::wire::Findings;
use tenure_core::Store;
use tenure_core::clock::{Clock, within};
use tenure_core::store::{Finding, Severity};
use tenure_core::time::{StoreTime, micros, parse_duration, show_duration};
use tenure_core::timing::Timing;

use crate::cli::{FormatArgs, StoreArgs};
use crate::connect;
use crate::exit::{DONE, FAILED};
use crate::output::{json, table};
use crate::settings::LONGEST_TTL;

/// How long the store may take for one answer before that is a finding.
const PATIENCE: Duration = Duration::from_secs(5);
/// A difference of clocks that people will notice when they compare logs.
const NOTABLE_OFFSET: Duration = Duration::from_secs(2);

/// Looks at the store, the way to it, the clocks and the timing. Exit code 1 when something does not work.
#[derive(Debug, Clone, Args)]
pub(crate) struct Doctor {
    /// The ttl for which to look at the timing.
    #[arg(long, value_name = "DURATION", env = "TENURE_TTL", default_value = "30s", value_parser = parse_duration)]
    ttl: Duration,
    /// The ledger to look at as well, when the store is no daemon: postgres://…, sqlite:PATH. A daemon looks at its own.
    #[arg(long, value_name = "URL", env = "TENURE_LEDGER", hide_env_values = true)]
    ledger: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        crate::logging::start_quiet("error")?;
        connect::block_on(async {
            let findings = self.look().await;
            let failed = findings.iter().any(|finding| finding.severity == Severity::Error);
            self.print(findings)?;
            Ok(if failed { FAILED } else { DONE })
        })
    }

    async fn look(&self) -> Vec<Finding> {
        let connected = match self.store.connect().await {
            Ok(connected) => connected,
            Err(error) => return vec![Finding::new("store", Severity::Error, format!("{error:#}"))],
        };
        let (store, clock) = (connected.tenure.store(), connected.tenure.clock());
        let (round_trip, mut findings) = reach(&**store, &**clock).await;
        if let Some(round_trip) = round_trip {
            findings.push(self.timing(round_trip));
            match within(&**clock, PATIENCE, store.examine()).await {
                Some(found) => findings.extend(found),
                None => findings.push(Finding::new(
                    "store",
                    Severity::Error,
                    format!("no answer within {} when asked how it is", show_duration(PATIENCE)),
                )),
            }
        }
        if !connected.url.starts_with("http:")
            && let Some(url) = self.ledger.as_deref().filter(|url| !url.is_empty())
        {
            findings.extend(look_at_ledger(url, clock).await);
        }
        connected.tenure.close().await;
        findings
    }

    fn timing(&self, round_trip: Duration) -> Finding {
        let check = "timing";
        let timing = Timing::for_ttl(self.ttl);
        if let Err(error) = timing.check(LONGEST_TTL) {
            return Finding::new(check, Severity::Error, error.chain());
        }
        let numbers = format!(
            "ttl {}: a heartbeat every {}, each may take {}, margin {}",
            show_duration(timing.ttl),
            show_duration(timing.interval),
            show_duration(timing.request_timeout),
            show_duration(timing.margin),
        );
        if round_trip * 2 > timing.request_timeout {
            let detail =
                format!("{numbers}; one round trip took {round_trip:.0?}, more than half of that: raise the ttl");
            return Finding::new(check, Severity::Warning, detail);
        }
        Finding::new(check, Severity::Ok, numbers)
    }

    fn print(&self, findings: Vec<Finding>) -> anyhow::Result<()> {
        if self.format.json {
            return json(&Findings { findings });
        }
        let rows = findings
            .into_iter()
            .map(|finding| [word(finding.severity).to_owned(), finding.check, finding.detail]);
        table(["severity", "check", "detail"], rows.collect())
    }
}

/// Opens a ledger and looks at it.
async fn look_at_ledger(url: &str, clock: &Arc<dyn Clock>) -> Vec<Finding> {
    let failed = |detail: String| vec![Finding::new("ledger", Severity::Error, detail)];
    let ledger = match ledger::open(url, Arc::clone(clock)).await {
        Ok(ledger) => ledger,
        Err(error) => return failed(error.chain()),
    };
    let found = within(&**clock, PATIENCE, ledger.examine()).await;
    ledger.close().await;
    found.unwrap_or_else(|| {
        failed(format!(
            "no answer within {} when asked how it is",
            show_duration(PATIENCE)
        ))
    })
}

/// Asks the store for its clock, and compares it with ours.
async fn reach(store: &dyn Store, clock: &dyn Clock) -> (Option<Duration>, Vec<Finding>) {
    let place = store.place();
    let (sent_at, wall) = (clock.mono(), clock.wall_micros());
    let now = match within(clock, PATIENCE, store.now()).await {
        Some(Ok(now)) => now,
        Some(Err(error)) => {
            let detail = format!(
                "{place} does not serve: {}; is it running, and is the URL right?",
                error.chain()
            );
            return (None, vec![Finding::new("reach", Severity::Error, detail)]);
        }
        None => {
            let detail = format!("{place} does not answer within {}", show_duration(PATIENCE));
            return (None, vec![Finding::new("reach", Severity::Error, detail)]);
        }
    };
    let round_trip = clock.mono().since(sent_at);
    let reached = Finding::new("reach", Severity::Ok, format!("{place} answers in {round_trip:.1?}"));
    let ours = StoreTime::from_micros(wall.saturating_add(micros(round_trip / 2)));
    (Some(round_trip), vec![reached, offset(ours, now)])
}

fn offset(ours: StoreTime, theirs: StoreTime) -> Finding {
    let (off, word) = if theirs >= ours {
        (theirs.since(ours), "ahead of")
    } else {
        (ours.since(theirs), "behind")
    };
    let detail = format!("the store's clock is {off:.1?} {word} this machine's");
    if off > NOTABLE_OFFSET {
        let detail =
            format!("{detail}; nothing is decided by ours, but times in logs will not fit together: check NTP on both");
        return Finding::new("offset", Severity::Warning, detail);
    }
    Finding::new("offset", Severity::Ok, detail)
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Warning => "warning",
        Severity::Error => "ERROR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_much_are_a_warning_and_no_error() {
        let at = |seconds: u64| StoreTime::from_micros(seconds * 1_000_000);
        assert_eq!(offset(at(100), at(101)).severity, Severity::Ok);
        let off = offset(at(100), at(40));
        assert_eq!(off.severity, Severity::Warning);
        assert!(off.detail.contains("60.0s behind"), "{}", off.detail);
        assert!(offset(at(40), at(100)).detail.contains("60.0s ahead of"));
    }
}
