//! What a look prints: a table for people, JSON for programs.

use serde_json::json;
use tenure_adopt::{LeaseComparison, NamesWithoutUse, OldLease, TargetRow, text};

use crate::adopt::show::named;
use crate::exit::say;
use crate::output::{self, brief, or_dash, yes_no};

/// The most rows for people.
const LISTED: usize = 1_000;

pub(super) fn table(beside: &LeaseComparison) -> anyhow::Result<()> {
    let shown = beside.rows.iter().take(LISTED);
    let header = ["old holder", "expires in", "tenure holder", "token", "verdict"];
    if beside.named.is_some() {
        let [old, expires, holder, token, verdict] = header;
        let rows = shown.map(|row| {
            let [old, expires, holder, token, verdict] = cells(row);
            let paused = or_dash(row.paused.map(yes_no));
            [text(&row.target), paused, old, expires, holder, token, verdict]
        });
        let header = ["target", "paused", old, expires, holder, token, verdict];
        output::table(header, rows.collect())?;
    } else {
        let [old, expires, holder, token, verdict] = header;
        let rows = shown.map(|row| {
            let [old, expires, holder, token, verdict] = cells(row);
            [text(&row.target), old, expires, holder, token, verdict]
        });
        output::table(["target", old, expires, holder, token, verdict], rows.collect())?;
    }
    let more = beside.rows.len().saturating_sub(LISTED);
    if more > 0 {
        say(format_args!("and {more} more; --json shows all"));
    }
    say(beside.counts());
    if beside.unclear > 0 {
        say(format_args!(
            "{} count as paused because their keys are neither hashes nor JSON objects, or have no time where one belongs",
            beside.unclear
        ));
    }
    let for_ever = endless(beside);
    if for_ever > 0 {
        say(format_args!(
            "{for_ever} old keys have no ttl: no other node gets these targets until the keys are deleted"
        ));
    }
    Ok(())
}

/// Names the keys whose name no target of Tenure can have.
pub(super) fn without_use(flag: &str, names: &NamesWithoutUse) {
    match names.count {
        0 => {}
        1 => say(format_args!(
            "1 key of {flag} has a name that no target can have: {}",
            named(&names.first, 1)
        )),
        count => say(format_args!(
            "{count} keys of {flag} have names that no target can have: {}",
            named(&names.first, count as u64)
        )),
    }
}

/// The holder by the old key and by the lease.
fn cells(row: &TargetRow) -> [String; 5] {
    [
        or_dash(row.old.as_ref().map(|old| text(&old.value))),
        row.old.as_ref().map_or_else(|| "-".to_owned(), expires),
        or_dash(row.lease.as_ref().map(|lease| &lease.holder)),
        or_dash(row.lease.as_ref().map(|lease| lease.token)),
        row.held_by.as_str().to_owned(),
    ]
}

fn expires(old: &OldLease) -> String {
    old.free_in.map_or_else(|| "never".to_owned(), brief)
}

fn endless(beside: &LeaseComparison) -> usize {
    let olds = beside.rows.iter().filter_map(|row| row.old.as_ref());
    olds.filter(|old| old.free_in.is_none()).count()
}

pub(super) fn json(beside: &LeaseComparison, is_done: bool) -> anyhow::Result<()> {
    let row = |row: &TargetRow| {
        let (old, lease) = (row.old.as_ref(), row.lease.as_ref());
        json!({
            "target": text(&row.target),
            "paused": row.paused,
            "old_holder": old.map(|old| text(&old.value)),
            "old_expires_in_ms": old.and_then(|old| old.free_in).map(ms),
            "holder": lease.map(|lease| lease.holder.as_str()),
            "tenure": lease.map(|lease| lease.tenure.to_string()),
            "token": lease.map(|lease| lease.token.get()),
            "alive": lease.map(|lease| lease.alive),
            "verdict": row.held_by.as_str().replace(' ', "_"),
        })
    };
    let counts = beside.counts();
    output::json(&json!({
        "done": is_done,
        "counts": {
            "old_node": counts.old_node,
            "conflict": counts.conflict,
            "both": counts.both,
            "tenure_only": counts.tenure_only,
            "free": counts.free,
        },
        "endless": endless(beside),
        "unclear": beside.unclear,
        "nameless": beside.nameless.count,
        "old_nameless": beside.old_nameless.count,
        "targets": beside.rows.iter().map(row).collect::<Vec<_>>(),
    }))
}

fn ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
