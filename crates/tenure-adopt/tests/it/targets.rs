//! Targets that other programs store as keys.

use std::time::Duration;

use tenure_adopt::ForeignReader;
use tenure_adopt::KeyPattern;
use tenure_core::error::ErrorKind;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_valkey::ConnectionOptions;

use crate::world::connected;

macro_rules! on_both {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            #[tokio::test]
            async fn valkey() {
                super::$test(tenure_testkit::valkey::Flavour::Valkey).await;
            }
            #[tokio::test]
            async fn redis() {
                super::$test(tenure_testkit::valkey::Flavour::Redis).await;
            }
        }
    )*};
}

on_both! {
    targets_match_the_pattern_and_a_field_pauses,
    json_field_pauses_and_unclear_targets_are_paused,
    disconnected_sessions_are_not_targets,
    large_keyspace_is_read_completely,
    large_texts_and_fields_are_read_in_small_replies,
    denied_scan_is_an_error_and_not_an_empty_list,
}

fn server(flavour: Flavour) -> Server {
    Server::with(flavour, &[]).expect("these tests need their servers")
}

async fn reader(url: &str, pattern: &str, paused_field: Option<&str>) -> ForeignReader {
    // Tolerates a short stall of the machine.
    let patient = ConnectionOptions {
        request_timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(10),
        ..ConnectionOptions::default()
    };
    ForeignReader::new(
        connected(url, patient).await,
        KeyPattern::parse(pattern).unwrap(),
        paused_field.map(str::to_owned),
    )
}

async fn targets_match_the_pattern_and_a_field_pauses(flavour: Flavour) {
    let server = server(flavour);
    let run = |args: &[&str]| server.cli(args).unwrap();
    run(&["HSET", "poll:target:a", "url", "http://a"]);
    run(&["HSET", "poll:target:b", "paused", "1"]);
    run(&["HSET", "poll:target:c", "paused", "false"]);
    // A text that is no JSON object does not say whether it is paused.
    run(&["SET", "poll:target:d", "x"]);
    run(&["SET", "poll:target:", "no name"]);
    run(&["SET", "poll:target:not a name", "x"]);
    run(&["SET", "poll:other:e", "x"]);
    for (field, paused) in [(None, vec![]), (Some("paused"), vec!["b", "d"])] {
        let found = reader(&server.url(), "poll:target:*", field)
            .await
            .read()
            .await
            .unwrap();
        let names: Vec<&str> = found.targets.keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        let held: Vec<&str> = found
            .targets
            .iter()
            .filter(|(_, spec)| spec.paused)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(held, paused);
        assert_eq!(found.nameless, 2);
    }
    let before = server.cli(&["DBSIZE"]).unwrap().int();
    assert_eq!(before, Some(7), "the reader writes nothing");
}

async fn json_field_pauses_and_unclear_targets_are_paused(flavour: Flavour) {
    let server = server(flavour);
    let run = |args: &[&str]| server.cli(args).unwrap();
    run(&["SET", "endpoint:active", r#"{"Url":"http://a","IsPaused":false}"#]);
    run(&["SET", "endpoint:paused", r#"{"Url":"http://a","IsPaused":true}"#]);
    run(&["SET", "endpoint:silent", r#"{"Url":"http://a"}"#]);
    run(&["SET", "endpoint:broken", r#"{"Url":"http://a","IsPau"#]);
    let long = format!(r#"{{"Url":"{}","IsPaused":false}}"#, "a".repeat(100_000));
    run(&["SET", "endpoint:long", &long]);
    run(&["RPUSH", "endpoint:list", "IsPaused", "false"]);
    run(&["HSET", "endpoint:hash", "IsPaused", "true"]);
    let found = reader(&server.url(), "endpoint:*", Some("IsPaused"))
        .await
        .read()
        .await
        .unwrap();
    let named = |paused: bool| -> Vec<&str> {
        let of = found.targets.iter().filter(|(_, spec)| spec.paused == paused);
        of.map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(named(false), ["active", "silent"]);
    assert_eq!(named(true), ["broken", "hash", "list", "long", "paused"]);
    assert_eq!((found.unclear, found.nameless), (3, 0));
    let all = reader(&server.url(), "endpoint:*", None).await.read().await.unwrap();
    assert_eq!(
        (all.targets.len(), all.unclear),
        (7, 0),
        "without a field no key is read"
    );
}

async fn disconnected_sessions_are_not_targets(flavour: Flavour) {
    let server = server(flavour);
    let run = |args: &[&str]| server.cli(args).unwrap();
    run(&["HSET", "session:hash-live", "last_disconnect", "0", "paused", "no"]);
    run(&["HSET", "session:hash-gone", "last_disconnect", "1767225600"]);
    run(&["HSET", "session:hash-iso", "last_disconnect", "2026-01-01T00:00:00Z"]);
    run(&["HSET", "session:hash-paused", "paused", "1"]);
    run(&["HSET", "session:hash-odd", "last_disconnect", "yesterday"]);
    run(&["SET", "session:json-live", r#"{"last_disconnect":0,"user":"a"}"#]);
    run(&["SET", "session:json-gone", r#"{"last_disconnect":1767225600123}"#]);
    run(&[
        "SET",
        "session:json-paused",
        r#"{"last_disconnect":null,"paused":true}"#,
    ]);
    run(&["SET", "session:json-broken", r#"{"last_disconnect":0"#]);
    run(&["SET", "session:text", "online"]);
    let reader = reader(&server.url(), "session:{id}", Some("paused")).await;
    let found = reader
        .disconnected_field("last_disconnect".to_owned())
        .read()
        .await
        .unwrap();
    let named = |paused: bool| -> Vec<&str> {
        let of = found.targets.iter().filter(|(_, spec)| spec.paused == paused);
        of.map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(named(false), ["hash-live", "json-live"]);
    assert_eq!(
        named(true),
        ["hash-odd", "hash-paused", "json-broken", "json-paused", "text"]
    );
    assert_eq!((found.unclear, found.nameless), (3, 0));
}

async fn large_keyspace_is_read_completely(flavour: Flavour) {
    let server = server(flavour);
    let mut client = server.client().unwrap();
    for number in 0..5_000 {
        client.send(&["SET", &format!("poll:target:t{number}"), "x"]).unwrap();
        client.send(&["SET", &format!("elsewhere:{number}"), "x"]).unwrap();
    }
    for _ in 0..10_000 {
        client.receive().unwrap();
    }
    let found = reader(&server.url(), "poll:target:*", Some("paused"))
        .await
        .read()
        .await
        .unwrap();
    assert_eq!((found.targets.len(), found.nameless), (5_000, 0));
}

async fn large_texts_and_fields_are_read_in_small_replies(flavour: Flavour) {
    let server = server(flavour);
    let run = |args: &[&str]| server.cli(args).unwrap();
    let pad = "x".repeat(15_000);
    for n in 0..1_000 {
        let paused = n % 2 == 1;
        run(&[
            "SET",
            &format!("t:{n}"),
            &format!(r#"{{"pad":"{pad}","paused":{paused}}}"#),
        ]);
    }
    run(&["HSET", "t:large", "paused", &"1".repeat(1 << 20)]);
    let before = heaviest_reply(&server);
    let found = reader(&server.url(), "t:*", Some("paused")).await.read().await.unwrap();
    let paused = found.targets.values().filter(|spec| spec.paused).count();
    assert_eq!((found.targets.len(), paused, found.unclear), (1_001, 501, 1));
    let after = heaviest_reply(&server);
    assert!(after <= before.max(2 << 20), "a reply of {after} bytes");
}

/// The largest output buffer that a client had lately.
fn heaviest_reply(server: &Server) -> u64 {
    let info = server.cli(&["INFO", "clients"]).unwrap().text();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("client_recent_max_output_buffer:"));
    line.unwrap().trim().parse().unwrap()
}

async fn denied_scan_is_an_error_and_not_an_empty_list(flavour: Flavour) {
    let server = server(flavour);
    server.cli(&["SET", "poll:target:a", "x"]).unwrap();
    let rules = [
        "ACL",
        "SETUSER",
        "app",
        "reset",
        "on",
        ">secret",
        "~*",
        "-@all",
        "+@connection",
        "+evalsha",
        "+eval",
        "+time",
        "+hget",
    ];
    assert_eq!(server.cli(&rules).unwrap().text(), "OK");
    let url = format!("valkey://app:secret@{}", server.addr());
    let error = reader(&url, "poll:target:*", None).await.read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}
