//! The output of a run: a table for people, JSON for programs.

use serde_json::{Value, json};
use tenure_adopt::{Comparison, EarlyEnd, IndexReport, ReapReport, SessionCounts, UndoReport, text};

use super::Work;
use crate::exit::say;
use crate::output::{self, brief, yes_no};

/// The number of consecutive passes without changes after which the index counts as complete.
const QUIET: u64 = 2;

/// Prints the changes of an index pass and the result of its verification.
pub(super) fn index(
    work: &Work,
    report: &IndexReport,
    found: Option<&Comparison>,
    early: Option<EarlyEnd>,
) -> anyhow::Result<()> {
    let is_there = work.is_there(report);
    let is_verified = found.map(|found| found.missing == 0 && is_there);
    let migrated = report.quiet >= QUIET && is_verified == Some(true);
    if work.json {
        return output::json(&json!({
            "dry_run": work.dry_run,
            "standing": standing(&report.counts),
            "added": report.added,
            "updated": report.updated,
            "removed": report.removed,
            "repaired": report.repaired,
            "unsure": report.unsure,
            "ended_early": early.map(EarlyEnd::as_str),
            "restarts": report.restarts,
            "quiet_passes": report.quiet,
            "migrated": migrated,
            "verified": is_verified,
            "found": found.map(differences),
        }));
    }
    let row = [
        report.counts.scanned,
        report.counts.disconnected,
        report.added,
        report.updated,
        report.removed,
        report.counts.entries,
    ];
    let header = ["keys", "disconnected", "added", "updated", "removed", "entries"];
    output::table(header, vec![row.map(|count| count.to_string())])?;
    if work.repair {
        let what = if work.dry_run { "would be" } else { "were" };
        say(format_args!(
            "{} of others {what} set right",
            entries_of(report.repaired)
        ));
    }
    if report.unsure > 0 {
        say(format_args!(
            "a reply was lost: up to {} more may have been changed without being counted",
            entries_of(report.unsure)
        ));
    }
    if let Some(early) = early {
        say(format_args!(
            "{}: this is what was changed until then; run it again for the rest",
            early.as_str()
        ));
        return Ok(());
    }
    warn(work, &report.counts);
    let Some(found) = found else {
        say("nothing was written: this is what a run would do now");
        return Ok(());
    };
    if !is_there {
        return Ok(());
    }
    if found.missing == 0 {
        say("verified: a second look found every disconnected session in the index");
    } else {
        say(format_args!(
            "a second look found {} without an entry; run it again",
            sessions_of(found.missing)
        ));
    }
    if found.extra + found.differing > 0 {
        say(format_args!(
            "{} without a disconnected session and {} with another time; --compare shows them",
            entries_of(found.extra),
            found.differing
        ));
    }
    if migrated {
        say(format_args!(
            "migrated: {} passes in a row found nothing new. That counts only if no program that does not keep the index has \
             run since before the first of them",
            report.quiet
        ));
    } else {
        say(format_args!(
            "{} of {QUIET} passes in a row found nothing new; run it again once no old writer is left",
            report.quiet.min(QUIET)
        ));
    }
    Ok(())
}

/// Prints the differences between index and sessions.
pub(super) fn comparison(work: &Work, found: &Comparison) -> anyhow::Result<()> {
    if work.json {
        let mut document = differences(found);
        document["standing"] = standing(&found.counts);
        document["equal"] = found.is_equal().into();
        return output::json(&document);
    }
    let rows = found.listed.iter().map(|difference| {
        [
            text(&difference.id),
            difference.kind.as_str().to_owned(),
            dash(&difference.session),
            dash(&difference.index),
            yes_no(difference.ours),
        ]
    });
    output::table(["session", "entry", "disconnected", "index", "ours"], rows.collect())?;
    let more = (found.missing + found.extra + found.differing).saturating_sub(found.listed.len() as u64);
    if more > 0 {
        say(format_args!("and {more} more"));
    }
    warn(work, &found.counts);
    say(format_args!(
        "{} disconnected, {} in the index; {} missing, {} extra, {} differing",
        sessions_of(found.counts.disconnected),
        entries_of(found.counts.entries),
        found.missing,
        found.extra,
        found.differing
    ));
    Ok(())
}

/// Prints the removals of an undo.
pub(super) fn undo(work: &Work, undone: UndoReport, early: Option<EarlyEnd>) -> anyhow::Result<()> {
    if work.json {
        return output::json(&json!({
            "dry_run": work.dry_run,
            "removed": undone.removed,
            "not_ours": undone.not_ours,
            "unsure": undone.unsure,
            "ended_early": early.map(EarlyEnd::as_str),
        }));
    }
    let row = [undone.removed, undone.not_ours].map(|count| count.to_string());
    output::table(["removed", "not ours"], vec![row])?;
    if undone.unsure > 0 {
        say(format_args!(
            "a reply was lost: up to {} more may have been taken out without being counted",
            entries_of(undone.unsure)
        ));
    }
    if let Some(early) = early {
        say(format_args!(
            "{}: this is what was taken out until then; run it again for the rest",
            early.as_str()
        ));
    }
    if work.dry_run {
        say("nothing was written: this is what a run would do now");
    }
    Ok(())
}

/// Prints the result of a reaper pass.
pub(super) fn reap(work: &Work, report: &ReapReport, early: Option<EarlyEnd>) -> anyhow::Result<()> {
    if work.json {
        return output::json(&document(work, report, early));
    }
    if work.dry_run {
        doomed(report)?;
    }
    let row = [
        report.looked,
        report.reaped,
        report.without_session,
        report.active,
        report.younger,
        report.referenced,
    ];
    let header = ["looked at", "reaped", "gone", "active", "younger", "referenced"];
    output::table(header, vec![row.map(|count| count.to_string())])?;
    if report.not_hash + report.invalid > 0 {
        say(format_args!(
            "{} kept: {} whose key is not a hash, {} whose {} is not a time in {}",
            entries_of(report.not_hash + report.invalid),
            report.not_hash,
            report.invalid,
            work.given.disconnected_field,
            work.given.unit
        ));
    }
    never_due(report.never_due);
    let refs = work.given.refs.as_deref().unwrap_or_default();
    if work.dry_run && report.uncounted > 0 && report.uncounted == report.reaped && report.referenced == 0 {
        uncounted(report.uncounted, refs);
    }
    if report.unsure > 0 {
        say(format_args!(
            "a reply was lost: up to {} may have been reaped without being counted",
            sessions_of(report.unsure)
        ));
    }
    if let Some(early) = early {
        say(format_args!("{}: this is what was done until then", early.as_str()));
    }
    if report.limited {
        say("the limit was reached; there may be more");
    }
    if let Some(broken) = &report.quarantined {
        say(format_args!(
            "held back for another {}: {broken}; the --max-age of every session starts again",
            brief(report.settles_in)
        ));
    }
    if work.dry_run {
        say("nothing was written: this is what a run would do now");
    }
    Ok(())
}

/// A pass of the daemon as one line.
pub(super) fn reap_line(work: &Work, report: &ReapReport, early: Option<EarlyEnd>) -> anyhow::Result<()> {
    output::json_line(&document(work, report, early))
}

/// The sessions that would go, each with what goes with it.
fn doomed(report: &ReapReport) -> anyhow::Result<()> {
    let named = |keys: &[Vec<u8>]| keys.iter().map(|key| text(key)).collect::<Vec<_>>().join("  ");
    let rows = report.doomed.iter().map(|doomed| {
        let keys = named(&doomed.keys);
        [text(&doomed.id), if keys.is_empty() { "-".to_owned() } else { keys }]
    });
    output::table(["session", "goes with it"], rows.collect())?;
    let more = report.reaped.saturating_sub(report.doomed.len() as u64);
    if more > 0 {
        say(format_args!("and {more} more"));
    }
    Ok(())
}

/// Sessions without a count key: mostly a mistyped template.
pub(super) fn uncounted(sessions: u64, refs: &str) {
    say(format_args!(
        "not one of {} has a key like {refs}, so none counts as referred to: is --refs right? (Where a count of 0 is \
         deleted, that is as it should be.)",
        sessions_of(sessions)
    ));
}

/// Entries that keep their sessions for ever.
fn never_due(entries: u64) {
    if entries > 0 {
        say(format_args!(
            "{} whose time is more than a day ahead: their sessions are never reaped. --compare shows them, --repair \
             sets them right",
            entries_of(entries)
        ));
    }
}

fn document(work: &Work, report: &ReapReport, early: Option<EarlyEnd>) -> Value {
    let mut document = json!({
        "dry_run": work.dry_run,
        "pass": report.pass,
        "looked": report.looked,
        "reaped": report.reaped,
        "without_session": report.without_session,
        "active": report.active,
        "younger": report.younger,
        "referenced": report.referenced,
        "not_hash": report.not_hash,
        "invalid": report.invalid,
        "uncounted": report.uncounted,
        "never_due": report.never_due,
        "unsure": report.unsure,
        "limited": report.limited,
        "quarantined": report.quarantined.as_ref().map(|broken| json!({
            "reason": broken.as_str(),
            "detail": broken.to_string(),
            "settles_in_ms": u64::try_from(report.settles_in.as_millis()).unwrap_or(u64::MAX),
        })),
        "ended_early": early.map(EarlyEnd::as_str),
    });
    if work.dry_run {
        let each = report.doomed.iter().map(|doomed| {
            let keys: Vec<String> = doomed.keys.iter().map(|key| text(key)).collect();
            json!({ "session": text(&doomed.id), "keys": keys })
        });
        document["doomed"] = each.collect();
    }
    document
}

fn standing(standing: &SessionCounts) -> Value {
    json!({
        "scanned": standing.scanned,
        "active": standing.active,
        "disconnected": standing.disconnected,
        "not_hash": standing.not_hash,
        "invalid": standing.invalid,
        "entries": standing.entries,
        "never_due": standing.never_due,
    })
}

fn differences(found: &Comparison) -> Value {
    let each = found.listed.iter().map(|difference| {
        json!({
            "session": text(&difference.id),
            "entry": difference.kind.as_str(),
            "disconnected": text(&difference.session),
            "index": text(&difference.index),
            "ours": difference.ours,
        })
    });
    json!({
        "missing": found.missing,
        "fresh": found.fresh,
        "extra": found.extra,
        "differing": found.differing,
        "differences": each.collect::<Vec<_>>(),
    })
}

fn warn(work: &Work, standing: &SessionCounts) {
    let given = &work.given;
    never_due(standing.never_due);
    if standing.invalid > 0 {
        say(format_args!(
            "{} left alone whose {} is not a time in {}: is the unit right (--unit)?",
            sessions_of(standing.invalid),
            given.disconnected_field,
            given.unit
        ));
    }
    if standing.not_hash > 0 {
        say(format_args!(
            "{} keys of the pattern are not hashes, left alone",
            standing.not_hash
        ));
    }
    if standing.scanned == 0 {
        say(format_args!(
            "no key is called like {}: is --pattern right?{}",
            given.pattern,
            if work.allow_empty {
                ""
            } else {
                " If it is, say --allow-empty"
            }
        ));
    } else if standing.disconnected == 0 {
        say(format_args!(
            "not one session is disconnected: is the field {} right?",
            given.disconnected_field
        ));
    }
}

fn dash(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".to_owned() } else { text(bytes) }
}

/// `1 session`, `2 sessions`.
fn sessions_of(count: u64) -> String {
    format!("{count} {}", if count == 1 { "session" } else { "sessions" })
}

pub(super) fn entries_of(count: u64) -> String {
    format!("{count} {}", if count == 1 { "entry" } else { "entries" })
}
