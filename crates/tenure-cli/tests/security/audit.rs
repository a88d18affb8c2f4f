//! The log of what operators do.

use serde_json::Value;
use tenure_testkit::wait;

use crate::support::{Daemon, SOON};
use crate::tokens::{Tokens, with_token};

fn lines(daemon: &Daemon) -> Vec<Value> {
    let log = daemon.process.log();
    let json = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    json.filter(|line| line["target"] == "tenure::audit").collect()
}

#[test]
fn everything_an_operator_does_or_was_refused_is_one_line_with_a_name() {
    let tokens = Tokens::none();
    let operator = tokens.new_token("alice", &["--scope", "operate,read"]);
    let member = tokens.new_token("node-7", &["--scope", "beat"]);
    let daemon = Daemon::with(|command| {
        command
            .args(["--log", "warn,tenure::audit=info", "--log-format", "json", "--tokens"])
            .arg(tokens.file());
    });
    let secrets = [&operator, &member].map(|file| std::fs::read_to_string(file).unwrap().trim().to_owned());
    assert_eq!(with_token(&daemon, &operator, &["sweep", "--force"]).code, Some(0));
    assert_eq!(with_token(&daemon, &member, &["sweep"]).code, Some(1));
    assert_eq!(daemon.http("POST", "/v1/groups/g/sweep", "").0, 401);
    let expel = |token: &str| {
        let addr = daemon.addr;
        let shown = format!("Bearer {token}");
        let headers = [("authorization", shown.as_str())];
        let path = "/v1/groups/g/tenures/a@1?expel=true";
        tenure_testkit::http::request_with(addr, "DELETE", path, &headers, "")
            .unwrap()
            .0
    };
    assert_eq!((expel(&secrets[0]), expel(&secrets[1])), (204, 403));
    wait::until("five lines", SOON, || lines(&daemon).len() >= 5);
    let told: Vec<_> = lines(&daemon)
        .into_iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            assert!(text("from").starts_with("127.0.0.1:"), "{line}");
            (
                text("who"),
                text("path"),
                text("details"),
                text("outcome"),
                line["status"].as_u64().unwrap(),
            )
        })
        .collect();
    let line = |who: &str, path: &str, details: &str, outcome: &str, status| {
        (
            who.to_owned(),
            path.to_owned(),
            details.to_owned(),
            outcome.to_owned(),
            status,
        )
    };
    let (sweep, tenure) = ("/v1/groups/default/sweep", "/v1/groups/g/tenures/a@1");
    assert_eq!(
        told,
        [
            line("alice", sweep, "force", "done", 200),
            line("node-7", sweep, "", "refused", 403),
            line("-", "/v1/groups/g/sweep", "", "refused", 401),
            line("alice", tenure, "expel", "done", 204),
            line("node-7", tenure, "expel", "refused", 403),
        ]
    );
    for secret in secrets {
        assert!(!daemon.process.log().contains(&secret[4..]), "a token is in the log");
    }
}
