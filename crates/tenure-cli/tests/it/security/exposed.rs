//! Files and directories that other users can read or change: the daemon serves, and says so.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tenure_testkit::wait;

use crate::security::tokens::{Tokens, with_token};
use crate::support::{Daemon, SOON, said};

fn set_mode(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_and_directories_open_to_all_users_are_warned_of() {
    let tokens = Tokens::none();
    let admin = tokens.new_token("admin", &["--scope", "read"]);
    let data = tempfile::tempdir().unwrap();
    for (mode, of_directory, warned) in [
        (0o600, 0o700, &[][..]),
        (0o640, 0o755, &[]),
        (0o644, 0o700, &["can read"]),
        (0o666, 0o700, &["can change"]),
        (0o600, 0o777, &["can change"]),
        (0o666, 0o777, &["can change", "can change"]),
    ] {
        set_mode(&tokens.file(), mode);
        set_mode(data.path(), of_directory);
        let daemon = Daemon::with(|command| {
            command.arg("--tokens").arg(tokens.file());
            command.arg("--data-dir").arg(data.path());
        });
        said(&daemon.process, "serving");
        let log = daemon.process.log();
        let lines: Vec<_> = log
            .lines()
            .filter(|line| line.contains("every user of this machine"))
            .collect();
        assert_eq!(lines.len(), warned.len(), "{mode:o} {of_directory:o}: {lines:?}");
        assert!(
            lines
                .iter()
                .zip(warned)
                .all(|(line, can)| line.contains("WARN") && line.contains(can)),
            "{lines:?}"
        );
        let doctor = with_token(&daemon, &admin, &["doctor"]);
        let found = doctor.out.matches("every user of this machine").count();
        assert_eq!(found, warned.len(), "{}", doctor.out);
    }
    set_mode(data.path(), 0o700);
}

/// Waits for an end of the file without reading more than the head of the stream.
#[test]
fn idle_stream_of_a_removed_token_ends_with_the_reload() {
    use std::io::{Read, Write};
    let tokens = Tokens::none();
    let reader = tokens.new_token("reader", &["--scope", "read"]);
    let daemon = crate::security::tokens::guarded(&tokens);
    let secret = std::fs::read_to_string(reader).unwrap();
    let request = format!(
        "GET /v1/groups/quiet/events HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nAuthorization: Bearer {}\r\n\r\n",
        daemon.addr,
        secret.trim()
    );
    let mut stream = std::net::TcpStream::connect(daemon.addr).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = String::new();
    let mut chunk = [0; 1024];
    wait::until("the stream has begun", SOON, || {
        let read = stream.read(&mut chunk).unwrap();
        head.push_str(&String::from_utf8_lossy(&chunk[..read]));
        head.contains(": here")
    });
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");

    std::fs::write(tokens.file(), "").unwrap();
    daemon.process.signal(rustix::process::Signal::HUP).unwrap();
    said(&daemon.process, "token file reloaded");
    let (reloaded, lateness) = (std::time::Instant::now(), crate::support::Lateness::watch());
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    let took = reloaded.elapsed();
    assert!(took < std::time::Duration::from_secs(2) + lateness.so_far(), "{took:?}");
    assert!(!rest.contains("still here"), "{rest}");
}
