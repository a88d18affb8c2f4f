//! The histories of single leases and keys, for the checker of `todc-utils`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};

use super::{Judge, Violation};
use crate::history::{Call, Micros, Outcome, Verb, micros};
use crate::spec::{Holding, Step, Tenures, What};
use crate::world::MAX_TTL;

/// How long the search for an order of one history may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many calls of a history are shown.
const SHOWN: usize = 14;

pub(super) fn check(judge: &Judge<'_>) -> Vec<Violation> {
    let (ends, numbers) = judge.ends(&mut HashMap::new());
    let tenures = super::shared(ends);
    let mut subjects: BTreeMap<(bool, &str), Vec<(&Call, Step)>> = BTreeMap::new();
    for call in &judge.record.calls {
        if let (Some(subject), Some(step)) = (call.subject(), step_of(judge, call, &numbers, &tenures)) {
            subjects.entry(subject).or_default().push((call, step));
        }
    }
    let mut found = Vec::new();
    for ((is_lease, name), mut steps) in subjects {
        drop_unseen(&mut steps);
        if is_linearizable(&steps) {
            continue;
        }
        // The shortest history, by begin, that has no order.
        let (mut good, mut bad) = (0, steps.len());
        while bad - good > 1 {
            let middle = usize::midpoint(good, bad);
            match is_linearizable(&steps[..middle]) {
                true => good = middle,
                false => bad = middle,
            }
        }
        let shown = &steps[bad.saturating_sub(SHOWN)..bad];
        let kind = if is_lease { "lease" } else { "key" };
        found.push(Violation {
            check: "linearizable",
            text: format!(
                "the {kind} {name}: no order explains its first {bad} calls of {}",
                steps.len()
            ),
            calls: shown.iter().map(|(call, _)| (*call).clone()).collect(),
        });
    }
    found
}

/// A lease that may have been granted, and that no later call saw, explains nothing.
fn drop_unseen(steps: &mut Vec<(&Call, Step)>) {
    let seen: Vec<(usize, Micros)> = steps
        .iter()
        .filter_map(|(call, step)| match step.what {
            What::HeldBy(tenure) | What::Reads(Some((tenure, _, _))) => Some((tenure, call.end)),
            What::Granted(_) | What::Released(_) => Some((step.by, call.end)),
            _ => None,
        })
        .collect();
    steps.retain(|(call, step)| {
        let is_seen = || seen.iter().any(|(tenure, end)| *tenure == step.by && *end > call.begin);
        !matches!(step.what, What::MaybeGranted) || is_seen()
    });
}

fn is_linearizable(steps: &[(&Call, Step)]) -> bool {
    let mut actions = Vec::new();
    for (n, (call, step)) in steps.iter().enumerate() {
        let is_open = call.outcome == Outcome::Unknown;
        let end = if is_open { Micros::MAX } else { call.end };
        actions.push((call.begin, false, n, Action::Call(step.clone())));
        actions.push((end, true, n, Action::Response(step.clone())));
    }
    if actions.is_empty() {
        return true;
    }
    // A call that begins in the microsecond in which another ends may have been first.
    actions.sort_by_key(|(at, is_end, n, _)| (*at, *is_end, *n));
    let actions = actions.into_iter().map(|(_, _, n, action)| (n, action)).collect();
    // Many unknown outcomes can make the search too long: then nothing is said about this history.
    let (answer, found) = std::sync::mpsc::channel();
    std::thread::spawn(move || answer.send(WGLChecker::<Holding>::is_linearizable(History::from_actions(actions))));
    found.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        println!("undecided: {} calls of one history", steps.len());
        true
    })
}

/// A call as a step, unless it says nothing.
fn step_of(judge: &Judge<'_>, call: &Call, numbers: &HashMap<String, usize>, tenures: &Tenures) -> Option<Step> {
    let number = |tenure: &str| numbers.get(tenure).copied();
    let losses = || judge.record.windows.iter().filter(|window| window.loses_data());
    let is_after_loss = losses().any(|window| window.begin <= call.end);
    let forgotten = losses().any(|window| window.begin + micros(MAX_TTL) <= call.end);
    let what = match (&call.verb, &call.outcome) {
        // What a store that lost data says of what it had is not judged.
        (_, Outcome::Reads(_) | Outcome::Taken(_)) if is_after_loss => return None,
        (Verb::Release(_, token), Outcome::Done) if is_after_loss => What::MaybeReleased(Some(*token)),
        (Verb::Unclaim(_), Outcome::Done) if is_after_loss => What::MaybeReleased(None),
        (Verb::Claim(..), Outcome::Done) if is_after_loss => What::Claimed,
        (Verb::Acquire(_), Outcome::Token(token)) => What::Granted(*token),
        (Verb::Acquire(_) | Verb::Claim(..) | Verb::Unclaim(_), Outcome::Taken(by)) => What::HeldBy(number(by)?),
        (Verb::Acquire(_), Outcome::Unknown) => What::MaybeGranted,
        (Verb::Release(_, token), Outcome::Done) => What::Released(*token),
        (Verb::Release(_, token), Outcome::Taken(_)) => What::NotHolder(*token),
        (Verb::Release(_, token), Outcome::Unknown) => What::MaybeReleased(Some(*token)),
        (Verb::ReleaseAny(_) | Verb::Unclaim(_), Outcome::Unknown) => What::MaybeReleased(None),
        (Verb::Unclaim(_), Outcome::Done) => What::Released(0),
        (Verb::Claim(_, true), Outcome::Done) => What::ClaimedAbsent,
        (Verb::Claim(..), Outcome::Done) => What::Claimed,
        (Verb::Claim(..), Outcome::Unknown) => What::MaybeClaimed,
        (Verb::ReadLease(_) | Verb::ReadClaim(_), Outcome::Reads(None)) => What::Reads(None),
        (Verb::ReadLease(_) | Verb::ReadClaim(_), Outcome::Reads(Some(holder))) => {
            What::Reads(Some((number(&holder.tenure)?, holder.is_alive, holder.token)))
        }
        _ => return None,
    };
    let by = match what {
        What::Reads(_) | What::HeldBy(_) => number(&call.tenure).unwrap_or(0),
        _ => number(&call.tenure)?,
    };
    Some(Step {
        what,
        by,
        end: call.end,
        tenures: Arc::clone(tenures),
        forgotten,
        is_after_loss,
    })
}
