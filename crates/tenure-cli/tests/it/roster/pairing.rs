//! The example `pairing` against a daemon on its files: customers are served, and none by a provider without heartbeats.

use std::process::Command;

use crate::example::example;
use crate::support::{Daemon, run};

#[test]
fn customers_are_served_and_never_by_one_who_fell_silent() {
    let daemon = Daemon::start(&[]);
    let mut pairing = Command::new(example("pairing"));
    pairing.args(["--url", &daemon.url(), "--providers", "8", "--customers", "12"]);
    pairing.args(["--stale", "4s", "--for", "16s"]);
    let ran = run(pairing);
    for line in [
        "8 providers are online",
        "2 providers fall silent",
        "6 providers are online, ",
    ] {
        assert!(ran.out.contains(line), "{line:?} is not in {}", ran.out);
    }
    // A stall of the machine is an outage of the store, after which each provider has its whole time again.
    if daemon.process.log().contains("unsettled: every ttl restarts") {
        eprintln!("NOT TESTED: the machine stalled; {}", ran.out);
        return;
    }
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let none = "0 customers were sent to a provider that had been silent";
    assert!(ran.out.contains(none), "{}", ran.out);
}
