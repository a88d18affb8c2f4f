//! The guide to fencing is true: its commands are run, its Rust equals the rustdoc example, its story equals a test's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tenure_testkit::{have, postgres, valkey};

const GUIDE: &str = include_str!("../../../../../docs/guides/fencing.md");

/// The texts of the guide's blocks in one language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let parts = GUIDE.split(&begin).skip(1);
    parts.map(|part| part.split_once("```").unwrap().0).collect()
}

/// Compares the story of a test with the guide's, except for the tokens.
#[cfg(feature = "valkey")]
pub(crate) fn assert_story(story: &[String]) {
    let told = blocks("text")
        .into_iter()
        .find(|block| block.starts_with("a: acquired"))
        .unwrap();
    let told: Vec<String> = told.lines().map(str::to_owned).collect();
    assert_eq!(without_tokens(story), without_tokens(&told), "is the guide still true?");
}

/// Replaces each token by its order of appearance.
#[cfg(feature = "valkey")]
fn without_tokens(story: &[String]) -> Vec<String> {
    let mut names = std::collections::HashMap::new();
    let is_token = |word: &&str| word.len() == 16 && word.bytes().all(|b| b.is_ascii_digit());
    let name = |line: &String| {
        let mut line = line.clone();
        let words: Vec<String> = line
            .split([' ', ',', ';'])
            .filter(is_token)
            .map(str::to_owned)
            .collect();
        for word in words {
            let next = format!("<{}>", names.len());
            line = line.replace(&word, names.entry(word.clone()).or_insert(next));
        }
        line
    };
    story.iter().map(name).collect()
}

#[test]
fn guide_rust_equals_the_rustdoc_example() {
    let source = include_str!("../../../src/fence.rs");
    let shown = source
        .lines()
        .map(|line| line.trim_start_matches("/// ").trim_start_matches("///"));
    let shown: Vec<&str> = shown.filter(|line| !line.starts_with("# ")).collect();
    for block in blocks("rust") {
        assert!(shown.join("\n").contains(block.trim()), "{block}");
    }
}

#[test]
fn guide_commands_print_the_shown_output() {
    let Some(valkey_cli) = have("valkey-cli").or_skip() else {
        return;
    };
    let (Some(sql), Some(hot)) = (
        postgres::Server::start(),
        valkey::Server::start(valkey::Flavour::Valkey),
    ) else {
        return;
    };
    // On a terminal it shows the type of the answer; `--no-raw` makes it do so here.
    let programs = tempfile::tempdir().unwrap();
    let client = programs.path().join("valkey-cli");
    let script = format!(
        "#!/bin/sh\nexec {} --no-raw -p {} \"$@\"\n",
        valkey_cli.display(),
        hot.port()
    );
    fs::write(&client, script).unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
    let psql = sql.psql().get_program().to_owned();
    std::os::unix::fs::symlink(psql, programs.path().join("psql")).unwrap();

    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let run = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{command} 2>&1")]);
        shell.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        shell
            .env("PATH", &path)
            .env("PSQLRC", "/dev/null")
            .env("PGHOST", "127.0.0.1");
        shell
            .env("PGPORT", sql.port().to_string())
            .env("PGUSER", postgres::USER)
            .env("PGDATABASE", "postgres");
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    };
    let mut commands = 0;
    for block in blocks("console") {
        for step in format!("\n{block}").split("\n$ ").skip(1) {
            let (command, expected) = step.split_once('\n').unwrap_or((step, ""));
            assert_eq!(run(command).trim(), expected.trim(), "$ {command}");
            commands += 1;
        }
    }
    assert!(commands > 10, "{commands}");
}
