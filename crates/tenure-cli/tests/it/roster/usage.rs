//! Wrong usage of `tenure roster`.

use crate::support::{run, tenure};

#[test]
fn usage_errors_come_before_any_request() {
    for (args, must_say) in [
        (&["online"][..], "<PROVIDER>"),
        (&["put", "a b"], "the provider \"a b\" has ' ' at position 2"),
        (
            &["put", "a", "--capacity", "many"],
            "expected a whole number, or `default`",
        ),
        (&["put", "a", "--capacity", "100001"], "above the largest, 100000"),
        (
            &["list", "--state", "gone"],
            "there are online, available, busy, offline, deactivated",
        ),
        (&["available", "--limit", "0"], "0 is not in 1.."),
        (&["move", "e"], "nothing to change"),
        (
            &["move", "e", "--status", "done"],
            "there are pending, active, ended, expired, cancelled",
        ),
        (
            &["move", "e", "--expires-in", "5s", "--never-expires"],
            "cannot be used with",
        ),
        (&["set"], "nothing to change"),
        (&["set", "--stale-after", "10ms"], "out of range: use 1s to 24h"),
        (&["set", "--snapshot", "soon"], "is not a duration"),
        (&["list", "--roster", "a/b"], "'/' at position 2"),
        (&["fly"], "unrecognized subcommand"),
    ] {
        let mut command = tenure();
        command.arg("roster").args(args);
        let ran = run(command);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(must_say), "{args:?}: {}", ran.err);
    }
}
