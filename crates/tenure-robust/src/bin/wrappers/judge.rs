//! Judges what was seen of a cell: six rules, each with what was expected and what was seen.

use std::fmt;
use std::time::Duration;

use crate::expect::{After, Expected, Frees};

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// No process of the command works on what another process owns.
    OneHolder,
    /// It ends, in time and with the right code, or goes on where it must.
    Ends,
    /// The lease is free in time.
    Frees,
    /// No process of the command and no watchdog is left.
    LeavesNothing,
    /// The terminal is as it was.
    Terminal,
    /// A watchdog that dies or freezes is replaced, and the command runs on.
    Guarded,
}

impl Rule {
    pub(crate) const ALL: [Self; 6] = [
        Self::OneHolder,
        Self::Ends,
        Self::Frees,
        Self::LeavesNothing,
        Self::Terminal,
        Self::Guarded,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OneHolder => "one holder",
            Self::Ends => "it ends",
            Self::Frees => "it frees",
            Self::LeavesNothing => "nothing is left",
            Self::Terminal => "the terminal works",
            Self::Guarded => "it stays guarded",
        }
    }
}

/// A broken rule.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule.name(), self.text)
    }
}

/// What was seen of a cell. All times count from its start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Why the event could not happen: the command did not start, or ended before.
    pub(crate) not_begun: Option<String>,
    /// The event, or the STOP that follows the end of a watchdog.
    pub(crate) event_at: Duration,
    /// What the time limit of the end counts from: the event, the CONT or the TERM after it.
    pub(crate) asked_at: Duration,
    pub(crate) ended_at: Option<Duration>,
    /// The wrapper's exit code, if it could be seen.
    pub(crate) code: Option<i32>,
    pub(crate) granted_at: Option<Duration>,
    /// Processes of the command that were alive after another process had been granted the lease.
    pub(crate) alive_at_grant: Vec<String>,
    /// The same after the wrapper had left and ended.
    pub(crate) alive_at_end: Vec<String>,
    /// Processes of the command and watchdogs that were alive long after the end.
    pub(crate) left: Vec<String>,
    /// Why the command did not go on.
    pub(crate) halted: Option<String>,
    /// What is wrong with the terminal.
    pub(crate) terminal: Vec<String>,
    /// What was wrong on the way, such as an unanswered question.
    pub(crate) notes: Vec<(Rule, String)>,
    /// By how much the machine was late from the request to end to the end; the limit is longer by it.
    pub(crate) late_end: Duration,
    /// The same from the end, or the event, to the grant.
    pub(crate) late_grant: Duration,
}

/// The broken rules.
pub(crate) fn judge(expected: &Expected, seen: &Seen) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut fail = |rule, text: String| failures.push(Failure { rule, text });
    if let Some(why) = &seen.not_begun {
        fail(Rule::Ends, format!("expected a running command, saw: {why}"));
    }
    if !seen.alive_at_grant.is_empty() {
        let alive = seen.alive_at_grant.join(", ");
        fail(
            Rule::OneHolder,
            format!("another process was granted the lease, and alive were: {alive}"),
        );
    }
    if expected.leaves && !seen.alive_at_end.is_empty() {
        let alive = seen.alive_at_end.join(", ");
        fail(Rule::OneHolder, format!("the member had left, and alive were: {alive}"));
    }
    if seen.not_begun.is_none() {
        if let Some(text) = unended(expected, seen) {
            fail(Rule::Ends, text);
        }
        if let Some(text) = unfreed(expected, seen) {
            fail(Rule::Frees, text);
        }
    }
    for (rule, note) in &seen.notes {
        fail(*rule, note.clone());
    }
    if !seen.left.is_empty() {
        fail(Rule::LeavesNothing, format!("still alive: {}", seen.left.join(", ")));
    }
    if expected.restores_terminal && !seen.terminal.is_empty() {
        fail(Rule::Terminal, seen.terminal.join(", "));
    }
    failures
}

fn unended(expected: &Expected, seen: &Seen) -> Option<String> {
    if let (After::GoesOn, Some(halted)) = (expected.after, &seen.halted) {
        return Some(format!("expected that the command goes on, saw: {halted}"));
    }
    let limit = expected.within + seen.late_end;
    let Some(ended) = seen.ended_at else {
        return Some(format!("expected an end within {limit:.1?}, saw none"));
    };
    let took = ended.saturating_sub(seen.asked_at);
    if took > limit {
        return Some(format!("expected an end within {limit:.1?}, saw one after {took:.1?}"));
    }
    let code = seen.code?;
    if !expected.codes.is_empty() && !expected.codes.contains(&code) {
        let codes: Vec<String> = expected.codes.iter().map(ToString::to_string).collect();
        return Some(format!("expected exit code {}, saw {code}", codes.join(" or ")));
    }
    None
}

fn unfreed(expected: &Expected, seen: &Seen) -> Option<String> {
    let (from, limit, what) = match expected.frees {
        Frees::No => return None,
        // An end that did not come is a failure of its own.
        Frees::AfterEnd(limit) => (seen.ended_at?, limit, "the end"),
        Frees::AfterEvent(limit) => (seen.event_at, limit, "the event"),
    };
    let limit = limit + seen.late_grant;
    match seen.granted_at {
        Some(at) if at <= from + limit => None,
        Some(at) => {
            let took = at.saturating_sub(from);
            Some(format!(
                "expected a free lease within {limit:.1?} of {what}, saw it after {took:.1?}"
            ))
        }
        None => Some(format!("expected a free lease within {limit:.1?} of {what}, saw none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::{GRACE, TTL};

    const SECOND: Duration = Duration::from_secs(1);

    fn expected(after: After, codes: &[i32]) -> Expected {
        Expected {
            after,
            codes: codes.to_vec(),
            within: GRACE + SECOND,
            frees: Frees::AfterEnd(SECOND),
            leaves: true,
            restores_terminal: true,
        }
    }

    fn right() -> Seen {
        Seen {
            event_at: SECOND,
            asked_at: SECOND,
            ended_at: Some(2 * SECOND),
            code: Some(0),
            granted_at: Some(2 * SECOND),
            ..Seen::default()
        }
    }

    #[track_caller]
    fn breaks(seen: &Seen, expected: &Expected, rules: &[Rule]) {
        let found: Vec<Rule> = judge(expected, seen).iter().map(|failure| failure.rule).collect();
        assert_eq!(found, rules, "{seen:?}");
    }

    #[test]
    fn a_right_end_breaks_no_rule() {
        breaks(&right(), &expected(After::Ends, &[0]), &[]);
    }

    #[test]
    fn each_rule_can_be_broken() {
        let exits = expected(After::Ends, &[0]);
        let alive = || vec!["sleep 7".to_owned()];
        for (change, rule) in [
            (
                &(|seen: &mut Seen| seen.alive_at_grant = alive()) as &dyn Fn(&mut Seen),
                Rule::OneHolder,
            ),
            (&|seen| seen.alive_at_end = alive(), Rule::OneHolder),
            (&|seen| seen.code = Some(1), Rule::Ends),
            (&|seen| seen.ended_at = None, Rule::Ends),
            (&|seen| seen.asked_at = Duration::ZERO, Rule::Ends),
            (&|seen| seen.granted_at = Some(2 * SECOND + TTL), Rule::Frees),
            (&|seen| seen.granted_at = None, Rule::Frees),
            (&|seen| seen.left = alive(), Rule::LeavesNothing),
            (&|seen| seen.terminal = alive(), Rule::Terminal),
            (&|seen| seen.not_begun = Some("exit code 125".to_owned()), Rule::Ends),
        ] {
            let mut seen = right();
            change(&mut seen);
            breaks(&seen, &exits, &[rule]);
        }
    }

    #[test]
    fn a_late_machine_extends_limits_and_excuses_no_second_holder() {
        let exits = expected(After::Ends, &[0]);
        let mut seen = right();
        seen.ended_at = Some(4 * SECOND);
        seen.granted_at = Some(6 * SECOND);
        breaks(&seen, &exits, &[Rule::Ends, Rule::Frees]);
        seen.late_end = 2 * SECOND;
        breaks(&seen, &exits, &[Rule::Frees]);
        seen.late_grant = 2 * SECOND;
        breaks(&seen, &exits, &[]);
        seen.alive_at_grant = vec!["sleep 7".to_owned()];
        breaks(&seen, &exits, &[Rule::OneHolder]);
    }

    #[test]
    fn a_command_that_must_go_on_may_not_halt() {
        let mut seen = right();
        seen.halted = Some("it ended".to_owned());
        breaks(&seen, &expected(After::GoesOn, &[0]), &[Rule::Ends]);
        breaks(&seen, &expected(After::EndsOrGoesOn, &[0]), &[]);
    }
}
