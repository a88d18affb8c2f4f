//! Completions and manual pages, and what the help says.

use std::process::{Command, Stdio};

use crate::support::{Ran, run, tenure};

fn ran(args: &[&str]) -> Ran {
    let mut command = tenure();
    command.args(args);
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.err);
    ran
}

#[test]
fn completions_are_scripts_that_the_shell_can_read() {
    let script = ran(&["completions", "bash"]).out;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &script).unwrap();
    let read = Command::new("bash").arg("-n").arg(file.path()).output().unwrap();
    assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
    // What it is for: a word that is begun.
    let ask = format!(
        "source {}; COMP_WORDS=(tenure dem); COMP_CWORD=1; _tenure tenure dem tenure; echo \"${{COMPREPLY[@]}}\"",
        file.path().display()
    );
    let asked = Command::new("bash")
        .args(["-c", &ask])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = String::from_utf8(asked.stdout).unwrap();
    assert!(words.split_whitespace().any(|word| word == "demo"), "{words}");
    for shell in ["zsh", "fish"] {
        let script = ran(&["completions", shell]).out;
        assert!(script.contains("doctor") && script.contains("data-dir"), "{shell}");
    }
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("man1");
    ran(&["man", path.to_str().unwrap()]);
    for page in ["tenure.1", "tenure-serve.1", "tenure-config-explain.1", "tenure-demo.1"] {
        let text = std::fs::read_to_string(path.join(page)).unwrap();
        assert!(
            text.contains("\n.TH ") && text.contains("\n.SH NAME\n"),
            "{page}: {text}"
        );
        // Groff reports what it cannot parse; not every machine has it.
        let Ok(read) = Command::new("groff")
            .args(["-Kutf8", "-man", "-Tutf8", "-ww", "-z"])
            .arg(path.join(page))
            .output()
        else {
            continue;
        };
        assert!(
            read.stderr.is_empty(),
            "{page}: {}",
            String::from_utf8_lossy(&read.stderr)
        );
    }
    assert!(
        !path.join("tenure-demo-part.1").exists(),
        "what is for this program alone has no page"
    );
    assert!(ran(&["man"]).out.contains("tenure"));
}

/// A first-time reader finds the purpose of a command in one line, and an example.
#[test]
fn the_help_is_short_and_has_examples() {
    let help = ran(&["--help"]).out;
    let is_listed = |line: &&str| line.starts_with("  ") && !line.starts_with("   ") && !line.starts_with("  -");
    let commands: Vec<&str> = help
        .lines()
        .filter(is_listed)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 23 && commands[..2] == ["demo", "serve"], "{help}");
    assert!(!help.contains("launch") && !help.contains("demo-part"), "{help}");
    for command in [
        "serve", "join", "run", "doctor", "bench", "demo", "events", "why", "status", "sweep",
    ] {
        let help = ran(&[command, "--help"]).out;
        assert!(
            help.contains("Examples:\n  tenure ") || help.contains("Examples:\n  TENURE_"),
            "{command}: {help}"
        );
    }
}
