//! Tokens: made by a command, known by the daemon, shown by every other command.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tenure_testkit::wait;

use crate::support::{Daemon, Ran, SOON, run, tenure};

/// A directory with tokens, made by the command itself.
pub(crate) struct Tokens(TempDir);

impl Tokens {
    pub(crate) fn none() -> Self {
        let tokens = Self(TempDir::new().unwrap());
        std::fs::write(tokens.file(), "").unwrap();
        tokens
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.path().join("tokens.toml")
    }

    /// Makes one; the file that it is in.
    #[track_caller]
    pub(crate) fn new_token(&self, name: &str, args: &[&str]) -> PathBuf {
        let out = self.0.path().join(format!("{name}.token"));
        let mut command = tenure();
        command.args(["token", "new", "--name", name]).args(args);
        command.arg("--add").arg(self.file()).arg("--out").arg(&out);
        let made = run(command);
        assert_eq!(made.code, Some(0), "{}", made.err);
        out
    }
}

/// Runs a command with a token.
#[track_caller]
pub(crate) fn with_token(daemon: &Daemon, token: &Path, args: &[&str]) -> Ran {
    let mut command = daemon.command(args);
    command.env("TENURE_TOKEN_FILE", token);
    run(command)
}

pub(crate) fn guarded(tokens: &Tokens) -> Daemon {
    Daemon::with(|command| {
        command.arg("--tokens").arg(tokens.file());
    })
}

#[test]
fn new_token_is_printed_once_and_its_file_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let mut command = tenure();
    command.args([
        "token",
        "new",
        "--name",
        "a",
        "--scope",
        "read,beat",
        "--group",
        "x*",
        "--expires-in",
        "90d",
    ]);
    let made = run(command);
    let secret = made.out.lines().find(|line| line.starts_with("tnr_")).unwrap();
    assert_eq!(secret.len(), 68);
    let entry = made.out.split_once("[[token]]").unwrap().1;
    assert!(
        entry.contains("scopes = [\"read\", \"beat\"]") && entry.contains("groups = [\"x*\"]"),
        "{entry}"
    );
    assert!(!entry.contains(secret));

    let tokens = Tokens::none();
    let out = tokens.new_token("b", &["--scope", "read"]);
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(&out).unwrap();
    assert!(!std::fs::read_to_string(tokens.file()).unwrap().contains(secret.trim()));
    let mut check = tenure();
    check.args(["token", "check"]).arg(tokens.file());
    let checked = run(check);
    assert!(checked.out.contains("b     read"), "{}", checked.out);
    for (args, must_say) in [
        (&["--name", "b", "--scope", "read"][..], "already"),
        (&["--name", "c", "--scope", "admin"], "read, beat, write, operate"),
        (&["--name", "c d", "--scope", "read"], "the name is not"),
        (
            &["--name", "c", "--scope", "read", "--group", "*x"],
            "in groups, number 1",
        ),
    ] {
        let mut command = tenure();
        command
            .args(["token", "new"])
            .args(args)
            .arg("--add")
            .arg(tokens.file());
        let refused = run(command);
        assert_eq!(refused.code, Some(2), "{args:?}");
        assert!(
            refused.err.contains(must_say) && !refused.out.contains("tnr_"),
            "{}",
            refused.err
        );
    }
}

/// `token new --name NAME --scope read --add FILE`.
fn add(name: &str, file: &Path) -> Command {
    let mut command = tenure();
    command
        .args(["token", "new", "--name", name, "--scope", "read", "--add"])
        .arg(file);
    command
}

/// Who owns a file, and who may do what with it.
fn owner(file: &Path) -> (u32, u32, u32) {
    let found = std::fs::metadata(file).unwrap();
    (found.uid(), found.gid(), found.mode() & 0o777)
}

#[test]
fn a_file_of_tokens_keeps_its_owner_or_is_not_changed() {
    // Only root can change the owner of a file.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let tokens = Tokens::none();
    tokens.new_token("a", &["--scope", "read"]);
    chown(tokens.file(), Some(65_534), Some(65_534)).unwrap();
    tokens.new_token("b", &["--scope", "read"]);
    assert_eq!(owner(&tokens.file()), (65_534, 65_534, 0o644));

    let Some(setpriv) = tenure_testkit::have("setpriv").or_skip() else {
        return;
    };
    let before = std::fs::read_to_string(tokens.file()).unwrap();
    let add = add("c", &tokens.file());
    let mut without_the_right = Command::new(setpriv);
    without_the_right.args(["--bounding-set=-chown", "--inh-caps=-chown"]);
    without_the_right.arg(add.get_program()).args(add.get_args());
    let refused = run(without_the_right);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("of the user 65534"), "{}", refused.err);
    assert!(!refused.out.contains("tnr_"), "{}", refused.out);
    assert_eq!(std::fs::read_to_string(tokens.file()).unwrap(), before);
    assert_eq!(owner(&tokens.file()), (65_534, 65_534, 0o644));
    let left = std::fs::read_dir(tokens.file().parent().unwrap()).unwrap();
    assert_eq!(left.count(), 3, "the file and two tokens");
}

#[test]
fn concurrent_additions_lose_no_entry() {
    const MANY: usize = 12;
    let tokens = Tokens::none();
    let added = (0..MANY).map(|nth| {
        let mut command = add(&format!("t{nth}"), &tokens.file());
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    });
    let added: Vec<_> = added.collect();
    for mut one in added {
        assert!(one.wait().unwrap().success());
    }
    let mut check = tenure();
    check.args(["token", "check", "--json"]).arg(tokens.file());
    assert_eq!(run(check).json()["tokens"].as_array().unwrap().len(), MANY);
}

#[test]
fn failed_token_write_leaves_neither_secret_nor_entry() {
    let tokens = Tokens::none();
    let taken = tokens.new_token("a", &["--scope", "read"]);
    let before = std::fs::read_to_string(tokens.file()).unwrap();
    let secret = std::fs::read_to_string(&taken).unwrap();
    let mut command = add("b", &tokens.file());
    command.arg("--out").arg(&taken);
    let refused = run(command);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert_eq!(std::fs::read_to_string(tokens.file()).unwrap(), before);
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), secret);

    let new = taken.with_file_name("new.token");
    for (mut command, code) in [
        (add("a", &tokens.file()), 2),
        (add("c", Path::new("/nowhere/tokens.toml")), 1),
    ] {
        command.arg("--out").arg(&new);
        let refused = run(command);
        assert_eq!(refused.code, Some(code), "{}", refused.err);
        assert!(!new.exists(), "a token that nobody knows is left");
    }
    tokens.new_token("b", &["--scope", "read"]);
}

#[test]
fn a_command_that_is_wrapped_does_not_get_the_token_itself() {
    let tokens = Tokens::none();
    let member = tokens.new_token("member", &["--scope", "beat"]);
    let daemon = guarded(&tokens);
    let told = |args: &[&str], variable: &str, value: &std::ffi::OsStr| {
        let mut command = daemon.command(args);
        command.env(variable, value);
        let wrapped = run(command);
        assert_eq!(wrapped.code, Some(0), "{}", wrapped.err);
        assert!(wrapped.out.contains("PATH="), "{}", wrapped.out);
        wrapped.out
    };
    let secret = std::fs::read_to_string(&member).unwrap();
    for args in [
        &["join", "--group", "g", "--", "env"][..],
        &["run", "--leader", "always", "--", "env"],
    ] {
        let out = told(args, "TENURE_TOKEN", secret.trim().as_ref());
        assert!(!out.contains("TENURE_TOKEN") && !out.contains(secret.trim()), "{out}");
        let out = told(args, "TENURE_TOKEN_FILE", member.as_os_str());
        let way = format!("TENURE_TOKEN_FILE={}", member.display());
        assert!(out.contains(&way), "{out}");
    }
}

#[test]
fn every_command_sends_a_token_or_asks_for_one() {
    let tokens = Tokens::none();
    let reader = tokens.new_token("reader", &["--scope", "read"]);
    let member = tokens.new_token("member", &["--scope", "beat"]);
    let daemon = guarded(&tokens);
    assert_eq!(with_token(&daemon, &member, &["join", "--", "true"]).code, Some(0));
    for args in [
        &["status"][..],
        &["members"],
        &["leases"],
        &["targets"],
        &["sessions"],
        &["events"],
        &["why", "a"],
        &["roster", "names"],
        &["doctor"],
    ] {
        let refused = daemon.run(args);
        assert_ne!(refused.code, Some(0), "{args:?}");
        let said = format!("{}{}", refused.out, refused.err);
        assert!(said.contains("--token-file"), "{args:?}: {said}");
        let shown = with_token(&daemon, &reader, args);
        assert!(!shown.err.contains("--token-file"), "{args:?}: {}", shown.err);
    }
    let status = with_token(&daemon, &reader, &["status", "--json"]).json();
    assert_eq!(status["access"]["tokens"], 2);
    let forbidden = with_token(&daemon, &reader, &["sweep"]);
    assert_eq!(forbidden.code, Some(1));
    let said = &forbidden.err;
    assert!(
        said.contains("the token reader") && said.contains("`operate`"),
        "{said}"
    );

    // The other two ways to show it.
    let mut by_flag = daemon.command(&["status", "--json", "--token-file"]);
    by_flag.arg(&reader);
    run(by_flag).json();
    let mut by_value = daemon.command(&["status", "--json"]);
    by_value.env("TENURE_TOKEN", std::fs::read_to_string(&reader).unwrap().trim());
    run(by_value).json();
    let gone = with_token(&daemon, Path::new("/nowhere/token"), &["status"]);
    assert_eq!(gone.code, Some(2), "{}", gone.err);
    assert!(gone.err.contains("/nowhere/token"), "{}", gone.err);
}

#[test]
fn a_member_needs_no_more_than_beat_and_no_other_group() {
    let tokens = Tokens::none();
    let member = tokens.new_token("member", &["--scope", "beat", "--group", "g"]);
    let daemon = guarded(&tokens);
    let join = |group: &str| {
        let mut command = daemon.command(&["join", "--group", group, "--member", "m", "--ttl", "9s", "--"]);
        // For longer than a third of its ttl, after which it beats.
        command.args(["sh", "-c", "sleep 4; test -n \"$TENURE_ID\""]);
        command.env("TENURE_TOKEN_FILE", &member);
        run(command)
    };
    let joined = join("g");
    assert_eq!(joined.code, Some(0), "{}", joined.err);
    assert!(joined.err.is_empty(), "its beats were not let in: {}", joined.err);
    let elsewhere = join("h");
    assert_eq!(elsewhere.code, Some(1));
    assert!(
        elsewhere.err.contains("not valid for the group \"h\""),
        "{}",
        elsewhere.err
    );
}

#[test]
fn hup_reloads_tokens_and_keeps_the_last_valid_file() {
    let tokens = Tokens::none();
    let daemon = guarded(&tokens);
    let late = tokens.new_token("late", &["--scope", "read"]);
    daemon.process.signal(tenure_testkit::server::Signal::HUP).unwrap();
    let known = || with_token(&daemon, &late, &["status"]).code == Some(0);
    wait::until("the new token is known", SOON, known);
    assert!(daemon.process.is_running() && daemon.process.log().contains("token file reloaded"));

    std::fs::write(tokens.file(), "[[token]]\nname = 1\n").unwrap();
    let mut command = tenure();
    command
        .args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--tokens"])
        .arg(tokens.file());
    let refused = run(command);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(
        refused.err.contains("tokens.toml") && refused.err.contains("name is not text"),
        "{}",
        refused.err
    );
    let mut command = tenure();
    command.args(["serve", "--token-file", "x"]);
    assert!(run(command).err.contains("--tokens"));
}
