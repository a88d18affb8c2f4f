//! One Chromium for all tests of this binary; each test has a context of its own in it, with its own storage.

use std::fs;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use tenure_testkit::{Process, have, wait};

/// A browser takes its time to start on a busy machine.
const START: Duration = Duration::from_secs(90);

/// Its arguments. It runs without a sandbox because tests may run as root; it opens only our own page.
const FLAGS: &[&str] = &[
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-breakpad",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--remote-debugging-port=0",
];

#[derive(Debug)]
struct Chromium {
    /// The end of the test process ends it.
    _process: Process,
    address: String,
    path: String,
}

/// Where its DevTools listen: an address, and a path. `None`, said loudly, when it is not installed.
pub fn devtools() -> Option<(&'static str, &'static str)> {
    static CHROMIUM: OnceLock<Option<Chromium>> = OnceLock::new();
    let chromium = CHROMIUM.get_or_init(start).as_ref()?;
    Some((&chromium.address, &chromium.path))
}

fn start() -> Option<Chromium> {
    let program = have("chromium").or_skip()?;
    let process = Process::spawn("chromium", |dir| {
        let mut command = Command::new(program);
        let profile = dir.join("profile");
        command
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .env("HOME", dir);
        command
    });
    let process = process.expect("a process");
    // It writes down which port it took, and where on it the whole browser is spoken to.
    let file = process.dir().join("profile/DevToolsActivePort");
    let mut found = None;
    wait::until("chromium listens", START, || {
        assert!(process.is_running(), "chromium ended:\n{}", process.log_tail());
        let text = fs::read_to_string(&file).unwrap_or_default();
        found = text
            .split_once('\n')
            .filter(|(_, path)| !path.is_empty())
            .map(|(port, path)| (format!("127.0.0.1:{port}"), path.trim().to_owned()));
        found.is_some()
    });
    let (address, path) = found?;
    Some(Chromium {
        _process: process,
        address,
        path,
    })
}
