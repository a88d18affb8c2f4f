//! The view of the polled endpoint: one line per step of a poll, with the value of the old key at that moment.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_testkit::valkey::Server;

/// Records a step: its time, target, instance, token, whether it starts or ends a poll, and the value of the old key.
pub(crate) const RECORD: &str = "local t = redis.call('TIME') \
    return redis.call('RPUSH', KEYS[2], string.format('%.0f', t[1] * 1000000 + t[2]) .. ' ' .. ARGV[1] .. ' ' .. ARGV[2] \
    .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. (redis.call('GET', KEYS[1]) or '-'))";

/// One step of a poll.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    at: Duration,
    target: String,
    pub(crate) instance: String,
    token: u64,
    begins: bool,
    held_by: String,
}

/// All steps so far, in their order.
pub(crate) fn read(server: &Server) -> Vec<Step> {
    let lines = server.cli(&["LRANGE", "polls", "0", "-1"]).unwrap().texts();
    let steps = lines.iter().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [at, target, instance, token, step, held_by] = words[..] else {
            panic!("{line}")
        };
        Step {
            at: Duration::from_micros(at.parse().unwrap()),
            target: target.to_owned(),
            instance: instance.to_owned(),
            token: token.parse().unwrap(),
            begins: step == "begin",
            held_by: held_by.to_owned(),
        }
    });
    steps.collect()
}

/// How many targets each instance polled recently.
pub(crate) fn lately(server: &Server, within: Duration) -> BTreeMap<String, usize> {
    let steps = read(server);
    let end = steps.last().map_or(Duration::ZERO, |step| step.at);
    let mut seen = BTreeMap::<String, std::collections::BTreeSet<String>>::new();
    for step in steps.iter().rev().take_while(|step| end - step.at <= within) {
        seen.entry(step.instance.clone())
            .or_default()
            .insert(step.target.clone());
    }
    seen.into_iter()
        .map(|(instance, targets)| (instance, targets.len()))
        .collect()
}

/// All faults: polls without the old key, concurrent polls, older tokens after newer ones, and targets without a poll
/// for longer than `gap`. Polls of `killed` may lack an end.
pub(crate) fn faults(steps: &[Step], killed: &str, gap: Duration) -> Vec<String> {
    let mut faults = Vec::new();
    let mut targets = BTreeMap::<&str, Vec<&Step>>::new();
    for step in steps {
        targets.entry(&step.target).or_default().push(step);
        // The old fleet uses its id as the value, the new nodes their tenure and a number.
        let own = step.held_by == step.instance || step.held_by.starts_with(&format!("{}#", step.instance));
        if !own {
            faults.push(format!("polled without the old key: {step:?}"));
        }
    }
    for steps in targets.values() {
        for pair in steps.windows(2) {
            let (one, two) = (pair[0], pair[1]);
            let is_cut = one.begins && one.instance != two.instance && one.instance != killed;
            if is_cut || !one.begins && !two.begins {
                faults.push(format!("concurrent polls: {one:?} {two:?}"));
            }
            if one.token > two.token && two.token > 0 {
                faults.push(format!("an older token: {one:?} {two:?}"));
            }
            if two.at - one.at > gap {
                faults.push(format!("no poll for {:?}: {one:?} {two:?}", two.at - one.at));
            }
        }
    }
    faults
}
