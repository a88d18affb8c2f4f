//! The histories of single leases and keys, for the checker of `todc-utils`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};

use super::{Judge, Violation};
use crate::client::places;
use crate::history::{Call, Holder, Micros, Outcome, Verb, micros};
use crate::spec::{Holding, Step, Tenures, What};
use crate::world::MAX_TTL;

/// How long the search for an order of one history may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many calls of a history are shown.
const SHOWN: usize = 14;

/// A lease (`true`) or key, its name, and its place.
type Subject<'a> = (bool, &'a str, u64);

pub(super) fn check(judge: &Judge<'_>) -> Vec<Violation> {
    let (ends, numbers) = judge.ends(&mut HashMap::new());
    let steps = Steps {
        judge,
        numbers,
        tenures: Arc::new(ends),
        places: granted_places(&judge.record.calls),
        first_used: first_used(&judge.record.calls),
    };
    let mut subjects: BTreeMap<Subject<'_>, Vec<(&Call, Step)>> = BTreeMap::new();
    for call in &judge.record.calls {
        let Some((is_lease, name)) = call.subject() else {
            continue;
        };
        for place in 0..if is_lease { places(name) } else { 1 } {
            if let Some(step) = steps.of(call, name, place) {
                subjects.entry((is_lease, name, place)).or_default().push((call, step));
            }
        }
    }
    let mut found = Vec::new();
    for ((is_lease, name, place), mut steps) in subjects {
        drop_unseen(&mut steps);
        if is_linearizable(&steps) {
            continue;
        }
        // The shortest history, by begin, from which on none has an order.
        let good = (0..steps.len()).rev().find(|count| is_linearizable(&steps[..*count]));
        let bad = good.unwrap_or(0) + 1;
        let shown = &steps[bad.saturating_sub(SHOWN)..bad];
        let kind = if is_lease { "lease" } else { "key" };
        found.push(Violation {
            check: "linearizable",
            text: format!(
                "the {kind} {name}, place {place}: no order explains its first {bad} calls of {}",
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
    let mut unseen = BTreeSet::new();
    for (call, step) in steps.iter() {
        let is_seen = || seen.iter().any(|(tenure, end)| *tenure == step.by && *end > call.begin);
        if matches!(step.what, What::MaybeGranted) && !is_seen() {
            unseen.insert((call.begin, step.by));
        }
    }
    // Nor does the release of what was not granted, which begins with it.
    steps.retain(|(call, step)| {
        let is_doubtful = matches!(step.what, What::MaybeGranted | What::MaybeReleased(None));
        !is_doubtful || !unseen.contains(&(call.begin, step.by))
    });
}

fn is_linearizable(steps: &[(&Call, Step)]) -> bool {
    let mut actions = Vec::new();
    for (n, (call, step)) in steps.iter().enumerate() {
        // After an operator's release the lease comes free at some time.
        let is_open = call.outcome == Outcome::Unknown || matches!(call.verb, Verb::Revoke(..));
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

/// The places of all grants, by lease and token.
fn granted_places(calls: &[Call]) -> HashMap<(String, u64), u64> {
    let grants = calls.iter().filter_map(|call| match (&call.verb, &call.outcome) {
        (Verb::Acquire(lease, _), Outcome::Granted(grant)) => Some(((lease.clone(), grant.token), grant.place)),
        _ => None,
    });
    let reads = calls.iter().flat_map(|call| {
        let lease = call.subject().filter(|(is_lease, _)| *is_lease).map(|(_, lease)| lease);
        let holders = lease
            .into_iter()
            .flat_map(|lease| call.holders().iter().map(move |holder| (lease, holder)));
        holders.map(|(lease, holder)| ((lease.to_owned(), holder.token), holder.place))
    });
    grants.chain(reads).collect()
}

/// When the first call began that is about a lease or key.
fn first_used(calls: &[Call]) -> HashMap<String, Micros> {
    let mut first = HashMap::new();
    for call in calls {
        if let Some((_, name)) = call.subject() {
            let begin: &mut Micros = first.entry(name.to_owned()).or_insert(call.begin);
            *begin = call.begin.min(*begin);
        }
    }
    first
}

/// What is needed to see calls as steps.
struct Steps<'a> {
    judge: &'a Judge<'a>,
    numbers: HashMap<String, usize>,
    tenures: Tenures,
    places: HashMap<(String, u64), u64>,
    first_used: HashMap<String, Micros>,
}

impl Steps<'_> {
    /// A call as a step of one place, unless it says nothing about it.
    fn of(&self, call: &Call, name: &str, place: u64) -> Option<Step> {
        // What was first used after a loss is not affected by it.
        let first = self.first_used.get(name).copied().unwrap_or(0);
        let losses = || self.judge.record.losses().filter(|loss| loss.to >= first);
        let is_after_loss = losses().any(|loss| loss.from <= call.end);
        let forgotten = losses().any(|loss| match loss.is_tail {
            true => loss.from <= call.end,
            false => loss.from + micros(MAX_TTL) <= call.end,
        });
        let what = match &call.verb {
            Verb::Acquire(..) | Verb::Release(..) | Verb::ReleaseAny(_) | Verb::Revoke(..) | Verb::ReadLease(_) => {
                self.about_lease(call, name, place, is_after_loss)?
            }
            _ => self.about_key(call, is_after_loss)?,
        };
        let by = match what {
            What::Reads(_) | What::HeldBy(_) => self.number(&call.tenure).unwrap_or(0),
            _ => self.number(&call.tenure)?,
        };
        Some(Step {
            what,
            by,
            end: call.end,
            tenures: Arc::clone(&self.tenures),
            forgotten,
            is_after_loss,
        })
    }

    fn number(&self, tenure: &str) -> Option<usize> {
        self.numbers.get(tenure).copied()
    }

    fn about_lease(&self, call: &Call, name: &str, place: u64, is_after_loss: bool) -> Option<What> {
        let is_shared = places(name) > 1;
        let is_here = |token: u64| self.places.get(&(name.to_owned(), token)).is_none_or(|at| *at == place);
        Some(match (&call.verb, &call.outcome) {
            // What a store that lost data says of what it had is not judged.
            (_, Outcome::Reads(_) | Outcome::Taken(_)) if is_after_loss => return None,
            (Verb::Release(_, token) | Verb::Revoke(_, token), _) if !is_here(*token) => return None,
            // A shared lease is not held by its last holder alone, so a release that finds nothing is done as well.
            (Verb::Release(_, token), Outcome::Done) if is_after_loss || is_shared => What::MaybeReleased(Some(*token)),
            // The release of what is kept may be lost.
            (Verb::Acquire(..), Outcome::Granted(grant)) if grant.is_kept && is_after_loss => return None,
            (Verb::Acquire(..), Outcome::Granted(grant)) if grant.place == place => What::Granted(grant.token),
            (Verb::Acquire(..), Outcome::Taken(by)) if !is_shared => What::HeldBy(self.number(by)?),
            (Verb::Acquire(..), Outcome::Unknown) => What::MaybeGranted,
            (Verb::Release(_, token), Outcome::Done) => What::Released(*token),
            (Verb::Release(_, token), Outcome::Taken(_)) => What::NotHolder(*token),
            (Verb::Release(_, token), Outcome::Unknown)
            | (Verb::Revoke(_, token), Outcome::Done | Outcome::Unknown) => What::MaybeReleased(Some(*token)),
            (Verb::ReleaseAny(_), Outcome::Unknown) => What::MaybeReleased(None),
            (Verb::ReadLease(_), Outcome::Reads(holders)) => self.read(holders, place)?,
            _ => return None,
        })
    }

    fn about_key(&self, call: &Call, is_after_loss: bool) -> Option<What> {
        Some(match (&call.verb, &call.outcome) {
            (_, Outcome::Reads(_) | Outcome::Taken(_)) if is_after_loss => return None,
            (Verb::Unclaim(_), Outcome::Done) if is_after_loss => What::MaybeReleased(None),
            (Verb::Claim(..), Outcome::Done) if is_after_loss => What::Claimed,
            (Verb::Claim(..) | Verb::Unclaim(_), Outcome::Taken(by)) => What::HeldBy(self.number(by)?),
            (Verb::Unclaim(_), Outcome::Unknown) => What::MaybeReleased(None),
            (Verb::Unclaim(_), Outcome::Done) => What::Released(0),
            (Verb::Claim(_, true), Outcome::Done) => What::ClaimedAbsent,
            (Verb::Claim(..), Outcome::Done) => What::Claimed,
            (Verb::Claim(..), Outcome::Unknown) => What::MaybeClaimed,
            (Verb::ReadClaim(_), Outcome::Reads(holders)) => self.read(holders, 0)?,
            _ => return None,
        })
    }

    fn read(&self, holders: &[Holder], place: u64) -> Option<What> {
        Some(match holders.iter().find(|holder| holder.place == place) {
            None => What::Reads(None),
            Some(holder) => What::Reads(Some((self.number(&holder.tenure)?, holder.is_alive, holder.token))),
        })
    }
}
