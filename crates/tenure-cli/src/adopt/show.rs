//! What a run prints: a table for people, JSON for programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_adopt::{EarlyEnd, PassReport, Preview, Removed, text};
use tenure_core::brake::Brake;

use super::Registry;
use crate::exit::say;
use crate::output::{json, json_line, table};

/// Prints what a pass would remove.
pub(super) fn preview(args: &Registry, preview: &Preview) -> anyhow::Result<()> {
    let entries: u64 = preview.dead.values().sum();
    if args.format.json {
        let doomed = preview
            .doomed
            .iter()
            .map(|entry| json!({ "key": text(&entry.field), "owner": text(&entry.owner) }));
        return json(&json!({
            "hash": args.given.hash,
            "dry_run": true,
            "scanned": preview.scanned,
            "skipped": preview.skipped,
            "skipped_first": texts(&preview.skipped_first),
            "owners": preview.owners,
            "endless": preview.endless,
            "dead": owners(&preview.dead),
            "doomed_total": entries,
            "doomed": doomed.collect::<Vec<_>>(),
            "braked": brake(preview.braked.as_ref()),
        }));
    }
    let rows = preview
        .doomed
        .iter()
        .map(|entry| [text(&entry.field), text(&entry.owner)]);
    table(["key", "owner"], rows.collect())?;
    let listed = preview.doomed.len() as u64;
    if entries > listed {
        say(format_args!("and {} more", entries - listed));
    }
    say(format_args!(
        "{} of {} without a heartbeat now; {} of {} in the hash",
        entries_of(entries),
        owners_of(preview.dead.len() as u64),
        entries_of(preview.scanned),
        owners_of(preview.owners)
    ));
    warn(preview.skipped, &preview.skipped_first, preview.endless);
    if preview.owners > 0 && preview.dead.len() as u64 == preview.owners {
        say("not one owner has a heartbeat: is the heartbeat template right?");
    }
    if let Some(brake) = &preview.braked {
        braked(brake);
    }
    Ok(())
}

/// Prints what a pass removed.
pub(super) fn pass(args: &Registry, report: &PassReport) -> anyhow::Result<()> {
    if args.format.json {
        return json(&document(&args.given.hash, report));
    }
    let rows = report
        .evicted
        .iter()
        .map(|(owner, entries)| [text(owner), entries.to_string()]);
    table(["owner", "evicted"], rows.collect())?;
    say(format_args!(
        "{} evicted; {} in the hash, {} of them dead",
        entries_of(report.evicted_total()),
        owners_of(report.owners),
        report.dead.len()
    ));
    warn(report.skipped, &report.skipped_first, report.endless);
    if let Some(brake) = &report.braked {
        braked(brake);
    }
    if let Some(broken) = &report.quarantined {
        say(format_args!(
            "the pass ended early: {broken}; run it again once the store serves steadily"
        ));
    }
    Ok(())
}

/// Prints what a run removed that ended early.
pub(super) fn ended_early(args: &Registry, removed: &Removed, why: EarlyEnd) -> anyhow::Result<()> {
    if args.format.json {
        return json(&part(&args.given.hash, removed, why));
    }
    let rows = removed.evicted.iter();
    let rows = rows.map(|(owner, entries)| [text(owner), entries.to_string()]);
    table(["owner", "evicted"], rows.collect())?;
    let (evicted, why) = (entries_of(removed.evicted_total()), why.as_str());
    say(format_args!(
        "{why}: {evicted} evicted until then; the pass was not done"
    ));
    if removed.unsure > 0 {
        unsure(removed.unsure);
    }
    Ok(())
}

/// Prints how many entries have an unknown outcome.
pub(super) fn unsure(entries: u64) {
    say(format_args!(
        "a reply was lost: up to {} more may have been removed without being counted",
        entries_of(entries)
    ));
}

/// Prints what a pass of the daemon removed that ended early, as one line.
pub(super) fn part_line(hash: &str, removed: &Removed, why: EarlyEnd) -> anyhow::Result<()> {
    json_line(&part(hash, removed, why))
}

fn part(hash: &str, removed: &Removed, why: EarlyEnd) -> Value {
    json!({
        "hash": hash,
        "dry_run": false,
        "ended_early": why.as_str(),
        "evicted_total": removed.evicted_total(),
        "evicted": owners(&removed.evicted),
        "unsure": removed.unsure,
    })
}

/// Prints a pass of the daemon as one line.
pub(super) fn pass_line(hash: &str, report: &PassReport) -> anyhow::Result<()> {
    json_line(&document(hash, report))
}

fn document(hash: &str, report: &PassReport) -> Value {
    json!({
        "hash": hash,
        "dry_run": false,
        "pass": report.pass,
        "scanned": report.scanned,
        "skipped": report.skipped,
        "skipped_first": texts(&report.skipped_first),
        "owners": report.owners,
        "endless": report.endless,
        "dead": owners(&report.dead),
        "evicted_total": report.evicted_total(),
        "evicted": owners(&report.evicted),
        "unsure": report.unsure,
        "braked": brake(report.braked.as_ref()),
        "quarantined": report.quarantined.as_ref().map(|broken| json!({
            "reason": broken.as_str(),
            "detail": broken.to_string(),
        })),
    })
}

fn texts(names: &[Vec<u8>]) -> Vec<String> {
    names.iter().map(|name| text(name)).collect()
}

fn owners(counts: &BTreeMap<Vec<u8>, u64>) -> Vec<Value> {
    counts
        .iter()
        .map(|(owner, entries)| json!({ "owner": text(owner), "entries": entries }))
        .collect()
}

fn brake(brake: Option<&Brake>) -> Option<Value> {
    brake.map(|brake| {
        json!({
            "since": brake.since.to_string(),
            "until": brake.until.to_string(),
            "dead": brake.lapsed,
            "alive": brake.present,
        })
    })
}

fn braked(brake: &Brake) {
    say(format_args!(
        "the brake holds back what {} own, since so many seem dead at once ({} alive), until {} at the latest; --force lifts it",
        owners_of(brake.lapsed),
        brake.present,
        brake.until
    ));
}

fn warn(skipped: u64, first: &[Vec<u8>], endless: u64) {
    if skipped > 0 {
        say(format_args!(
            "{} without the id of an owner in the value, kept: {}",
            entries_of(skipped),
            named(first, skipped)
        ));
    }
    if endless > 0 {
        say(format_args!(
            "{} whose heartbeat key has no ttl: they never count as dead",
            owners_of(endless)
        ));
    }
}

/// The first of some foreign names, quoted.
pub(super) fn named(first: &[Vec<u8>], count: u64) -> String {
    let shown: Vec<String> = first.iter().map(|name| format!("{:?}", text(name))).collect();
    let more = if count > shown.len() as u64 { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// `1 owner`, `2 owners`.
pub(super) fn owners_of(count: u64) -> String {
    format!("{count} {}", if count == 1 { "owner" } else { "owners" })
}

pub(super) fn entries_of(count: u64) -> String {
    format!("{count} {}", if count == 1 { "entry" } else { "entries" })
}
