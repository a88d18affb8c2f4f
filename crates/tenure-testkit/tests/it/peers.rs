//! The servers that the benchmarks compare with, and Consul.

use std::time::Duration;

use tenure_testkit::consul::Agent;
use tenure_testkit::etcd::Etcd;
use tenure_testkit::{Availability, have, http};

/// Tenure's own tests do not need these servers, so they are optional even in CI.
fn lacks(program: &str) -> bool {
    let lacks = matches!(have(program), Availability::Missing { .. });
    if lacks {
        eprintln!("SKIPPED: `{program}` is not installed; `cargo xtask bench` installs it");
    }
    lacks
}

#[test]
fn two_consul_agents_run_side_by_side() {
    if lacks("consul") {
        return;
    }
    let (Some(one), Some(other)) = (Agent::start(), Agent::start()) else {
        return;
    };
    assert_eq!(one.http("PUT", "/v1/kv/key", "value").unwrap().0, 200);
    assert_eq!(
        one.http("GET", "/v1/kv/key?raw", "").unwrap(),
        (200, "value".to_owned())
    );
    assert_eq!(other.http("GET", "/v1/kv/key?raw", "").unwrap().0, 404);
    one.restart_empty();
    assert_eq!(one.http("GET", "/v1/kv/key?raw", "").unwrap().0, 404);
}

#[test]
fn etcd_keeps_its_data_over_a_restart() {
    if lacks("etcd") {
        return;
    }
    let Some(etcd) = Etcd::start() else { return };
    // The keys and values of its JSON gateway are base64.
    let put = etcd
        .http("POST", "/v3/kv/put", r#"{"key": "a2V5", "value": "dmFsdWU="}"#)
        .unwrap();
    assert_eq!(put.0, 200, "{}", put.1);
    etcd.restart_with_data();
    let (status, found) = etcd.http("POST", "/v3/kv/range", r#"{"key": "a2V5"}"#).unwrap();
    assert!(status == 200 && found.contains("dmFsdWU="), "{status} {found}");
    let addr = etcd.addr();
    etcd.process().terminate(Duration::from_secs(30)).unwrap();
    assert!(http::get(addr, "/health").is_err());
}
