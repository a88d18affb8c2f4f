//! A node: one `tenure run`, whose status is in a file.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use serde_json::Value;
use tenure_testkit::{Process, wait};

use crate::run::PATIENCE;
use crate::run::beats::{self, Beats};
use crate::support::spawn;

/// `tenure run` with these arguments and a command that beats, in a directory of its own.
#[track_caller]
pub(crate) fn node(who: &str, args: &[&str], beats: &Beats) -> Process {
    running(who, args, &beats::command(), |command| beats.arm(command, who))
}

/// `tenure run` with these arguments and this command.
#[track_caller]
pub(crate) fn running(who: &str, args: &[&str], child: &[OsString], set: impl FnOnce(&mut Command)) -> Process {
    spawn(who, |command, _| {
        command.arg("run").args(args).args(["--status-file", "status.json"]);
        command.arg("--").args(child);
        // Other processes of the machine do not matter.
        for name in ["CONSUL_HTTP_ADDR", "CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE"] {
            command.env_remove(name);
        }
        set(command);
    })
}

/// The arguments of a node that is always the primary of `music`, and of more.
pub(crate) fn always<'a>(catalog: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let service = ["--service", "music", "--port", "4533", "--catalog", catalog];
    [&["--leader", "always"], &service[..], more].concat()
}

/// The arguments of a node that looks at a mount and at nothing else, and of more.
pub(crate) fn looking_at<'a>(leader: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let leader = ["--leader", leader, "--litefs-events", "off"];
    [&leader[..], &["--stable-window", "300ms"], more].concat()
}

/// What it says about itself; nothing yet, right after its start.
pub(crate) fn status(node: &Process) -> Value {
    let text = fs::read_to_string(node.dir().join("status.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Waits until it says about itself what is wanted; answers all that it said then.
#[track_caller]
pub(crate) fn until(node: &Process, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let mut look = || {
        last = status(node);
        is_so(&last)
    };
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wait::until(what, PATIENCE, &mut look)));
    assert!(seen.is_ok(), "{what}: {last}\n{}", node.log_tail());
    last
}

#[track_caller]
pub(crate) fn is(node: &Process, field: &str, wanted: &str) {
    until(node, &format!("{field} is {wanted}"), |status| status[field] == wanted);
}

/// Waits until it is in doubt, and says why in words that contain these.
#[track_caller]
pub(crate) fn doubts(node: &Process, words: &str) {
    until(node, words, |status| {
        status["reason"].as_str().is_some_and(|why| why.contains(words))
    });
}

/// A word of the log and one that came after it.
#[track_caller]
pub(crate) fn in_order(node: &Process, parts: &[&str]) {
    let log = node.log();
    let mut rest = log.as_str();
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else {
            panic!("no {part:?} in its place in:\n{log}");
        };
        rest = after;
    }
}
