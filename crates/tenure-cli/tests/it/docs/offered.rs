//! The commands that the dashboard offers to copy, run as they are offered.

use std::process::Command;

use serde_json::Value;
use tenure_testkit::have;

use crate::docs::{root, text};
use crate::support::{Daemon, run, tenure};

/// What stands between the quotes at the beginning of a text, and the rest behind them.
fn quoted(code: &str) -> Option<(String, &str)> {
    let quote = code.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut out = String::new();
    let mut chars = code.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => out.extend(chars.next().map(|(_, c)| c)),
            _ if c == quote => return Some((out, &code[at + 1..])),
            _ => out.push(c),
        }
    }
    None
}

/// A text of JavaScript that begins with a literal: literals and names joined by `+`, with something in place of each name.
fn joined(mut code: &str, origin: &str) -> String {
    let mut out = String::new();
    loop {
        if let Some((literal, rest)) = quoted(code) {
            out.push_str(&literal);
            code = rest;
        } else {
            let end = code
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
                .unwrap_or(code.len());
            let (name, rest) = code.split_at(end);
            out.push_str(if name == "location.origin" { origin } else { "g" });
            code = rest;
        }
        match code.strip_prefix(" + ") {
            Some(rest) => code = rest,
            None => return out,
        }
    }
}

/// The commands in the scripts of the page.
fn offered(origin: &str) -> Vec<String> {
    let mut found = Vec::new();
    let folder = std::fs::read_dir(root().join("crates/tenure-server/src/dashboard")).unwrap();
    for file in folder.map(|file| file.unwrap().file_name().into_string().unwrap()) {
        if !file.ends_with(".js") {
            continue;
        }
        for line in text(&format!("crates/tenure-server/src/dashboard/{file}")).lines() {
            let is_comment = ["//", "/*", "*"].iter().any(|mark| line.trim_start().starts_with(mark));
            let begins = ["tenure ", "curl "].iter().flat_map(|word| line.match_indices(word));
            for (at, word) in begins.filter(|_| !is_comment) {
                // The literal that it stands in, as a whole or at the end of a sentence.
                let Some(quote) = line[..at].rfind(['\'', '"']) else {
                    continue;
                };
                let Some((literal, _)) = quoted(&line[quote..]) else {
                    continue;
                };
                let lead = literal.find(word).unwrap_or_default();
                if lead == 0 || literal[..lead].ends_with(": ") {
                    found.push(joined(&line[quote..], origin)[lead..].to_owned());
                }
            }
        }
    }
    found
}

#[test]
fn every_command_that_the_dashboard_offers_works() {
    let Some(bash) = have("bash").or_skip() else { return };
    let daemon = Daemon::start(&["--store", "memory:"]);
    let commands = offered(&daemon.url());
    for word in ["join", "targets", "roster", "sweep", "why"] {
        let begin = format!("tenure {word} ");
        assert!(
            commands.iter().any(|command| command.starts_with(&begin)),
            "no {word} in {commands:#?}"
        );
    }
    // What the commands name is there.
    let own = daemon.join("g", "g", 60_000);
    for command in commands {
        let (mut line, mut shell) = (command.clone(), Command::new(&bash));
        if line.starts_with("curl ") {
            if have("curl").or_skip().is_none() {
                continue;
            }
            line = line.replacen("curl ", "curl -sSf ", 1).replace("TENURE", &own);
        }
        // A member for a moment in place of ten minutes; the binary by its place.
        let binary = format!("{} ", env!("CARGO_BIN_EXE_tenure"));
        line = line.replace("-- sleep 600", "-- true").replace("tenure ", &binary);
        for (name, value) in tenure().get_envs() {
            assert_eq!(value, None, "nothing is set");
            shell.env_remove(name);
        }
        // What stands in the words of a banner names no store.
        if line.starts_with(&binary) && !line.contains(" --store ") {
            shell.env("TENURE_STORE", daemon.url());
        }
        shell.args(["-c", &line]);
        let ran = run(shell);
        assert_eq!(ran.code, Some(0), "{command}: {}{}", ran.out, ran.err);
    }
    let (_, target) = daemon.http("GET", "/v1/groups/g/targets/endpoint-1", "");
    assert_eq!(target["target"], Value::from("endpoint-1"));
    let (_, ada) = daemon.http("GET", "/v1/rosters/g/providers/ada", "");
    assert_eq!(ada["capacity"], Value::from(2));
}
