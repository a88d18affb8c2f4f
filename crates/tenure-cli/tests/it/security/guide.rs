//! The commands of `docs/security.md`, run as they stand there.

use std::process::Command;

use tenure_testkit::port::Port;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");

fn script(guide: &str) -> String {
    let blocks = guide.split("```sh\n").skip(1);
    blocks
        .filter_map(|block| block.split_once("```"))
        .map(|(code, _)| code)
        .collect()
}

#[test]
fn guide_commands_work() {
    let guide = std::fs::read_to_string(GUIDE).unwrap();
    let reserved = [Port::reserve(), Port::reserve()];
    let ports = reserved.each_ref().map(|port| port.number().to_string());
    let script = script(&guide).replace("7717", &ports[0]).replace("7718", &ports[1]);
    assert!(
        script.contains("tenure token new") && script.contains("tls_ca"),
        "{script}"
    );
    let dir = tempfile::tempdir().unwrap();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    // Whatever it started goes down with it.
    let whole = format!("set -euo pipefail\ntrap 'kill $(jobs -p) 2> /dev/null' EXIT\n{script}");
    let mut bash = Command::new("timeout");
    bash.args(["60", "bash", "-c", &whole]).current_dir(dir.path());
    bash.env_clear().env("PATH", path).env("HOME", dir.path());
    bash.env("TENURE_STORE", format!("http://127.0.0.1:{}", ports[0]));
    let done = bash.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(done.status.success(), "{out}\n{err}");
    assert!(out.contains("ingest*") && out.contains("alice"), "{out}");
}
